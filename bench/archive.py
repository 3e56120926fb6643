"""Archive and restore of the bench topic, each in a process of its own, on Spark; prints one JSON line."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import SecretStr

from bench.measure import Usage, measured
from bench.sinks import SINKS, converter
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    StoreSettings,
)
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import Delivery, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import Attempt, SparkRunner
from kafka_s3_platform.core.spark.session import build_spark_conf
from kafka_s3_platform.operate.local.settings import StackSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def connector(name: str, topic: str, sink: str = "", registry_url: str = "") -> ConnectorConfig:
    """Make a connector on the embedded stack: two concurrent tasks, everything else as by default."""
    values, layout = SINKS[sink] if sink else ("BYTES", {})
    stack = StackSettings.from_environment()
    return ConnectorConfig(
        name=name,
        topics=(topic,),
        tasks_max=2,
        kafka=KafkaSettings(bootstrap_servers=stack.bootstrap_servers),
        store=StoreSettings(
            bucket=stack.bucket,
            region="us-east-1",
            endpoint_url=stack.s3_endpoint,
            access_key_id=SecretStr(stack.aws_access_key_id),
            secret_access_key=SecretStr(stack.aws_secret_access_key),
        ),
        layout=LayoutSettings(topics_dir=f"bench/{name}", **layout),
        records=RecordSettings(value=converter(values, registry_url)),
        archive=ArchiveSettings(start_hour=datetime(2026, 1, 1, tzinfo=timezone.utc)),
    )


def started_session() -> "tuple[SparkSession, float]":
    """Start a Spark session and its Python workers; return it, and the seconds that this took."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    begun = monotonic()
    builder = SparkSession.builder
    for key, value in build_spark_conf({"spark.master": "local[2,4]"}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    list(SparkRunner(lambda: session).run(_ready, [0, 1], 2))
    return session, monotonic() - begun


def _ready(task: int, _: Attempt) -> int:
    """Import what a worker imports once: that is a part of its start."""
    from kafka_s3_platform.core.archive import scan
    from kafka_s3_platform.core.kafka.fetch import fetch_reader
    from kafka_s3_platform.core.restore.replay import task as replay

    return task + len((scan, fetch_reader, replay))


def bench_archive(name: str, topic: str, *sink: str) -> dict[str, float]:
    """Archive everything up to now, twice in one session; `sink` is its name and the Registry's URL."""
    session, start_seconds = started_session()
    usage, again = Usage(), Usage()
    for measure, connector_name in ((usage, name), (again, f"{name}-again")):
        with measured(measure):
            request = ArchiveRequest(connector(connector_name, topic, *sink), topic, str(uuid4()), None)
            report = archive_topic(request, SparkRunner(lambda: session))
    session.stop()
    figures = _figures(usage, report.record_count, report.record_bytes, start_seconds, report.object_count)
    return figures | {"again_seconds": again.seconds}


def bench_restore(name: str, topic: str, target: str, delivery: Delivery) -> dict[str, float]:
    """Restore what `bench_archive` archived to the (existing, empty) target."""
    session, start_seconds = started_session()
    with measured() as usage:
        request = RestoreRequest(
            config=connector(name, topic),
            topic=topic,
            to_topic=target,
            restore_id=str(uuid4()),
            run_id=str(uuid4()),
            delivery=delivery,
        )
        report = restore(ArchiveSource(request), SparkRunner(lambda: session))
    session.stop()
    return _figures(usage, report.record_count, report.record_bytes, start_seconds, 0)


def _figures(usage: Usage, records: int, size: int, start_seconds: float, objects: int) -> dict[str, float]:
    return asdict(usage) | {
        "records": records,
        "bytes": size,
        "spark_start_seconds": start_seconds,
        "objects": objects,
    }


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    modes: dict[str, Callable[..., dict[str, float]]] = {"archive": bench_archive, "restore": bench_restore}
    sys.stdout.write(json.dumps(modes[mode](*rest)) + "\n")
