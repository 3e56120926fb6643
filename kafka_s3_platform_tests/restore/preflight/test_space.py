"""Room on the target's brokers: refused only where it is certain, else told."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.disk_space import DiskSpace
from kafka_s3_platform.restore.preflight.begin import check_created, create_target
from kafka_s3_platform.restore.preflight.checks import check_room, look_at_target
from kafka_s3_platform.restore.preflight.space import Room, check_space, describe_space
from kafka_s3_platform.restore.preflight.target import make_remark
from kafka_s3_platform.restore.request import Outgoing, RestoreRequest
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.restore.source.base import TargetStart
from kafka_s3_platform.restore.source.selection import select_records
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.restore.preflight.test_target import going, plan
from kafka_s3_platform_tests.restore.source.test_selection import CONFIG, planned, request

PLAIN = {"compression.type": "producer"}
UNKNOWN = DiskSpace(None, "it does not say")
BY_KEY: dict[str, Any] = {"outgoing": {"partitioning": "murmur2"}}


def fifty_each(count: int = 2, **changes: Any) -> ArchivePlan:
    """50 bytes in each of the first kafka partitions."""
    given: dict[str, Any] = {
        "objects": tuple(planned(p, (0, 5), (0, 9)) for p in range(count)),
        "selection": select_records(request(), [0, 1]),
    }
    return replace(plan(), **given | changes)


def room(usable: Mapping[int, int | None], replicas: Mapping[int, tuple[int, ...]], **changes: Any) -> Room:
    spaces = {b: UNKNOWN if size is None else DiskSpace(size) for b, size in usable.items()}
    return replace(Room(spaces, replicas, None, PLAIN), **changes)


def said(of: Room, given: ArchivePlan | None = None, asked: RestoreRequest | None = None) -> tuple[bool, str]:
    [found] = check_space(asked or request(), going(given or fifty_each()), of)
    return found.refuses, found.text


TWO_ON_BROKER_1 = {0: (1, 2), 1: (1, 3)}


def test_each_broker_has_to_hold_the_replicas_that_it_is_given() -> None:
    assert said(room({1: 100, 2: 50, 3: 50}, TWO_ON_BROKER_1))[0] is False
    refuses, text = said(room({1: 99, 2: 49, 3: 50}, TWO_ON_BROKER_1))
    assert refuses
    assert "broker 1 gets 100 bytes and has 99 usable; broker 2 gets 50 bytes and has 49 usable" in text


def test_needed_and_usable_bytes_are_told_for_each_broker_the_tightest_first() -> None:
    refuses, text = said(room({1: 1000, 2: 60, 3: None, 9: 1}, TWO_ON_BROKER_1))
    assert not refuses
    assert "needs up to 100 bytes of keys, values and headers for each replica, before compression" in text
    assert text.endswith(
        "Usable are an unknown number on broker 3 for up to 50 (it does not say); 60 bytes on broker 2 for up to 50; "
        "1,000 bytes on broker 1 for up to 100"
    )


def test_of_many_brokers_the_tightest_are_told() -> None:
    _, text = said(room({b: 1000 + b for b in range(12)}, {0: tuple(range(12))}))
    assert "bytes on broker 9 for up to 50" in text
    assert text.endswith("; more on 2 other brokers")


@pytest.mark.parametrize("usable", [{1: None, 2: None, 3: None}, {}])
def test_space_that_no_broker_tells_is_said_to_be_unknown(usable: dict[int, int | None]) -> None:
    refuses, text = said(room(usable, TWO_ON_BROKER_1))
    assert not refuses
    assert text.startswith("free space of the target's brokers is not known (broker 1: it ")


def test_a_broker_that_is_known_to_be_too_small_is_enough_to_refuse_for() -> None:
    assert said(room({1: None, 2: 49, 3: None}, TWO_ON_BROKER_1))[0]


def test_where_keys_decide_only_all_brokers_together_can_be_too_small() -> None:
    by_key = fifty_each(terms={"to_topic": "u", **BY_KEY})
    assert said(room({1: 150, 2: 25, 3: 25}, TWO_ON_BROKER_1), by_key)[0] is False
    refuses, text = said(room({1: 149, 2: 25, 3: 25}, TWO_ON_BROKER_1), by_key)
    assert (refuses, "200 bytes in 2 replicas come to brokers that have 199 usable together" in text) == (True, True)
    assert said(room({1: 1, 2: None, 3: 1}, TWO_ON_BROKER_1), by_key)[0] is False


@pytest.mark.parametrize(("factor", "usable", "refuses"), [(None, 100, False), (None, 99, True), (2, 199, True)])
def test_a_new_topic_may_lie_on_any_brokers(factor: int | None, usable: int, refuses: bool) -> None:
    new = room({1: 50, 2: usable - 50}, {}, replication_factor=factor)
    assert said(new)[0] is refuses


def producing(**properties: str) -> RestoreRequest:
    producer = {name.replace("_", "."): SecretStr(value) for name, value in properties.items()}
    return request(target=KafkaSettings(bootstrap_servers="127.0.0.1:1", producer=producer))


@pytest.mark.parametrize(
    ("asked", "given", "configs"),
    [
        (producing(compression_type="zstd"), fifty_each(), PLAIN),
        (producing(compression_codec="lz4"), fifty_each(), PLAIN),
        (request(), fifty_each(), {"compression.type": "gzip"}),
        (request(), fifty_each(), {}),
        (request(), fifty_each(), PLAIN | {"remote.storage.enable": "true"}),
        (request(behavior_on_error="ignore"), fifty_each(), PLAIN),
        (request(), fifty_each(target=TargetStart("id", ((0, 0),))), PLAIN),
        (request(), fifty_each(terms={"to_topic": "u", "records": {"latest_per_key": True}}), PLAIN),
        (request(), fifty_each(selection=select_records(request(from_offset=3), [0, 1])), PLAIN),
    ],
    ids=[
        "producer compresses",
        "producer compresses, librdkafka's word",
        "topic compresses",
        "compression by a default that is not known",
        "tiered",
        "bad objects are left out",
        "begun before",
        "filtered",
        "part of an object",
    ],
)
def test_nothing_is_refused_that_may_turn_out_smaller(
    asked: RestoreRequest, given: ArchivePlan, configs: dict[str, str]
) -> None:
    assert said(room({1: 1, 2: 1, 3: 1}, TWO_ON_BROKER_1), fifty_each())[0]
    assert said(room({1: 1, 2: 1, 3: 1}, TWO_ON_BROKER_1, configs=configs), given, asked)[0] is False


def test_a_topic_that_decompresses_is_as_large_as_its_records() -> None:
    configs = {"compression.type": "uncompressed"}
    full = room({1: 1, 2: 1, 3: 1}, TWO_ON_BROKER_1, configs=configs)
    assert said(full, asked=producing(compression_type="zstd"))[0]


def test_values_that_are_written_anew_have_another_size() -> None:
    anew = request(outgoing=Outgoing(value=CONFIG.records.value))
    assert said(room({1: 1, 2: 1, 3: 1}, TWO_ON_BROKER_1), asked=anew)[0] is False


def test_objects_of_others_tell_their_own_bytes_only() -> None:
    assert describe_space(50, {1: DiskSpace(7), 2: DiskSpace(8), 3: DiskSpace(9)}) == make_remark(
        "objects of 50 bytes are restored; what their records take is not known. Usable are 7 bytes on broker 1; "
        "8 bytes on broker 2; 9 bytes on broker 3"
    )


def test_nothing_to_restore_needs_no_room() -> None:
    assert list(check_space(request(), going(fifty_each(0)), room({1: 0}, {0: (1,)}))) == []


def test_a_restore_larger_than_the_disk_is_refused_and_a_small_one_is_told_what_there_is(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name, 2)
    asked = request(target=kafka_settings, to_topic=topic_name)
    huge = fifty_each(objects=(replace(planned(1, (0, 5), (0, 9)), record_bytes=2**60),))
    with ClusterAdmin(kafka_settings) as admin:
        there = look_at_target(asked, admin)
        absent = look_at_target(request(target=kafka_settings, to_topic="no-such-topic"), admin)

    [small] = check_room(asked, going(fifty_each()), there)
    [large] = check_room(asked, going(huge), there)
    [new] = check_room(asked, going(huge), absent)

    assert (small.refuses, large.refuses, new.refuses) == (False, True, False)
    assert re.search(r"Usable are [\d,]{9,} bytes on broker 1 for up to 100$", small.text)
    assert re.search(r"broker 1 gets 1,152,921,504,606,846,976 bytes and has [\d,]{9,} usable\.", large.text)
    assert re.search(
        r"needs up to 1,152,921,504,606,846,976 bytes .* Usable are [\d,]{9,} bytes on broker 1$", new.text
    )
    new_one = replace(asked, to_topic=f"{topic_name}-new")
    with ClusterAdmin(kafka_settings) as admin:
        created = create_target(new_one, going(huge), 2, absent, admin)
        with pytest.raises(PreflightError, match=r"-new does not fit: broker 1 gets 1,152,"):
            check_created(new_one, going(huge), created)
