from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConverterSettings, KafkaSettings, TransformSettings
from kafka_s3_platform.core.model.segment import TopicAcl
from kafka_s3_platform.core.restore.preflight.keeping import CONTROL_BATCH, bound_largest_log
from kafka_s3_platform.core.restore.preflight.target import (
    FOREVER_MS,
    TargetConfigs,
    check_acls,
    check_configs,
    check_kafka_partition_count,
    check_largest_record,
    check_replication,
    check_rights,
    choose_codec,
    choose_restorable_acls,
    choose_topic_size,
    make_topic_configs,
)
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.core.restore.source.base import ObjectFacts, TargetPlan
from kafka_s3_platform.core.restore.source.selection import round_up_to_ms, select_records
from kafka_s3_platform_tests.kafka.wire import WireRecord, record_batch
from kafka_s3_platform_tests.restore.plans import going, plan, planned, request
from kafka_s3_platform_tests.support import NOON

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
AGE_MS = round_up_to_ms(NOW) - round_up_to_ms(NOON)
DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(FOREVER_MS),
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
}


HOUR_MS = 3_600_000
"""How long a restore of a few records is given."""

BOUND = 3 * 50 + 5 * (128 + 78)
"""What five records of 10 bytes may take of the log."""


def said(
    configs: dict[str, str], of: ArchivePlan, arrived: dict[int, int] | None = None, **asked: Any
) -> list[tuple[bool, str]]:
    return said_of(configs, going(of, **asked), arrived)


def said_of(configs: dict[str, str], of: TargetPlan, arrived: dict[int, int] | None = None) -> list[tuple[bool, str]]:
    found = check_configs(of, TargetConfigs("u", DEFAULTS | configs, NOW), arrived or {})
    return [(f.refuses, f.text) for f in found]


def test_a_target_that_keeps_everything_gives_no_finding() -> None:
    assert said({}, plan()) == []


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"retention.ms": str(AGE_MS + HOUR_MS - 1)},
        {"retention.bytes": str(BOUND - 1)},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": str(AGE_MS + HOUR_MS - 1)},
        {"message.timestamp.difference.max.ms": str(AGE_MS + HOUR_MS - 1)},
    ],
)
def test_what_would_lose_or_change_records_is_refused_by_its_config(configs: dict[str, str]) -> None:
    ((refuses, text),) = said(configs, plan())

    assert refuses
    assert next(iter(configs)) in text


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": str(AGE_MS + HOUR_MS + 1000)},
        {"retention.bytes": str(BOUND)},
        {"message.timestamp.before.max.ms": str(AGE_MS + HOUR_MS + 1000)},
        {"cleanup.policy": "", "retention.ms": "1"},
    ],
)
def test_a_limit_that_holds_the_records_is_fine(configs: dict[str, str]) -> None:
    assert said(configs, plan()) == []


def test_a_record_that_expires_while_the_restore_goes_on_is_refused() -> None:
    """A second for each record at the rate that was asked for, and three times that to be sure."""
    kept = {"retention.ms": str(AGE_MS + HOUR_MS + 14_000)}
    assert said(kept, plan()) == []
    [(refuses, text)] = said(kept, plan(), records_per_second=1.0)
    assert (refuses, "before the end of the restore, for which 1:00:15 is allowed" in text) == (True, True)
    old = round_up_to_ms(NOON)
    slow = going(plan(), records_per_second=1.0)
    unknown = replace(slow, objects=(ObjectFacts("k", 0, 100, oldest=old, newest=old),))
    limit = {"retention.ms": str(AGE_MS + HOUR_MS + 290_000)}
    assert [r for r, _ in said_of(limit, unknown)] == [True]


@pytest.mark.parametrize(
    ("most", "asked", "terms"),
    [
        (BOUND - 5 * 78, {"delivery": "at_least_once"}, {}),
        (BOUND + 5 * 160, {"outgoing": Outgoing(provenance_headers=True)}, {}),
        (2 * BOUND, {}, {"outgoing": {"partitioning": "murmur2"}}),
        (None, {"outgoing": Outgoing(value=ConverterSettings(format="JSON"))}, {}),
        (None, {"outgoing": Outgoing(transforms=(TransformSettings(alias="m", type="my.Mapper"),))}, {}),
        (BOUND, {"outgoing": Outgoing(transforms=(TransformSettings(alias="f", type="Filter"),))}, {}),
    ],
)
def test_what_a_log_may_take_is_held_against_its_limit(
    most: int | None, asked: dict[str, Any], terms: dict[str, Any]
) -> None:
    both = tuple(replace(plan().objects[0], kafka_partition=p) for p in (0, 1))
    two = replace(plan(), objects=both, terms={"to_topic": "u", **terms}, selection=select_records(request(), [0, 1]))
    if most is None:
        [(refuses, text)] = said({"retention.bytes": str(2**60)}, two, **asked)
        assert (refuses, "are unknown" in text) == (True, True)
        return
    assert said({"retention.bytes": str(most)}, two, **asked) == []
    [(refuses, text)] = said({"retention.bytes": str(most - 1)}, two, **asked)
    assert (refuses, f"take up to {most:,} bytes" in text) == (True, True)


def test_of_objects_that_tell_no_counts_nobody_knows_what_their_records_take() -> None:
    unknown = replace(going(plan()), objects=(ObjectFacts("k", 0, 100),))
    assert (unknown.record_count, unknown.record_bytes) == (None, None)
    [refusal] = [text for refuses, text in said_of({"retention.bytes": str(2**60)}, unknown) if refuses]
    assert "retention.bytes" in refusal


def test_what_killed_runs_left_in_the_log_counts() -> None:
    limit = {"retention.bytes": str(BOUND + 3 * 236)}
    assert said(limit, plan(), {0: 3}) == []
    [(refuses, text)] = said(limit, plan(), {0: 4})
    assert (refuses, "and what earlier runs have sent or left there" in text) == (True, True)


def test_records_further_ahead_than_the_broker_allows_are_refused() -> None:
    ahead = plan(newest=NOW + timedelta(hours=2))

    ((refuses, text),) = said({}, ahead)

    assert refuses
    assert "message.timestamp.after.max.ms=3600000" in text


def test_a_smaller_message_limit_is_told_where_an_object_may_hold_such_a_record() -> None:
    assert [r for r, _ in said({"max.message.bytes": "100"}, plan())] == [False]
    assert said({"max.message.bytes": "1000"}, plan()) == []


def test_a_limit_below_an_objects_mean_is_refused_unless_a_filter_may_help() -> None:
    ((refuses, text),) = said({"max.message.bytes": "9"}, plan())
    assert (refuses, "records of 10 bytes and more" in text) == (True, True)

    filtered = replace(plan(), terms={"to_topic": "u", "records": {"keys": ["a"]}})
    assert [r for r, _ in said({"max.message.bytes": "9"}, filtered)] == [False]


def test_the_largest_record_is_compared_once_it_is_known() -> None:
    target = TargetConfigs("u", DEFAULTS | {"max.message.bytes": "100"}, NOW)
    assert list(check_largest_record(going(plan()), target, 100)) == []
    (found,) = check_largest_record(going(plan()), target, 101)
    assert (found.refuses, "a record has 101 bytes" in found.text) == (True, True)


@pytest.mark.parametrize(
    ("worker", "refuses"), [({}, False), ({"compression.type": "lz4"}, False), ({"compression.type": "none"}, True)]
)
def test_records_that_came_compressed_to_a_topic_of_the_same_limit_are_not_refused(
    worker: dict[str, str], refuses: bool
) -> None:
    """Brokers compare the compressed bytes with the limit."""
    kafka = KafkaSettings(bootstrap_servers="b:1", producer={k: SecretStr(v) for k, v in worker.items()})
    small = {"max.message.bytes": "9"}
    [(is_refused, text)] = said(small, plan(small), target=kafka)
    assert is_refused == refuses
    assert "The archived topic's limit was 9, so these records were compressed there" in text
    codec = choose_codec(going(plan(small), target=kafka), 9)
    assert codec == worker.get("compression.type", "zstd")
    assert choose_codec(going(plan(small)), 10) == "none"
    target = TargetConfigs("u", DEFAULTS | small, NOW)
    [found] = check_largest_record(going(plan(small), target=kafka), target, 10)
    assert found.refuses == refuses


def test_one_large_record_among_small_ones_is_not_said_to_be_sent_compressed() -> None:
    """What is known of its object before it is read asks for no compression."""
    source = going(plan({"max.message.bytes": "100"}))
    assert choose_codec(source, 100) == "none"
    target = TargetConfigs("u", DEFAULTS | {"max.message.bytes": "100"}, NOW)
    [found] = check_largest_record(source, target, 101)
    assert found.refuses
    assert "Set producer.compression.type=zstd in the target's worker file" in found.text


def test_a_compacted_target_takes_a_snapshot_of_the_latest_values() -> None:
    snapshot = replace(plan(), terms={"to_topic": "u", "records": {"latest_per_key": True}})
    ((refuses, text),) = said({"cleanup.policy": "compact"}, snapshot)
    assert (refuses, "each key is restored once" in text) == (False, True)

    hashed = replace(snapshot, terms=dict(snapshot.terms) | {"outgoing": {"partitioning": "murmur2"}})
    assert [r for r, _ in said({"cleanup.policy": "compact"}, hashed)] == [True]


def parts(*kafka_partitions: int) -> ArchivePlan:
    given = plan()
    source = replace(given.source, kafka_partitions=(0, 1, 2))
    objects = tuple(planned(p, (0, 5), (round_up_to_ms(NOON), round_up_to_ms(NOON))) for p in kafka_partitions)
    return replace(given, source=source, objects=objects)


@pytest.mark.parametrize(
    ("size", "restored", "refused"), [(3, (0, 2), []), (2, (0, 2), [True]), (1, (0,), []), (5, (0, 2), [False])]
)
def test_records_that_keep_their_number_need_a_kafka_partition_of_it(
    size: int, restored: tuple[int, ...], refused: list[bool]
) -> None:
    found = list(check_kafka_partition_count(going(parts(*restored)), size, is_new=False))
    assert [f.refuses for f in found] == refused
    hashed = going(parts(*restored), outgoing=Outgoing(partitioning="murmur2"))
    assert list(check_kafka_partition_count(hashed, size, is_new=False)) == []


def test_a_new_topic_has_as_many_kafka_partitions_as_the_source_or_as_many_as_asked() -> None:
    assert choose_topic_size(going(parts(0))) == 3
    assert choose_topic_size(going(parts(0), target_kafka_partitions=7)) == 7


def test_a_replication_factor_above_the_number_of_brokers_is_refused() -> None:
    assert [f.refuses for f in check_replication(request(replication_factor=3), 2)] == [True]
    assert list(check_replication(request(replication_factor=3), 3)) == []
    assert list(check_replication(request(), 1)) == []


ALL = frozenset({"WRITE", "READ", "DESCRIBE"})


@pytest.mark.parametrize(
    ("changes", "topic", "cluster", "found"),
    [
        ({}, ALL, frozenset(), []),
        ({}, frozenset({"ALL"}), None, []),
        ({}, None, None, []),
        ({}, ALL - {"WRITE"}, None, [(True, "lack WRITE on u")]),
        ({}, frozenset(), None, [(True, "lack WRITE and READ and DESCRIBE on u")]),
        ({"create_topic": True}, None, frozenset(), [(False, "lack CREATE on the cluster")]),
        ({"create_topic": True}, None, frozenset({"CREATE"}), []),
        ({"restore_acls": True}, ALL, frozenset({"DESCRIBE"}), [(True, "lack ALTER on the cluster")]),
    ],
)
def test_missing_rights_are_said(
    changes: dict[str, bool],
    topic: frozenset[str] | None,
    cluster: frozenset[str] | None,
    found: list[tuple[bool, str]],
) -> None:
    told = list(check_rights(request(**changes), topic, cluster))
    assert [f.refuses for f in told] == [r for r, _ in found]
    assert all(part in f.text for f, (_, part) in zip(told, found, strict=True))


ALLOW = TopicAcl("User:alice", "*", "READ", "ALLOW")
DENY = TopicAcl("User:mallory", "*", "READ", "DENY")
DENY_ALL = TopicAcl("User:*", "*", "ALL", "DENY")


def with_acls(*acls: TopicAcl) -> ArchivePlan:
    return replace(plan(), source=replace(plan().source, acls=acls))


def test_acls_are_said_before_they_are_restored_and_only_when_asked() -> None:
    given = with_acls(ALLOW, DENY)
    asked = going(given, restore_acls=True)

    assert list(check_acls(going(given), ())) == []
    told = [f.text for f in check_acls(asked, ())]
    assert "u gets 2 ACLs: ALLOW READ to User:alice from *; DENY READ to User:mallory from *" in told[0]
    assert "from then on only those named may use it" in told[1]
    assert list(check_acls(asked, (ALLOW, DENY))) == []


def test_an_acl_that_locks_everyone_out_is_never_restored() -> None:
    given = with_acls(ALLOW, DENY_ALL)
    assert choose_restorable_acls(given.source.acls or ()) == (ALLOW,)
    assert any("would lock out everyone" in f.text for f in check_acls(going(given, restore_acls=True), (ALLOW,)))


def test_acls_that_are_unknown_on_either_side_are_refused() -> None:
    assert [f.refuses for f in check_acls(going(plan(), restore_acls=True), ())] == [True]
    assert [f.refuses for f in check_acls(going(with_acls(ALLOW), restore_acls=True), None)] == [True]


def test_acls_stay_in_the_plan() -> None:
    given = with_acls(ALLOW, DENY)
    assert ArchivePlan.from_json(given.to_json(), "k").source.acls == (ALLOW, DENY)


def test_a_new_topic_takes_the_archived_configs_and_keeps_what_is_restored() -> None:
    archived = {
        "cleanup.policy": "compact",
        "retention.ms": str(AGE_MS - 1),
        "segment.bytes": "1048576",
        "min.insync.replicas": "2",
        "message.timestamp.type": "LogAppendTime",
    }

    configs, told = make_topic_configs(going(plan(archived)), NOW, {})

    assert configs == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "1048576",
        "message.timestamp.type": "CreateTime",
    }
    assert len(told) == 3


def test_an_archived_retention_that_still_holds_the_records_is_kept() -> None:
    enough = {"retention.ms": str(AGE_MS + HOUR_MS + 1000), "retention.bytes": str(BOUND)}

    configs, told = make_topic_configs(going(plan(enough)), NOW, {})

    assert ({name: configs[name] for name in enough}, told) == (enough, [])


def test_an_archived_retention_that_might_not_hold_the_records_is_lifted() -> None:
    little = {"retention.ms": str(AGE_MS + HOUR_MS - 1), "retention.bytes": str(BOUND - 1)}

    configs, told = make_topic_configs(going(plan(little)), NOW, {})

    assert ({name: configs[name] for name in little}, len(told)) == (dict.fromkeys(little, "-1"), 2)


def test_a_new_topic_accepts_records_that_are_far_ahead() -> None:
    configs, _ = make_topic_configs(going(plan(newest=NOW + timedelta(days=400))), NOW, {})

    assert configs["message.timestamp.after.max.ms"] == str(FOREVER_MS)


def test_the_plan_comes_back_from_its_object_with_the_same_digest() -> None:
    given = plan({"a": "b"})

    assert ArchivePlan.from_json(given.to_json(), "k") == replace(given, terms=dict(given.terms))


@pytest.mark.parametrize("change", [{"operation": "ANY"}, {"operation": "x"}, {"permission": ""}])
def test_archived_acls_that_are_none_of_kafka_s_are_refused(change: dict[str, str]) -> None:
    """Whoever writes to the index says what they are."""
    given = with_acls(ALLOW, TopicAcl(**{**asdict(ALLOW), **change}))
    found = list(check_acls(going(given, restore_acls=True), ()))
    assert next(f.text for f in found if f.refuses).startswith("1 of the archived ACLs of")


def test_an_acl_that_lets_everyone_in_is_told_by_itself() -> None:
    everyone = replace(ALLOW, principal="User:*", operation="ALL")
    found = [f.text for f in check_acls(going(with_acls(ALLOW, everyone), restore_acls=True), (ALLOW,))]
    assert any(text.endswith(f"everyone may use {request().to_topic} as the ACL says: {everyone}") for text in found)


@pytest.mark.parametrize("headers", [(), ((b"h", b"x"),) * 200, ((b"h", None),) * 200, ((b"h" * 70, b"x" * 90),) * 50])
def test_a_log_of_single_records_with_many_headers_is_within_the_bound(
    headers: tuple[tuple[bytes, bytes | None], ...],
) -> None:
    record = WireRecord(0, b"k", b"v" * 100, headers)
    content = 101 + sum(len(name) + len(value or b"") for name, value in headers)
    [item] = plan().objects
    five = replace(plan(), objects=(replace(item, record_bytes=5 * content),))
    log = 5 * (len(record_batch([record])) + CONTROL_BATCH)
    assert log <= (bound_largest_log(going(five), {}) or 0)
