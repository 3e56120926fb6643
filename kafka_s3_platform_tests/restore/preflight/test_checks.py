"""What is said of the cluster around the target, without one.

What a topic's limits of time do to objects of others, by their connector file and what a listing tells.
"""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.connect.restore.foreign_source import check_times
from kafka_s3_platform.connect.restore.source.foreign_plan import make_foreign_plan, make_foreign_targets
from kafka_s3_platform.connect.restore.source.foreign_stream import ForeignStreamTask, WantedRecords
from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    ErrorSettings,
    KafkaSettings,
    RecordSettings,
    RegistrySettings,
    SourceSettings,
)
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.kafka.admin import ClusterDescription, TopicDescription
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.restore.archive_source import check_archive
from kafka_s3_platform.core.restore.preflight.checks import OTHER_CLUSTER_SECONDS, Target, inspect_target
from kafka_s3_platform.core.restore.preflight.goal import Goal
from kafka_s3_platform.core.restore.preflight.target import (
    FOREVER_MS,
    PreflightFinding,
    TargetConfigs,
    check_configs,
    make_topic_configs,
)
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, make_archive_target
from kafka_s3_platform.core.restore.source.base import TargetPlan, TargetStart
from kafka_s3_platform_tests.restore.plans import CONFIG, plan, request
from kafka_s3_platform_tests.sources.memory import MemoryStore
from kafka_s3_platform_tests.sources.sink_files import JSON, Keys, aiven, config_of, confluent
from kafka_s3_platform_tests.support import InProcessRunner

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
CLUSTER = ClusterDescription("cluster-1", 2, None)


def target(**changes: Any) -> Target:
    description = TopicDescription("u", "id-of-u", (0,), {}, **changes)
    return Target(description, TargetConfigs("u", {}, NOW), {}, CLUSTER)


def without_objects(**changes: Any) -> ArchivePlan:
    return replace(plan(), objects=(), **changes)


def told(asked: RestoreRequest, given: ArchivePlan, of: Target | None = None) -> list[tuple[bool, str]]:
    there = of or target()
    goes = make_archive_target(asked, given)
    found = [
        *inspect_target(goes, there, goes.topics),
        *check_archive(Goal(goes, there), given, [], InProcessRunner()),
    ]
    return [(f.refuses, f.text) for f in found if "holds no record in the window" not in f.text]


def named(name: str, servers: str = "127.0.0.1:1", **changes: Any) -> ConnectorConfig:
    kafka = KafkaSettings(bootstrap_servers=servers)
    return CONFIG.model_copy(update={"name": name, "kafka": kafka, "topics": ("x",)} | changes)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (named("by-name", topics=("u",)), "u is also archived by connector by-name"),
        (named("by-regex", topics=(), topics_regex="[tu]"), "u is also archived by connector by-regex"),
        (named("by-list", "other:9,127.0.0.1:1", topics=("u",)), "u is also archived by connector by-list"),
        (named("of-another-topic"), None),
        (named("of-another-regex", topics_regex="u.+"), None),
        (
            named(
                "of-its-dead-letters",
                topics_regex=".*",
                records=RecordSettings(errors=ErrorSettings(dead_letter_topic="u")),
            ),
            None,
        ),
    ],
)
def test_a_connector_that_archives_the_target_is_named(other: ConnectorConfig, said: str | None) -> None:
    found = told(request(connectors=(other,)), without_objects())
    assert [text.split(":")[0] for _, text in found] == ([said] if said else [])


def test_a_sink_that_is_restored_by_its_own_file_as_a_sources_still_archives() -> None:
    sink = CONFIG.model_copy(update={"topics": ("t", "u")})
    reader = sink.model_copy(update={"source": SourceSettings()})
    asked = replace(request(connectors=(sink,)), config=reader)
    assert any("u is also archived by connector" in text for _, text in told(asked, without_objects()))


def test_a_connector_of_a_cluster_that_does_not_answer_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kafka_s3_platform.core.restore.preflight.checks.OTHER_CLUSTER_SECONDS", min(OTHER_CLUSTER_SECONDS, 0.5)
    )
    other = named("far", "127.0.0.1:2", topics=("u",))
    [(refuses, text)] = told(request(connectors=(other,)), without_objects())
    assert (refuses, "connector far archives a topic named u of a cluster that does not answer" in text) == (
        False,
        True,
    )


def test_the_source_topic_is_refused_unless_it_is_meant() -> None:
    same = target()
    source = replace(plan().source, topic_id="id-of-u")
    assert [r for r, _ in told(request(), without_objects(source=source), same)] == [True]
    assert [r for r, _ in told(request(allow_source_topic=True), without_objects(source=source), same)] == [False]


def test_missing_rights_on_the_target_are_a_refusal() -> None:
    found = told(request(), without_objects(), target(operations=frozenset({"READ", "DESCRIBE"})))
    assert [r for r, _ in found] == [True]
    assert "lack WRITE on u" in found[0][1]


def test_an_absent_target_is_refused_or_checked_against_the_brokers() -> None:
    absent = replace(target(), description=None)
    [(refuses, text)] = told(request(), without_objects(), absent)
    assert (refuses, "Create it with 1 kafka partition," in text) == (True, True)
    assert told(request(create_topic=True), without_objects(), absent) == []
    [(refuses, text)] = told(request(create_topic=True, replication_factor=3), without_objects(), absent)
    assert (refuses, "its cluster has 2 brokers" in text) == (True, True)


def test_what_a_restore_has_sent_itself_is_no_finding_when_it_goes_on() -> None:
    log = Frontier(
        0, log_start_offset=2, last_stable_offset=100, high_watermark=100, leader_epoch=None, observed_at=NOW
    )
    found = replace(target(), frontiers={0: log})
    [(_, text)] = told(request(), without_objects(), found)
    assert "is not empty: up to 98 records" in text
    [(_, text)] = told(request(), without_objects(starts={"u": TargetStart("id-of-u", ((0, 7),))}), found)
    assert "is not empty: up to 5 records" in text
    assert told(request(), without_objects(starts={"u": TargetStart("id-of-u", ((0, 2),))}), found) == []


REGISTRY = RegistrySettings(url="http://127.0.0.1:1")


def test_schema_ids_are_mapped_where_schemas_were_archived_for_a_registry() -> None:
    mapped = Outgoing(map_schema_ids=True, target_registry=REGISTRY)
    [(refuses, text)] = told(request(outgoing=mapped), without_objects())
    assert (refuses, "the file of connector c names no registry" in text) == (True, True)
    avro = RecordSettings(value=ConverterSettings(format="AVRO", registry=REGISTRY))
    own = CONFIG.model_copy(update={"records": avro})
    assert told(replace(request(outgoing=mapped), config=own), without_objects()) == []
    [(refuses, text)] = told(replace(request(outgoing=Outgoing(map_schema_ids=True)), config=own), without_objects())
    assert (refuses, "set schema.registry.url" in text) == (True, True)


def test_where_keys_decide_kafka_partitions_only_exactly_once_can_be_resumed() -> None:
    hashed = request(outgoing=Outgoing(partitioning="murmur2"))
    assert told(hashed, without_objects()) == []
    [(refuses, text)] = told(replace(hashed, delivery="at_least_once"), without_objects())
    assert (refuses, "delivery=at_least_once needs records that keep their kafka partition numbers" in text) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"records": RecordFilter(sql="no such thing")}, "--sql"),
        ({"records": RecordFilter(key_regex="(")}, "--key-regex"),
        ({"outgoing": Outgoing(partitioning="nearby")}, "--partitioning"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_looked_at(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        told(request(**changes), without_objects())


WEEK = {"retention.ms": "604800000"}
APPEND = {"message.timestamp.type": "LogAppendTime"}
BEFORE = {"message.timestamp.before.max.ms": "86400000"}
AFTER = {"message.timestamp.after.max.ms": "3600000"}

FIELD = {**confluent("json", JSON, JSON), "archive.source.timestamp.field": "at"}
ENVELOPE = {
    **FIELD,
    "format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat",
    "archive.source.timestamp.field": "",
    "partitioner.class": "DefaultPartitioner",
}
LENSES = {
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
    "connect.s3.kcql": "INSERT INTO copy SELECT * FROM bucket:b STOREAS JSON PROPERTIES('store.envelope'=true)",
    "key.converter": JSON,
    "value.converter": JSON,
}
HOURLY = {"partitioner.class": "HourlyPartitioner", "locale": "en", "timezone": "UTC"}
IN_AN_HOUR = "topics/t/year=2026/month=05/day=31/hour=22/t+0+0000000000.json"
TELLING: dict[str, tuple[Keys, str]] = {
    "a field": (FIELD, "topics/t/partition=0/t+0+0000000000.json"),
    "an envelope": (ENVELOPE, "topics/t/partition=0/t+0+0000000000.json"),
    "Aiven's envelope": (aiven("jsonl", JSON, JSON), "topics/t-0-0"),
    "Lenses' envelope without times": (LENSES, "b/t/0/2_-1_-1.json"),
    "a folder of the wall clock": (FIELD | HOURLY, IN_AN_HOUR),
    "an envelope in a folder of the wall clock": (
        ENVELOPE | HOURLY | {"timestamp.extractor": "Wallclock"},
        IN_AN_HOUR,
    ),
}


def planned(folder: Path, keys: Keys, name: str, **asked: Any) -> TargetPlan:
    config = config_of(folder, {name: text for name, text in keys.items() if text})
    request = RestoreRequest(config, **{"topic": "", "to_topic": "u", "restore_id": "r", "run_id": "x", **asked})
    plan = make_foreign_plan(request, (), None, MemoryStore({name: b"{}\n"}))
    [target] = make_foreign_targets(request, plan)
    return target


def found(configs: dict[str, str], plan: TargetPlan) -> list[PreflightFinding]:
    return list(check_configs(plan, TargetConfigs("u", configs, NOW), {}))


@pytest.mark.parametrize("how", TELLING)
@pytest.mark.parametrize("configs", [WEEK, BEFORE, APPEND], ids=lambda c: next(iter(c)))
def test_records_whose_times_nobody_knows_before_they_are_read_may_be_too_old(
    tmp_path: Path, how: str, configs: dict[str, str]
) -> None:
    [refusal] = found(configs, planned(tmp_path, *TELLING[how]))
    assert refusal.refuses
    assert next(iter(configs)) in refusal.text
    assert configs is APPEND or ("may have any age" in refusal.text and "--from (what.from_time)" in refusal.text)


@pytest.mark.parametrize("how", TELLING)
def test_records_chosen_by_time_are_no_older_than_that(tmp_path: Path, how: str) -> None:
    keys, name = TELLING[how]
    asked = {"from_time": NOW - timedelta(hours=12)}
    assert found(WEEK | BEFORE, planned(tmp_path, keys, name, **asked)) == []


@pytest.mark.parametrize(
    ("keys", "name"),
    [(ENVELOPE | HOURLY, IN_AN_HOUR), (LENSES, "b/t/0/2_1780264800000_1780264900000.json")],
    ids=["an envelope's folder of records' times", "Lenses' name"],
)
def test_times_that_names_tell_of_the_records_themselves_are_believed(tmp_path: Path, keys: Keys, name: str) -> None:
    assert found(WEEK | BEFORE | AFTER, planned(tmp_path, keys, name)) == []


def test_values_alone_get_the_time_of_the_restore(tmp_path: Path) -> None:
    name = "topics/t/partition=0/t+0+0000000000.json"
    assert found(WEEK | BEFORE | AFTER, planned(tmp_path, confluent("json", JSON, JSON), name)) == []


def test_a_limit_of_the_future_is_told_since_brokers_reject_what_is_above_it(tmp_path: Path) -> None:
    [remark] = found(AFTER, planned(tmp_path, *TELLING["a field"]))
    assert not remark.refuses
    assert "--exact (how.exact)" in remark.text


@pytest.mark.parametrize("how", TELLING)
def test_a_new_topic_keeps_records_of_any_time(tmp_path: Path, how: str) -> None:
    made, _ = make_topic_configs(planned(tmp_path, *TELLING[how]), NOW, {})
    limits = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    assert {name: made[name] for name in ("retention.ms", *limits)} == {
        "retention.ms": "-1",
        **dict.fromkeys(limits, str(FOREVER_MS)),
    }


SEVEN, EIGHT = (datetime(2026, 5, 31, hour, tzinfo=timezone.utc) for hour in (7, 8))
BY_FIELD = {"timestamp.extractor": "RecordField", "timestamp.field": "at"}
ALONE = confluent("json", JSON, JSON)
LINE = (
    b'{"key":null,"value":null,"headers":null,"topic":"t","partition":0,"offset":%d,"timestamp":%d,"timestampType":0}\n'
)


def sent_of_seven(folder: Path, keys: Keys, objects: dict[str, bytes]) -> tuple[list[int], list[str]]:
    """The offsets that a restore of one hour sends, and what it refuses or doubts."""
    config = config_of(folder, {name: text for name, text in keys.items() if text})
    request = RestoreRequest(config, topic="", to_topic="u", restore_id="r", run_id="x", windows=((SEVEN, EIGHT),))
    store = MemoryStore(objects)
    plan = make_foreign_plan(request, (), None, store)
    tasks = [ForeignStreamTask(config, group, plan.times) for group in plan.groups]
    offsets = [o for task in tasks for batch in WantedRecords(task, store) for o in batch.offsets.tolist()]
    return offsets, [f.text for f in check_times(config, plan.objects, plan.times)]


@pytest.mark.parametrize("extractor", [{}, BY_FIELD, {"timestamp.extractor": "Wallclock"}])
def test_an_hour_of_records_that_tell_their_times_is_theirs_whatever_folders_tell(
    tmp_path: Path, extractor: dict[str, str]
) -> None:
    """Of a folder whose time is another, and of a record that never had one."""
    folder = IN_AN_HOUR if extractor else IN_AN_HOUR.replace("=22", "=07")
    lines = LINE % (0, int(SEVEN.timestamp()) * 1000) + LINE % (1, int(EIGHT.timestamp()) * 1000) + LINE % (2, -1)
    assert sent_of_seven(tmp_path, ENVELOPE | HOURLY | extractor, {folder: lines}) == ([0], [])


def test_an_hour_of_values_alone_is_of_their_folder_and_no_record_is_outside(tmp_path: Path) -> None:
    objects = {
        IN_AN_HOUR.replace("=22", "=07"): b"{}\n",
        IN_AN_HOUR.replace("0.json", "1.json"): b"{}\n",
        "topics/t/__out_of_range__/t+0+0000000002.json": b"{}\n",
        "topics/t/odd/t+0+0000000003.json": b"{}\n",
    }
    keys = ALONE | HOURLY | {"archive.out.of.range.folder": "odd"}
    assert sent_of_seven(tmp_path, keys, objects) == ([0], [])


def test_an_hour_of_objects_without_a_time_is_refused_part_of_a_folder_in_doubt(
    tmp_path: Path,
) -> None:
    _, [refusal] = sent_of_seven(tmp_path, ALONE, {"topics/t/partition=0/t+0+0000000000.json": b"{}\n"})
    assert "would restore all of these records. Select by offsets" in refusal
    daily = {"partitioner.class": "DailyPartitioner", "locale": "en", "timezone": "UTC"}
    a_day = "topics/t/year=2026/month=05/day=31/t+0+0000000000.json"
    _, [doubt] = sent_of_seven(tmp_path, ALONE | daily, {a_day: b"{}\n"})
    assert "only partly in the window of time, and are taken whole" in doubt
