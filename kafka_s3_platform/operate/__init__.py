"""What watches and runs the platform: pages, metrics, alerts, warm Spark, the embedded stack, groups, reading."""

from collections.abc import Mapping

EXTENSIONS: Mapping[str, str] = {
    "choose_runner": "kafka_s3_platform.operate.defs.warm_spark:choose_runner",
}
"""What the core finds here, by the name that it asks for: see `kafka_s3_platform.core.extensions`."""
