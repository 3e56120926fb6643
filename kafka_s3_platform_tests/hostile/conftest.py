"""A fixture that attacks on restores share with the tests of restores."""

from kafka_s3_platform_tests.restore.conftest import load

__all__ = ["load"]
