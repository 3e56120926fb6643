"""Several streams in one kafka partition of a target: an equal record of one never stands for a lost one of another."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.restore.request import Outgoing, RecordFilter, RestoreReport
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.target_topic import Regex
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, Load, Put, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.runners import Between, Step
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, produce

pytestmark = pytest.mark.integration

MERGED = Regex("(.*)-[12]", "$1-copy")
ENVELOPES = """\
name=aiven
connector.class=io.aiven.kafka.connect.s3.source.S3SourceConnector
aws.s3.bucket.name=confluent-kafka-connect-s3-testing
file.name.template={{topic}}/{{partition}}-{{start_offset}}
file.compression.type=none
format.output.type=csv
format.output.fields=key,value,offset,timestamp
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
"""


def losing(topic: str, kept: str, others: Step) -> Between:
    """Sends what the condition is true for of one topic's records; another writer sends before they are read back."""

    def lose(task: Any) -> Any:
        if task.stream.topic != topic:
            return task
        return replace(task, sent=replace(task.sent, records=RecordFilter(sql=kept)))

    return Between(before_verify=others, replayed=lose)


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_record_is_found_where_another_topic_has_an_equal_one_and_another_writer_as_many_more(
    load: Load, put: Put, lab: Lab, lost: bool
) -> None:
    one, two, target = f"{lab.topic}-1", f"{lab.topic}-2", f"{lab.topic}-copy"
    put(one, 0, numbered(0, 4))
    put(two, 5, numbered(1, 2))
    runner = losing(two, '"offset" > 5' if lost else "true", lambda: produce(lab.kafka, target, [Sent(b'{"n":7}')] * 3))
    given = asked(load(LINES, JSON), (), MERGED)
    if lost:
        with pytest.raises(IntegrityError, match=rf" 1 times less often than {one}, {two} have it together"):
            restore(given, runner)
    else:
        assert restore(given, runner).verified
    assert sorted(numbers(lab.kafka, target)) == sorted([0, 1, 2, 3, 2, 7, 7, 7] + [1] * (not lost))


def test_going_on_by_content_is_refused_where_two_topics_go_to_one(load: Load, put: Put, topic_name: str) -> None:
    put(f"{topic_name}-1", 0, numbered(0, 4))
    put(f"{topic_name}-2", 0, numbered(0, 4))
    with pytest.raises(PreflightError, match=r"equal records of two topics are not told apart"):
        restored(load(LINES, JSON), (), MERGED, delivery="at_least_once")


@pytest.fixture
def envelopes(
    load: Load, store_settings: StoreSettings, s3_client: Any, topic_name: str
) -> Callable[..., RestoreReport]:
    """Restores four equal records of each of two topics, which tell their timestamps."""

    def run(runner: InProcessRunner, partitioning: str) -> RestoreReport:
        for topic in (f"{topic_name}-1", f"{topic_name}-2"):
            body = "".join(f"a2V5,dmFsdWU=,{n},{NOON:%Y-%m-%dT%H:%M:%SZ}\n" for n in range(4)).encode()
            s3_client.put_object(Bucket=store_settings.bucket, Key=f"{topic}/0-0", Body=body)
        sent = Outgoing(partitioning=partitioning)
        return restore(asked(load(ENVELOPES), (), MERGED, outgoing=sent), runner)

    return run


@pytest.mark.parametrize("partitioning", ["source", "murmur2"])
def test_as_many_equal_records_as_all_topics_have_are_wanted_with_their_own_timestamp(
    envelopes: Callable[..., RestoreReport], kafka_settings: KafkaSettings, topic_name: str, partitioning: str
) -> None:
    report = envelopes(InProcessRunner(), partitioning)
    assert (report.record_count, report.verified) == (8, True)


def test_an_equal_record_of_another_moment_is_no_replacement_of_a_lost_one(
    envelopes: Callable[..., RestoreReport], kafka_settings: KafkaSettings, topic_name: str
) -> None:
    late = Sent(b"value", b"key", NOON.replace(hour=13))
    runner = losing(
        f"{topic_name}-2", '"offset" > 0', lambda: produce(kafka_settings, f"{topic_name}-copy", [late] * 2)
    )
    with pytest.raises(IntegrityError, match=r"-copy-0 holds a record of source offset .* 1 times less often"):
        envelopes(runner, "source")
