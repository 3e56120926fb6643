"""The lab of attacks on restores is that of restores."""

from kafka_s3_platform_tests.restore.conftest import lab

__all__ = ["lab"]
