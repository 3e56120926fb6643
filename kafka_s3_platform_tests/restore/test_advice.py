"""Every advice in an error of a restore is taken, and works."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, TransformSettings
from kafka_s3_platform.core.errors import (
    IntegrityError,
    LogTruncatedError,
    MissingTopicError,
    PreflightError,
    RecordError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.kafka.producer import ReplayProducer
from kafka_s3_platform.core.restore import run
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.preflight import begin
from kafka_s3_platform.core.restore.preflight.target import FOREVER_MS
from kafka_s3_platform.core.restore.replay import transactions as marker
from kafka_s3_platform.core.restore.replay.transactions import Marker
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.restore.source.terms import hash_place
from kafka_s3_platform.core.restore.verify.read_back import verify_stream
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records, values
from kafka_s3_platform_tests.restore.own import (
    Archive,
    Between,
    StoppingRunner,
    add_kafka_partitions,
    delete_topic,
    numbered,
    request,
    restored,
    set_configs,
    target_of,
)
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, produce, snapshot

THREE_HOURS = [Sent(b"%d" % n, timestamp=NOON + n // 10 * HOUR) for n in range(30)]


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """Three hours of ten records in an object each."""
    return shared_archive(THREE_HOURS)


def expected(chosen: Sequence[int] = range(30)) -> list[bytes]:
    return [b"%d" % n for n in chosen]


# The target


def test_a_target_keeps_all_once_it_is_set_as_the_refusal_says(config: ConnectorConfig, lab: Lab) -> None:
    target = lab.create(
        target_of(config),
        retention_ms=3_600_000,
        retention_bytes=10,
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=1000,
    )
    with pytest.raises(PreflightError) as refused:
        restored(config)
    asked = re.findall(r"Set ([a-z.]+)=([\w-]+)", str(refused.value))
    (limit,) = re.findall(r"(message\.timestamp\.before\.max\.ms).*Raise it to (\d+)", str(refused.value))
    assert (len(asked), limit[1]) == (3, str(FOREVER_MS))
    assert values(config.kafka, target) == []
    assert list(ObjectStore(config.store).list(config.archive.restore_dir)) == []
    set_configs(config.kafka, target, dict([*asked, limit]))
    assert restored(config).verified
    assert values(config.kafka, target) == expected()


def test_a_target_that_takes_no_late_times_takes_them_once_it_is_set_so(lab: Lab) -> None:
    lab.create_topic(message_timestamp_after_max_ms=FOREVER_MS)
    config = lab.connector()
    lab.produce([Sent(b"0", timestamp=NOON + timedelta(days=9000))])
    archived(config)
    target = lab.create(target_of(config))
    with pytest.raises(PreflightError) as refused:
        restored(config)
    asked = re.findall(r"(message\.timestamp\.after\.max\.ms).*Raise it to (\d+)", str(refused.value))
    set_configs(config.kafka, target, dict(asked))
    assert restored(config).verified


def test_a_compacted_target_loses_nothing_while_it_is_set_as_the_refusal_says(
    config: ConnectorConfig, lab: Lab
) -> None:
    target = lab.create(target_of(config), cleanup_policy="compact", retention_ms=3_600_000)
    produce(config.kafka, target, [Sent(b"theirs", b"k")])
    with pytest.raises(PreflightError, match=r"\n1\. .*and reset all of them afterwards$") as refused:
        restored(config)
    asked = re.findall(r"(?:Set|and|then) ([a-z.]+)=([\w-]+)", str(refused.value))
    assert [name for name, _ in asked] == ["retention.ms", "retention.bytes", "cleanup.policy"]
    # each second the test's broker looks for what is to be deleted
    set_configs(config.kafka, target, dict(asked), pause=1.5)
    assert restored(config).verified
    assert values(config.kafka, target) == [b"theirs", *expected()]


def test_records_that_are_too_large_fit_once_the_limit_is_raised_or_are_left_out(
    shared_archive: Archive, lab: Lab
) -> None:
    config = shared_archive([*THREE_HOURS, Sent(b"x" * 5000, timestamp=NOON + 4 * HOUR)])
    target = lab.create(target_of(config), max_message_bytes=2000)
    with pytest.raises(
        PreflightError, match=r"(max\.message\.bytes)=2000: object .* Raise the limit, or exclude these records by time"
    ):
        restored(config)
    assert restored(config, to_time=NOON + 4 * HOUR, restore_id="by-time").record_count == 30
    assert restored(config, to_offset=30, restore_id="by-offset").record_count == 30
    set_configs(config.kafka, target, {"max.message.bytes": "10000"})
    assert restored(config).record_count == 31


@pytest.fixture
def wide(shared_archive: Archive) -> ConnectorConfig:
    """Five records in each of two kafka partitions."""
    return shared_archive([*numbered(5), *numbered(5, kafka_partition=1)], 2)


def test_a_target_with_too_few_kafka_partitions_gets_more_or_fewer_or_others(wide: ConnectorConfig, lab: Lab) -> None:
    target = lab.create(target_of(wide))
    with pytest.raises(PreflightError) as refused:
        restored(wide)
    said = str(refused.value)
    for told in ("Add kafka partitions", "--kafka-partitions (what.kafka_partitions)", "--partitioning murmur2"):
        assert told in said
    assert restored(wide, restore_id="subset", kafka_partitions=(0,)).record_count == 5
    by_key = Outgoing(partitioning="murmur2")
    assert restored(wide, restore_id="by-key", outgoing=by_key).record_count == 10
    add_kafka_partitions(wide.kafka, target, 2)
    assert restored(wide).record_count == 10


def test_a_target_that_is_created_gets_as_many_kafka_partitions_as_are_asked_for(wide: ConnectorConfig) -> None:
    with pytest.raises(PreflightError, match=r"Ask for more: --target-kafka-partitions \(to.kafka_partitions\)"):
        restored(wide, target_kafka_partitions=1)
    assert restored(wide, target_kafka_partitions=2).record_count == 10


def test_a_target_that_is_missing_is_created_by_hand_or_by_the_restore(wide: ConnectorConfig, lab: Lab) -> None:
    asked = r"does not exist\..* Create it with (\d) kafka .*--create-topic"
    with pytest.raises(PreflightError, match=asked) as refused:
        restored(wide, create_topic=False)
    found = re.search(r"with (\d) kafka partitions", str(refused.value))
    assert found is not None
    lab.create(target_of(wide), int(found[1]))
    with pytest.raises(PreflightError, match=rf"does not exist\. Did you mean {target_of(wide)}\?"):
        restored(wide, to_topic=target_of(wide)[:-1], create_topic=False)
    assert restored(wide, create_topic=False).verified
    assert restored(wide, to_topic=f"{target_of(wide)}-2", restore_id="r2", create_topic=True).verified


# The restore id


def test_a_target_that_was_deleted_is_restored_to_under_another_restore_id(config: ConnectorConfig) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(verify_stream))
    delete_topic(config.kafka, target_of(config))
    with pytest.raises(
        MissingTopicError, match=r"was deleted after the restore began.*Restore under another restore id"
    ):
        restored(config)
    assert restored(config, restore_id="r2").verified
    with pytest.raises(TopicRecreatedError, match="Restore under another restore id"):
        restored(config)
    assert values(config.kafka, target_of(config)) == expected()


def test_a_restore_id_that_is_taken_resumes_what_it_was_for_and_another_begins_anew(config: ConnectorConfig) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay_streams), from_offset=5)
    with pytest.raises(
        PreflightError, match=r"from_offset was 5, is now None.*Make the same request to resume that restore"
    ):
        restored(config)
    assert restored(config, from_offset=5).record_count == 25
    assert restored(config, restore_id="r2", to_topic=f"{target_of(config)}-2").record_count == 30


def test_a_plan_that_somebody_changed_is_left_for_another_topic_and_restore_id(
    config: ConnectorConfig, lab: Lab
) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(verify_stream))
    key = request(config).documents.plan
    body = ObjectStore(config.restore_store).get(key).replace(b'"end_offset": 10', b'"end_offset": 11')
    lab.s3.put_object(Bucket=config.restore_store.bucket, Key=key, Body=body)
    with pytest.raises(IntegrityError, match="Restore to another topic under another restore id"):
        restored(config)
    another = restored(config, restore_id="r2", to_topic=f"{target_of(config)}-2")
    assert values(config.kafka, another.to_topic) == expected()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [(Marker("feed", 7, 7).committed.metadata, "belongs to plan feed"), ("", "is not a progress marker")],
)
def test_a_progress_marker_of_something_else_is_left_alone_by_another_restore_id(
    config: ConnectorConfig, lab: Lab, metadata: str, said: str
) -> None:
    lab.create(target_of(config))
    with ClusterAdmin(config.kafka) as admin:
        group = marker.make_marker_name(config.topics[0], 0, place=hash_place(config))
        publish_offsets(admin, group, target_of(config), {0: 7}, {0: metadata})
    with pytest.raises(PreflightError, match=rf"{said}.*[Uu]se another"):
        restored(config, restore_id=config.topics[0])
    assert values(config.kafka, target_of(config)) == []
    assert restored(config, restore_id=f"{config.topics[0]}-2").verified
    assert values(config.kafka, target_of(config)) == expected()


def test_what_the_target_lost_is_restored_to_another_topic_under_another_restore_id(config: ConnectorConfig) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(verify_stream))
    delete_records(config.kafka, target_of(config), 3)
    said = r"holds offsets \[3, \d+\), but records were restored to it from offset 0 on.* under another restore id"
    with pytest.raises(LogTruncatedError, match=said):
        restored(config)
    assert ObjectStore(config.store).head(request(config).documents.report) is None
    another = restored(config, restore_id="r2", to_topic=f"{target_of(config)}-2")
    assert values(config.kafka, another.to_topic) == expected()


def test_the_archive_is_made_first(lab: Lab) -> None:
    config = lab.fill(numbered(5))
    said = (
        f"connector c has archived nothing of topic {lab.topic}.*Archive it first, or correct the topic, the connector"
    )
    with pytest.raises(MissingTopicError, match=said):
        restored(config)
    archived(config)
    elsewhere = config.model_copy(update={"archive": config.archive.model_copy(update={"index_dir": "elsewhere"})})
    for wrong in (config.model_copy(update={"name": "d"}), elsewhere):
        with pytest.raises(MissingTopicError, match="correct the topic, the connector or archive"):
            restored(wrong)
    assert restored(config).verified


# Another run


@pytest.mark.parametrize("ends", [True, False], ids=["let it finish", "stop it and run again"])
def test_of_two_runs_that_begin_one_restore_either_may_finish_it(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    original = begin.store_plan

    def late(*given: Any) -> None:
        monkeypatch.setattr(run, "store_plan", original)
        other = InProcessRunner() if ends else StoppingRunner(replay_streams)
        try:
            restored(config, other, run_id="y")
        except InterruptedError:
            assert not ends
        original(*given)

    monkeypatch.setattr(run, "store_plan", late)
    with pytest.raises(SupersededError, match="Let it finish, or stop it and run again"):
        restored(config)
    again = restored(config)
    assert (again.verified, again.already_finished) == (True, ends)
    assert values(config.kafka, target_of(config)) == expected()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("ends", [True, False], ids=["let it finish", "stop it and run again"])
def test_a_run_that_another_has_overtaken_is_run_again(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, delivery: str, ends: bool
) -> None:
    """The other one takes over when this one has sent all and is about to write down how far it came."""
    sender: Any = marker.Transactions if delivery == "exactly_once" else ReplayProducer
    name = "note_passed" if delivery == "exactly_once" else "flush"
    original = getattr(sender, name)

    def late(self: Any, *given: Any) -> Any:
        done = original(self, *given) if delivery == "at_least_once" else None
        monkeypatch.setattr(sender, name, original)
        other = InProcessRunner() if ends else StoppingRunner(verify_stream)
        try:
            restored(config, other, run_id="y", delivery=delivery)
        except InterruptedError:
            assert not ends
        return done if delivery == "at_least_once" else original(self, *given)

    monkeypatch.setattr(sender, name, late)
    with pytest.raises(SupersededError, match=r"Let that run finish, or stop it and run again"):
        restored(config, delivery=delivery)
    again = restored(config, delivery=delivery)
    assert (again.verified, again.already_finished) == (True, ends)
    assert values(config.kafka, target_of(config)) == expected()


# The objects


def second_of(config: ConnectorConfig) -> str:
    return snapshot(config).segments[1].key


@pytest.fixture
def changing(copied_archive: Archive) -> ConnectorConfig:
    """The same three hours in a bucket of the test's own."""
    return copied_archive(THREE_HOURS)


@pytest.fixture
def lost(changing: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What was in the second object, which is gone since the first was sent."""
    monkeypatch.setattr(marker, "TRANSACTION_RECORDS", 1)
    body = ObjectStore(changing.store).get(second_of(changing))

    def delete() -> None:
        lab.s3.delete_object(Bucket=changing.store.bucket, Key=second_of(changing))

    with pytest.raises(IntegrityError, match=r"(?s)another connector name.*Progress of restore r1: .*-0: ") as raised:
        restored(changing, Between(before_replay=delete))
    assert f"object {second_of(changing)} " in str(raised.value)
    return body


def test_a_restore_goes_on_when_the_object_is_brought_back(changing: ConnectorConfig, lab: Lab, lost: bytes) -> None:
    with pytest.raises(PreflightError, match=r"[Pp]ut an undamaged copy back"):
        restored(changing)
    lab.s3.put_object(Bucket=changing.store.bucket, Key=second_of(changing), Body=lost)
    assert restored(changing).verified
    assert values(changing.kafka, target_of(changing)) == expected()


@pytest.mark.usefixtures("lost")
def test_what_an_object_held_is_restored_from_another_archive_of_the_topic(changing: ConnectorConfig) -> None:
    other = changing.model_copy(
        update={"name": "d", "layout": changing.layout.model_copy(update={"topics_dir": "other"})},
    )
    archived(other)
    another = restored(other, restore_id="r2", to_topic=f"{target_of(changing)}-2")
    assert values(changing.kafka, another.to_topic) == expected()


@pytest.mark.usefixtures("lost")
def test_windows_of_offsets_go_around_the_object_to_another_topic(changing: ConnectorConfig) -> None:
    with pytest.raises(PreflightError) as refused:
        restored(changing)
    found = re.search(r"-0 \[(\d+), (\d+)\): .*restore the offsets around it to another topic", str(refused.value))
    assert found is not None
    windows: dict[str, dict[str, int]] = {"r2": {"to_offset": int(found[1])}, "r3": {"from_offset": int(found[2])}}
    for restore_id, window in windows.items():
        restored(changing, restore_id=restore_id, to_topic=f"{target_of(changing)}-2", **window)
    assert values(changing.kafka, f"{target_of(changing)}-2") == expected([*range(10), *range(20, 30)])


@pytest.mark.usefixtures("lost")
def test_the_object_is_left_out_under_the_same_restore_id(changing: ConnectorConfig) -> None:
    with pytest.raises(PreflightError, match=r"--behavior-on-error ignore or log \(how.behavior_on_error\)"):
        restored(changing)
    assert restored(changing, behavior_on_error="log").verified
    assert values(changing.kafka, target_of(changing)) == expected([*range(10), *range(20, 30)])


# The records


def test_a_record_that_fails_is_left_out_under_the_same_restore_id(lab: Lab) -> None:
    sent = [Sent(b'{"n":1}'), Sent(b"no JSON"), Sent(b'{"n":2}')]
    config = lab.archive(sent, records={"value": {"format": "JSON"}})
    outgoing = Outgoing(value=ConverterSettings(format="JSON"))
    with pytest.raises(
        RecordError, match=r"Run it again under the same restore id with --behavior-on-error ignore or log"
    ) as raised:
        restored(config, outgoing=outgoing)
    assert "source offset 1 " in str(raised.value)
    restored(config, outgoing=outgoing, behavior_on_error="log")
    assert values(lab.kafka, target_of(config)) == [b'{"n":1}', b'{"n":2}']


def test_what_a_transform_made_is_written_by_the_converter_that_the_error_asks_for(config: ConnectorConfig) -> None:
    hoist = TransformSettings(alias="h", type="HoistField$Value", options={"field": SecretStr("f")})
    with pytest.raises(RecordError, match=r"to write it otherwise, set value\.converter \(--outgoing"):
        restored(config, outgoing=Outgoing(transforms=(hoist,)), to_offset=1)
    by_json = Outgoing(transforms=(hoist,), value=ConverterSettings(format="JSON"))
    another = restored(config, outgoing=by_json, to_offset=1, restore_id="r2", to_topic=f"{target_of(config)}-2")
    assert values(config.kafka, another.to_topic) == [b'{"f":"MA=="}']
