"""The command line `kafka-s3`. A command's module is imported only when that command is used."""

import importlib
import logging
import sys
from typing import Any

import click

from kafka_s3_platform.errors import PlatformError, TransientError
from kafka_s3_platform.text import entry

EX_TEMPFAIL = 75

COMMANDS = {
    "up": "kafka_s3_platform.cli.stack",
    "down": "kafka_s3_platform.cli.stack",
    "status": "kafka_s3_platform.cli.stack",
    "check": "kafka_s3_platform.cli.check",
    "list": "kafka_s3_platform.cli.list_connectors",
    "describe": "kafka_s3_platform.cli.describe",
    "convert": "kafka_s3_platform.cli.convert",
    "archive": "kafka_s3_platform.cli.archive",
    "show": "kafka_s3_platform.cli.show",
    "files": "kafka_s3_platform.cli.files",
    "compact": "kafka_s3_platform.cli.compact",
    "restore": "kafka_s3_platform.cli.restore",
    "groups": "kafka_s3_platform.cli.groups",
    "verify": "kafka_s3_platform.cli.verify",
    "vacuum": "kafka_s3_platform.cli.vacuum",
    "repair-index": "kafka_s3_platform.cli.repair_index",
    "resolve": "kafka_s3_platform.cli.resolve",
    "take-over": "kafka_s3_platform.cli.take_over",
    "demo": "kafka_s3_platform.cli.demo",
}
"""Module of each command, which holds it under the command's own name, as Python spells it."""


class PlatformGroup(click.Group):
    """Loads commands lazily, and turns the platform's errors into messages and exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Exit status 75 tells that running it again may help, 1 that it will not."""
        try:
            return super().invoke(ctx)
        except PlatformError as err:
            raise _failure(err) from err


class PermanentFailure(click.ClickException):
    """Running the command again does not help."""

    exit_code = 1


class TransientFailure(click.ClickException):
    """Running the command again may help."""

    exit_code = EX_TEMPFAIL


def _failure(err: PlatformError) -> click.ClickException:
    said = entry(str(err))
    return TransientFailure(said) if isinstance(err, TransientError) else PermanentFailure(said)


@click.group(cls=PlatformGroup)
def main() -> None:
    """Archive Kafka topics to S3 in hourly and daily chunks, and restore them exactly."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
