"""`kafka-s3 up`, `down` and `status`: the embedded stack."""

import dataclasses
import os
from collections.abc import Mapping

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.operate.defs.warm_spark import read_idle_minutes, start_warm_spark, stop_warm_spark
from kafka_s3_platform.operate.local import stack
from kafka_s3_platform.operate.local.settings import StackSettings


@click.command
@click.option("--registry", is_flag=True, help="Start a Schema Registry as well.")
@json_option
def up(registry: bool, as_json: bool) -> None:
    """Start Kafka and S3 on this machine, and a warm Spark for its runs. Waits until Kafka and S3 answer."""
    settings = StackSettings.from_environment()
    state = stack.start_stack(settings)
    start_spark()
    _print_state(stack.start_registry(settings) if registry else state, as_json)


@click.command
@json_option
def down(as_json: bool) -> None:
    """Stop Kafka and S3, and keep their data. A warm Spark ends with its last run."""
    stopped = stack.stop_stack(StackSettings.from_environment())
    try:
        if stop_warm_spark():
            stopped = (*stopped, "spark")
    except OSError as err:
        click.echo(f"no warm Spark was stopped: {err}", err=True)
    print_result({"stopped": stopped}, as_json, [f"stopped: {', '.join(stopped) or 'nothing ran'}"])


@click.command
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show the addresses of Kafka and S3, and whether they answer. Exit status 1 if one does not."""
    state = stack.read_stack_status(StackSettings.from_environment())
    _print_state(state, as_json)
    ctx.exit(0 if state.healthy else 1)


def start_spark() -> None:
    """Start a warm Spark in the background, unless the environment forbids it. Runs work without one, too."""
    if read_idle_minutes(os.environ) == 0:
        return
    try:
        start_warm_spark()
    except OSError as err:
        click.echo(f"no warm Spark, so each run starts a session of its own: {err}", err=True)


def _print_state(status: stack.StackStatus, as_json: bool) -> None:
    """Print the addresses of the stack, and the health of its servers."""
    values = {**dataclasses.asdict(status), "healthy": status.healthy}
    print_result(values, as_json, _format_state(values, status.servers))


def _format_state(values: Mapping[str, object], servers: tuple[stack.ServerStatus, ...]) -> list[str]:
    """Return a line for each address of the stack, then one for the health of each server."""
    reach = [f"{name:<22} {value}" for name, value in values.items() if name not in ("servers", "healthy") and value]
    state = [
        f"{s.name:<22} {'healthy' if s.healthy else s.detail}{f' (pid {s.pid})' if s.pid else ''}" for s in servers
    ]
    return [*reach, *state]
