"""The command line `kafka-s3`. A command's module is imported when the command runs or a list shows it."""

import importlib
import os
import shlex
from collections.abc import Sequence
from typing import Any

import click

from kafka_s3_platform.cli.messages import MESSAGES, add_verbosity_options, paint_text
from kafka_s3_platform.errors import PlatformError, TransientError
from kafka_s3_platform.text import format_entry

EX_TEMPFAIL = 75
INTERRUPTED = 130
"""As shells tell of a command that Ctrl-C ended: 128 and the number of SIGINT."""

COMMANDS = {
    "up": "kafka_s3_platform.cli.stack",
    "down": "kafka_s3_platform.cli.stack",
    "status": "kafka_s3_platform.cli.stack",
    "check": "kafka_s3_platform.cli.connector_files.check",
    "list": "kafka_s3_platform.cli.connector_files.list_connectors",
    "describe": "kafka_s3_platform.cli.connector_files.describe",
    "convert": "kafka_s3_platform.cli.connector_files.convert",
    "archive": "kafka_s3_platform.cli.archive",
    "show": "kafka_s3_platform.cli.show",
    "files": "kafka_s3_platform.cli.files",
    "compact": "kafka_s3_platform.cli.compact",
    "restore": "kafka_s3_platform.cli.restore",
    "groups": "kafka_s3_platform.cli.groups",
    "verify": "kafka_s3_platform.cli.verify",
    "vacuum": "kafka_s3_platform.cli.vacuum",
    "upkeep": "kafka_s3_platform.cli.upkeep",
    "resolve": "kafka_s3_platform.cli.resolve",
    "take-over": "kafka_s3_platform.cli.take_over",
    "demo": "kafka_s3_platform.cli.demo.demo",
}
"""The module of each command. In the module, the command has the same name, with `_` for `-`."""


class PlatformGroup(click.Group):
    """Loads commands lazily, and converts errors and interrupts to messages and exit statuses."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments: an interrupted command tells with which ones it goes on."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_"))
        if not any(param.name == "verbose" for param in command.params):
            add_verbosity_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. An unknown one is told with the nearest names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as err:
            raise click.NoSuchCommand(err.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Exit status 75 means that running it again may help, 1 that it will not."""
        try:
            with MESSAGES.shown(next((word for word in ctx.obj if word in COMMANDS), "kafka-s3")):
                return super().invoke(ctx)
        except PlatformError as err:
            raise _make_exception(err) from err
        except KeyboardInterrupt as err:
            raise Interruption(str(err), ctx.obj) from err


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
    """Somebody pressed Ctrl-C. `said` is what a run tells of its end."""

    exit_code = INTERRUPTED

    def __init__(self, said: str, arguments: Sequence[str]) -> None:
        again = shlex.join(["kafka-s3", *arguments])
        super().__init__(format_entry(f"{said or 'interrupted'}; go on with: {again}"))

    def show(self, file: Any = None) -> None:  # noqa: ARG002
        """Print the sentence below the `^C` of the terminal."""
        click.echo(f"\n{self.message}", err=True)


def _make_exception(err: PlatformError) -> click.ClickException:
    said = format_entry(str(err))
    if isinstance(err, TransientError):
        return TransientFailure(said)
    return Failure(said)


@click.group(cls=PlatformGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-s3-platform", message="%(prog)s %(version)s")
def main() -> None:
    """Archive Kafka topics to S3 in hourly and daily chunks, and restore them exactly."""
    # Runs, their config and what they log are for this user: `outgoing` may hold secrets.
    os.umask(0o077)


add_verbosity_options(main)
