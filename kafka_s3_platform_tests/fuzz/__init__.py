"""Readers of objects against mutated ones: `python -m kafka_s3_platform_tests.fuzz FORMAT --seconds N`."""
