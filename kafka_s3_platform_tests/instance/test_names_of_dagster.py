"""Dagster documents these names, and keeps the constants for them in private modules."""

from dagster._core.storage import tags
from dagster._core.storage.dagster_run import FINISHED_STATUSES, NOT_FINISHED_STATUSES
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

from kafka_s3_platform.core.instance import work
from kafka_s3_platform.core.instance.work import ENDED, UNENDED
from kafka_s3_platform.operate.instance.event_log import BUSY_SECONDS


def test_the_tags_of_windows_priorities_and_backfills_are_dagsters() -> None:
    assert work.WINDOW_TAG == tags.PARTITION_NAME_TAG
    assert work.FIRST_WINDOW_TAG == tags.ASSET_PARTITION_RANGE_START_TAG
    assert work.LAST_WINDOW_TAG == tags.ASSET_PARTITION_RANGE_END_TAG
    assert work.PRIORITY_TAG == tags.PRIORITY_TAG
    assert work.BACKFILL_TAG == tags.BACKFILL_ID_TAG
    assert work.FIRST_BACKFILL_TAG == tags.ROOT_BACKFILL_ID_TAG


def test_a_run_has_ended_or_not_as_dagster_says() -> None:
    assert set(ENDED) == set(FINISHED_STATUSES)
    assert set(UNENDED) == set(NOT_FINISHED_STATUSES)


def test_a_writer_waits_for_another_as_long_as_in_dagsters_storage() -> None:
    assert BUSY_SECONDS == SQLITE_BUSY_TIMEOUT_SECONDS
