"""Another release of Kafka than the embedded stack's: records come back from the archive byte for byte."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab, own_stack
from kafka_s3_platform_tests.faults.broker import start_broker
from kafka_s3_platform_tests.kafka.topics import handed_over, records_of
from kafka_s3_platform_tests.restore.own import request, target_of
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, connector, produce

pytestmark = pytest.mark.long

RECORDS = [
    Sent(None, b"tombstone"),
    Sent(b"", b"", NOON, (("h", None), ("h", b""), ("h", b"1"))),
    *(Sent(b"%d" % n * 50, b"k", NOON + n * timedelta(seconds=1), (), n % 2) for n in range(2000)),
    Sent(b"later", None, NOON + 2 * HOUR),
]


@pytest.fixture
def kafka_3(stack_settings: StackSettings) -> Iterator[KafkaSettings]:
    with own_stack(stack_settings, kafka_version="3.9.1") as settings:
        start_broker(settings)
        yield KafkaSettings(bootstrap_servers=settings.bootstrap_servers)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_topic_of_kafka_3_is_archived_and_restored_as_it_was(
    kafka_3: KafkaSettings, lab: Lab, compression: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ClusterAdmin(kafka_3) as admin:
        admin.create_topic(lab.topic, 2)
    produce(kafka_3, lab.topic, RECORDS, **{"compression.type": compression})
    config = connector(kafka_3, lab.store, lab.topic)

    with caplog.at_level("INFO"):
        archived(config)
    report = restore(ArchiveSource(request(config)), InProcessRunner())

    assert not handed_over(caplog), "our own client read it"
    assert report.verified
    assert verify_archive(config, lab.topic, deep=True, runner=InProcessRunner()).ok
    for kafka_partition in range(2):
        was, now = (records_of(kafka_3, topic, kafka_partition) for topic in (lab.topic, target_of(config)))
        kept = ["key", "value", "headers", "timestamp"]
        assert now.select(kept).equals(was.select(kept))
