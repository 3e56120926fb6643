"""The command line `kafka-s3`. A command's module is imported when this command runs or shows its help."""

import importlib
import os
import shlex
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from kafka_s3_platform.cli.ending import run_to_end
from kafka_s3_platform.cli.messages import MESSAGES, add_verbosity_options, paint_text
from kafka_s3_platform.core.collector import leave_out_imports
from kafka_s3_platform.core.errors import PlatformError, TransientError, explain_full_disk
from kafka_s3_platform.core.text import format_entry

EX_TEMPFAIL = 75
INTERRUPTED = 130
"""The exit status that shells give a command that Ctrl-C ended: 128 plus the number of SIGINT."""

COMMANDS = {
    "up": ("stack", "Start Kafka and S3 on this machine."),
    "down": ("stack", "Stop Kafka and S3, and keep their data."),
    "status": ("stack", "Show the addresses of Kafka and S3, and whether they answer."),
    "demo": ("machine.demo", "Archive a month of a topic on this machine, merge its days, restore one and compare it."),
    "init": ("machine.init", "Write the connector file NAME.json for a topic of the embedded stack."),
    "dev": ("machine.dev", "Start Kafka, S3, Dagster's UI with sensors and schedules on, and the status page"),
    "check": ("connector_files.check", "Show what each key of the connector file FILE does here."),
    "list": ("connector_files.list_connectors", "List the connectors: which load and run, their lag and last run."),
    "describe": ("connector_files.describe", "List the keys of a connector CLASS, with their defaults."),
    "convert": ("connector_files.convert", "Convert Zooz's environment variables to a connector file."),
    "archive": ("archive", "Archive hours of CONNECTOR's topics, or all up to now."),
    "show": ("show", "Show what is archived of CONNECTOR's topics, day by day."),
    "health": ("operating.health", "Show what is late, what is at risk, and what failed last."),
    "serve": ("operating.serve", "Serve a status page, a health check and metrics of Prometheus."),
    "test-alert": ("operating.alert", "Send a test message to each receiver of alerts."),
    "files": ("files", "Print the URIs of CONNECTOR's current objects, one per line."),
    "compact": ("upkeep", "Merge the hourly objects of a day into daily ones."),
    "restore": ("restore", "Replay archived records to topics, as they were."),
    "groups": ("groups", "Show, or commit, offsets of consumer groups for a restore."),
    "registry": (
        "registry",
        "Archive and restore whole Schema Registries: also schemas that no archived record names.",
    ),
    "verify": ("verify", "Compare the objects of CONNECTOR's topics with the index."),
    "rehearse": (
        "operating.rehearse",
        "Restore drawn hours of each topic to a Kafka that is started for it, compare, and remove them.",
    ),
    "evidence": ("evidence", "Check evidence of a restore, a rehearsal or a deep verification."),
    "vacuum": ("upkeep", "Remove objects that CONNECTOR's runs never committed."),
    "retain": ("upkeep", "Remove hours and days that CONNECTOR's rules of retention let go."),
    "erase": ("erase", "Erase every record with some keys from the archive of a topic of CONNECTOR."),
    "upkeep": ("upkeep", "Keep the index of CONNECTOR small."),
    "resolve": ("resolve", "List offsets that could not be archived, or resolve them."),
    "take-over": ("take_over", "Begin archiving where a stopped Kafka Connect sink ended."),
    "prepare": ("machine.prepare", "Precompute class data and compiled functions, so that later starts are fast."),
    "doctor": ("machine.doctor", "Check this machine, and each connector file's servers."),
}
"""The module of each command, and the first sentence of its help, so that a list of the commands imports none of them.

In the module, the command has the same name, with `_` for `-`.
"""


class PlatformGroup(click.Group):
    """Loads commands lazily, and converts errors and interrupts to messages and exit statuses."""

    _command_line: Sequence[str] = ()

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """Run the command. Without `args`, use this process's arguments, and end the process."""
        if args is not None:
            return super().main(args, *more, **extra)
        return run_to_end(lambda: super(PlatformGroup, self).main(None, *more, **extra), self._report_interrupt)

    def _report_interrupt(self) -> int:
        """Print how to go on after Ctrl-C, and return the exit status."""
        MESSAGES.end()
        Interruption("", self._command_line).show()
        return INTERRUPTED

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line, to print it if the command is interrupted."""
        ctx.obj = self._command_line = [ctx.info_name or "kafka-s3", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command. Click would import each matching command, to leave out hidden ones."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None if there is none with this name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        with leave_out_imports():
            module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        if not any(param.name == "verbose" for param in command.params):
            add_verbosity_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. An error suggests the nearest names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as err:
            raise click.NoSuchCommand(err.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands with their texts in `COMMANDS`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. The exit status is 75 if running it again may help, and 1 if it will not."""
        try:
            with MESSAGES.shown(next((word for word in ctx.obj if word in COMMANDS), "kafka-s3")):
                return super().invoke(ctx)
        except PlatformError as err:
            raise _make_exception(err) from err
        except KeyboardInterrupt as err:
            raise Interruption(str(err), ctx.obj) from err
        except Exception as err:
            from kafka_s3_platform.operate.instance.home import explain_storage_error

            explained = explain_full_disk(err) or explain_storage_error(err)
            if explained is None:
                raise
            raise _make_exception(explained) from err


class Failure(click.ClickException):
    """The command has failed, and running it again does not help."""

    exit_code = 1

    def show(self, file: Any = None) -> None:  # noqa: ARG002
        """Print the error."""
        click.echo(f"{paint_text('Error:', 'red')} {self.message}", err=True)


class TransientFailure(Failure):
    """The command has failed, and running it again may help."""

    exit_code = EX_TEMPFAIL


class Interruption(click.ClickException):
    """Somebody pressed Ctrl-C. `ending` is the run's own text about it, if there was a run."""

    exit_code = INTERRUPTED

    def __init__(self, ending: str, command_line: Sequence[str]) -> None:
        go_on_command = shlex.join(command_line)
        super().__init__(format_entry(f"{ending or 'interrupted'}; go on with: {go_on_command}"))

    def show(self, file: Any = None) -> None:  # noqa: ARG002
        """Print the sentence below the `^C` of the terminal."""
        click.echo(f"\n{self.message}", err=True)


def _make_exception(err: PlatformError) -> click.ClickException:
    """Return the error for the terminal. Its exit status shows if another try may help."""
    text = format_entry(str(err))
    if isinstance(err, TransientError):
        return TransientFailure(text)
    return Failure(text)


@click.group(cls=PlatformGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-s3-platform", message="%(prog)s %(version)s")
def main() -> None:
    """Archive Kafka topics to S3 in hourly and daily chunks, and restore them exactly."""
    # Runs, their config and what they log are for this user: `outgoing` may hold secrets.
    os.umask(0o077)


add_verbosity_options(main)
