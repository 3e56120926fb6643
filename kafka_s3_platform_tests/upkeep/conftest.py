"""Fixtures that archiving and the upkeep of an archive share."""

from kafka_s3_platform_tests.archive.conftest import _led_at_epoch_nine

__all__ = ["_led_at_epoch_nine"]
