"""Times on the command line."""

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.config.values import in_zone


def moment(option: str, text: str, zone: ZoneInfo) -> datetime:
    """An ISO 8601 time in UTC; one without an offset is read in `zone`. UsageError where it is none."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: not an ISO 8601 time, such as 2013-01-31T15:00") from err
    try:
        return (found if found.tzinfo else in_zone(found, zone)).astimezone(timezone.utc)
    except ValueError as err:
        raise click.UsageError(f"{option} {text}: {err}") from err
