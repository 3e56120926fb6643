"""Parses times on the command line."""

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.config.keys.values import move_to_zone


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
