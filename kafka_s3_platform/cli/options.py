"""Parses options that select records by time, or name another cluster."""

import re
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.connect.config.files import read_target_cluster
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.model.times import move_to_zone


def parse_time(option: str, text: str, zone: ZoneInfo) -> datetime:
    """Parse an ISO 8601 time to UTC; without a UTC offset it is in `zone`. UsageError for any other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: not an ISO 8601 time, such as 2013-01-31T15:00") from err
    try:
        return move_to_zone(time, zone).astimezone(timezone.utc)
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: {err}") from err


target_worker_option = click.option(
    "--target-worker",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The worker.properties file of the target's cluster. Default: the connector's own cluster.",
)


def parse_offsets(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:  # noqa: ARG001 - click's signature
    """Parse `N` or several `P:N` into the form of a run's config."""
    matches = [re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", text) for text in texts]
    by_number = {str(int(f[1])) if f[1] else "all": int(f[2]) for f in matches if f}
    if not all(matches) or len(by_number) < len(texts) or ("all" in by_number and len(by_number) > 1):
        raise click.BadParameter(f"{' '.join(texts)}: one N, or P:N for each of some kafka partitions, such as 0:15")
    return by_number


def parse_numbers(ctx: click.Context, param: click.Parameter, text: str | None) -> list[int]:  # noqa: ARG001 - click's signature
    """Parse `0,1,...` into numbers. Return none without a text. UsageError for any other text."""
    # An empty text may come from a shell variable that is not set. It must not mean all kafka partitions.
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"{param.opts[0]} {text}: not numbers separated by commas")
    return [int(part) for part in parts]


def parse_optional_time(option: str, text: str | None, zone: ZoneInfo) -> datetime | None:
    """Parse an optional time to UTC."""
    return None if text is None else parse_time(option, text, zone)


def read_target_kafka(worker: Path | None) -> KafkaSettings | None:
    """Return the cluster of the `--target-worker` file, None without a file. ConfigError if it declares no cluster."""
    return None if worker is None else read_target_cluster(worker)
