"""`kafka-s3 up`, `down` and `status`: the embedded stack."""

import dataclasses
from collections.abc import Mapping

import click

from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.local import stack
from kafka_s3_platform.local.settings import StackSettings


@click.command
@click.option("--registry", is_flag=True, help="Start a Schema Registry as well.")
@json_option
def up(registry: bool, as_json: bool) -> None:
    """Start Kafka and S3 on this machine. Waits until they answer."""
    settings = StackSettings.from_environment()
    found = stack.start_stack(settings)
    _print_state(stack.start_registry(settings) if registry else found, as_json)


@click.command
@json_option
def down(as_json: bool) -> None:
    """Stop Kafka and S3, and keep their data."""
    stopped = stack.stop_stack(StackSettings.from_environment())
    print_result({"stopped": stopped}, as_json, [f"stopped: {', '.join(stopped) or 'nothing ran'}"])


@click.command
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show how to reach Kafka and S3, and whether they answer. Exit status 1 if one does not."""
    found = stack.read_stack_status(StackSettings.from_environment())
    _print_state(found, as_json)
    ctx.exit(0 if found.healthy else 1)


def _print_state(status: stack.StackStatus, as_json: bool) -> None:
    values = {**dataclasses.asdict(status), "healthy": status.healthy}
    print_result(values, as_json, _format_state(values, status.servers))


def _format_state(values: Mapping[str, object], servers: tuple[stack.ServerStatus, ...]) -> list[str]:
    reach = [f"{name:<22} {value}" for name, value in values.items() if name not in ("servers", "healthy") and value]
    state = [
        f"{s.name:<22} {'healthy' if s.healthy else s.detail}{f' (pid {s.pid})' if s.pid else ''}" for s in servers
    ]
    return [*reach, *state]
