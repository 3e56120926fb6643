"""The command line `kafka-s3`. A command's module is imported when the command runs or a list shows it."""

import importlib
import logging
import os
import sys
from typing import Any

import click

from kafka_s3_platform.errors import PlatformError, TransientError
from kafka_s3_platform.text import format_entry

EX_TEMPFAIL = 75

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
    """Loads commands lazily, and converts the platform's errors to messages and exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Exit status 75 means that running it again may help, 1 that it will not."""
        try:
            return super().invoke(ctx)
        except PlatformError as err:
            raise _make_exception(err) from err


class PermanentFailure(click.ClickException):
    """Running the command again does not help."""

    exit_code = 1


class TransientFailure(click.ClickException):
    """Running the command again may help."""

    exit_code = EX_TEMPFAIL


def _make_exception(err: PlatformError) -> click.ClickException:
    said = format_entry(str(err))
    if isinstance(err, TransientError):
        return TransientFailure(said)
    return PermanentFailure(said)


@click.group(cls=PlatformGroup)
def main() -> None:
    """Archive Kafka topics to S3 in hourly and daily chunks, and restore them exactly."""
    # Runs, their config and what they log are for this user: `outgoing` may hold secrets.
    os.umask(0o077)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
