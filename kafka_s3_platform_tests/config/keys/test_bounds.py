from datetime import datetime, timezone

import pytest
from pydantic import ValidationError

from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    ErrorSettings,
    LayoutSettings,
    RoleSettings,
    Settings,
    SourceSettings,
    StoreSettings,
)

_REQUIRED: dict[type[Settings], dict[str, object]] = {
    ArchiveSettings: {"start_hour": datetime(2020, 1, 1, tzinfo=timezone.utc)},
    RoleSettings: {"arn": "arn:aws:iam::1:role/a", "session_name": "archive", "region": "us-east-1"},
    StoreSettings: {"bucket": "archive"},
}


@pytest.mark.parametrize(
    ("settings", "field", "lowest", "below"),
    [
        (ArchiveSettings, "allowed_lateness_ms", 0, -1),
        (ArchiveSettings, "task_size", 1, 0),
        (ArchiveSettings, "daily_segment_bytes", 1, 0),
        (ArchiveSettings, "clock_tolerance_ms", 0, -1),
        (ArchiveSettings, "records_per_second", 0.5, 0.0),
        (ArchiveSettings, "bytes_per_second", 0.5, 0.0),
        (ErrorSettings, "dead_letter_replication_factor", 1, 0),
        (LayoutSettings, "block_size", 1, 0),
        (LayoutSettings, "partition_duration_ms", 1, 0),
        (LayoutSettings, "offset_pad_width", 0, -1),
        (LayoutSettings, "flush_size", 1, 0),
        (LayoutSettings, "rotate_interval_ms", 1, 0),
        (LayoutSettings, "rotate_schedule_interval_ms", 1, 0),
        (LayoutSettings, "segment_bytes", 1, 0),
        (RoleSettings, "duration_s", 900, 899),
        (SourceSettings, "poll_interval_ms", 1, 0),
        (SourceSettings, "thaw_days", 1, 0),
        (StoreSettings, "part_size", 5_242_880, 5_242_879),
        (StoreSettings, "max_retries", 0, -1),
        (StoreSettings, "retry_backoff_ms", 0, -1),
    ],
)
def test_a_number_below_its_bound_is_no_setting(
    settings: type[Settings], field: str, lowest: float, below: float
) -> None:
    required = _REQUIRED.get(settings, {})
    assert getattr(settings.model_validate({**required, field: lowest}), field) == lowest
    with pytest.raises(ValidationError):
        settings.model_validate({**required, field: below})


def test_a_role_lasts_twelve_hours_at_most() -> None:
    with pytest.raises(ValidationError):
        RoleSettings.model_validate({**_REQUIRED[RoleSettings], "duration_s": 43_201})


def test_a_connector_has_a_task() -> None:
    settings: dict[str, object] = {
        "name": "n",
        "topics": ["t"],
        "kafka": {"bootstrap_servers": "b:9092"},
        "store": _REQUIRED[StoreSettings],
        "layout": {},
        "archive": _REQUIRED[ArchiveSettings],
    }
    assert ConnectorConfig.model_validate({**settings, "tasks_max": 1}).tasks_max == 1
    with pytest.raises(ValidationError):
        ConnectorConfig.model_validate({**settings, "tasks_max": 0})
