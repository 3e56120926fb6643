"""Arguments and options of several commands, and parsers of their values."""

import os
import re
from datetime import date, datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.connect.config.files import guess_name, read_target_cluster
from kafka_s3_platform.core.config.folder import find_connectors_folder, list_connector_files
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.model.times import move_to_zone


def complete_connector(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of connectors that start with the text, even if their files are invalid."""
    folder = find_connectors_folder(os.environ)
    names = map(guess_name, list_connector_files(folder) if folder.is_dir() else ())
    return sorted(name for name in names if name.startswith(incomplete))


connector_argument = click.argument("connector", shell_complete=complete_connector)
connectors_argument = click.argument(
    "connectors", metavar="[CONNECTOR]...", nargs=-1, shell_complete=complete_connector, required=False
)
topic_option = click.option("--topic", metavar="T", help="Use only this topic of the connector. Default: all of them.")
target_worker_option = click.option(
    "--target-worker",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The worker.properties file of the target's cluster. Default: the connector's own cluster.",
)


def read_target_kafka(worker: Path | None) -> KafkaSettings | None:
    """Return the cluster of the `--target-worker` file, or None without one. Raises ConfigError if it names none."""
    return None if worker is None else read_target_cluster(worker)


def parse_time(option: str, text: str, zone: ZoneInfo) -> datetime:
    """Parse an ISO 8601 time to UTC. Without a UTC offset it is in `zone`. Raises UsageError for other texts."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: not an ISO 8601 time, such as 2013-01-31T15:00") from err
    try:
        return move_to_zone(time, zone).astimezone(timezone.utc)
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: {err}") from err


def parse_hour(option: str, text: str, zone: ZoneInfo) -> datetime:
    """Parse the start of an hour of `zone` to UTC. Raises UsageError for any other text."""
    hour = parse_time(option, text, zone)
    if (hour.second, hour.microsecond, hour.astimezone(zone).minute) != (0, 0, 0):
        raise click.UsageError(f"{option} {text}: not the start of an hour of {zone.key}, such as 2013-01-31T15")
    return hour


def parse_day(text: str) -> date:
    """Parse the value of `--day`. Raises UsageError if it is not a day."""
    try:
        return date.fromisoformat(text)
    except ValueError as err:
        raise click.UsageError(f"--day {text}: not a day, such as 2013-01-31") from err


def parse_offsets(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:  # noqa: ARG001 - click's signature
    """Parse `N` or several `P:N` into offsets by kafka partition, or by `all`, as a run's config has them."""
    matches = [re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", text) for text in texts]
    by_number = {str(int(f[1])) if f[1] else "all": int(f[2]) for f in matches if f}
    if not all(matches) or len(by_number) < len(texts) or ("all" in by_number and len(by_number) > 1):
        raise click.BadParameter(f"{' '.join(texts)}: one N, or P:N for each of some kafka partitions, such as 0:15")
    return by_number


def parse_numbers(ctx: click.Context, param: click.Parameter, text: str | None) -> list[int]:  # noqa: ARG001 - click's signature
    """Parse `0,1,...` into numbers, and no text into none. Raises UsageError for any other text."""
    # An empty text may come from a shell variable that is not set. It must not mean all kafka partitions.
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"{param.opts[0]} {text}: not numbers separated by commas")
    return [int(part) for part in parts]
