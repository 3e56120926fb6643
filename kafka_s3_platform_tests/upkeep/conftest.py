"""Fixtures that archiving, restores and the upkeep of an archive share."""

from kafka_s3_platform_tests.archive.conftest import _led_at_epoch_nine
from kafka_s3_platform_tests.restore.conftest import archive_once, copied_archive, shared_archive

__all__ = ["_led_at_epoch_nine", "archive_once", "copied_archive", "shared_archive"]
