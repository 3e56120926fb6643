"""Windows of records, and other clusters, on the command line."""

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.config.files import read_worker
from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.config.worker import cluster_of
from kafka_s3_platform.errors import ConfigError

OFFSETS = "For all kafka partitions, or P:N for one; may be repeated."

target_worker_option = click.option(
    "--target-worker",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A worker.properties of the other cluster. Default: the connector's own cluster.",
)


def offsets(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:  # noqa: ARG001 - click's signature
    """`N` or `P:N`s as the config of a run has them."""
    found = [re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", text) for text in given]
    by_number = {str(int(f[1])) if f[1] else "all": int(f[2]) for f in found if f}
    if not all(found) or len(by_number) < len(given) or ("all" in by_number and len(by_number) > 1):
        raise click.BadParameter(f"{' '.join(given)}: one N, or P:N for each of some kafka partitions, such as 0:15")
    return by_number


def numbers(text: str | None) -> list[int]:
    """`0,1,...` as numbers. UsageError where it is something else."""
    # an empty text, of a variable of the shell that is not set, does not mean all of them
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--kafka-partitions {text}: not numbers separated by commas")
    return [int(part) for part in parts]


def by_kafka_partition(given: Mapping[str, int]) -> int | dict[int, int] | None:
    """What `offsets` gave, as a `RestoreRequest` has it."""
    if "all" in given:
        return given["all"]
    return {int(p): offset for p, offset in given.items()} or None


def time_of(option: str, text: str | None, zone: ZoneInfo) -> datetime | None:
    """An optional time in UTC."""
    return None if text is None else moment(option, text, zone)


def target_kafka(worker: Path | None) -> KafkaSettings | None:
    """The cluster of `--target-worker`, None without one. ConfigError if it declares none."""
    if worker is None:
        return None
    found = cluster_of(read_worker(worker, os.environ))
    if not found.bootstrap_servers:
        raise ConfigError(f"{worker}: required: name the cluster's brokers in bootstrap.servers")
    return found
