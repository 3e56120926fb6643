"""Names of records that lead out of their folder, are too long, or that a store refuses: those records' failures.

Schemas that a format cannot hold: their records are told and stay behind, and all others are archived.
"""

import json
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, RegistrySettings, StoreSettings
from kafka_s3_platform.core.errors import PermanentError, UnresolvedOffsetsError
from kafka_s3_platform.core.store.errors import RefusedRequestError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.archive.values import F1, avro, framed
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, connector, produce, snapshot, tried

BY_FIELD: dict[str, Any] = {
    "layout": {"partitioner": "Field", "partition_fields": ("n",)},
    "records": {"value": {"format": "JSON"}},
}


ODD = "\u2603"
"""A character that the proxy's store takes in no key."""

PARQUET = {"format": "parquet", "codec": "snappy"}


@pytest.fixture
def topic(lab: Lab) -> str:
    return lab.create_topic()


@pytest.fixture
def behind(lab: Lab, topic: str, proxy: FaultyProxy) -> ConnectorConfig:
    """A connector whose store is behind the proxy, and names its folders by values."""
    store = lab.store.model_copy(update={"endpoint_url": proxy.endpoint})
    return connector(lab.kafka, store, topic, **BY_FIELD)


def valued(kafka: KafkaSettings, topic: str, *values: str) -> None:
    produce(kafka, topic, [Sent(json.dumps({"n": value}).encode(), None, NOON) for value in values])


def tolerant(config: ConnectorConfig) -> ConnectorConfig:
    letters = {"dead_letter_topic": f"{config.topics[0]}-dead", "dead_letter_replication_factor": 1}
    errors = config.records.errors.model_copy(update={"tolerance": "all", **letters})
    return config.model_copy(update={"records": config.records.model_copy(update={"errors": errors})})


def keys(store: StoreSettings) -> list[str]:
    return sorted(item.key for item in ObjectStore(store).list("topics/"))


@pytest.mark.parametrize(
    "value", ["\\..\\", "\\..\\..\\_index\\c", "..\\", "../../_index", "a\\b", "\ufffe", "\u202e", "%2e%2e/"]
)
def test_no_value_leads_out_of_its_folder(lab: Lab, topic: str, value: str) -> None:
    """A store may read a backslash as a slash."""
    valued(lab.kafka, topic, "plain", value)
    config = lab.connector(**BY_FIELD)
    report = tried(config, [NOON])
    assert (report.failure, report.record_count) == (None, 2)
    stored = {s.key for s in snapshot(config).segments}
    assert stored == set(keys(lab.store))
    assert {key.count("/") for key in stored} == {3}
    assert verify_archive(config, topic, deep=True, runner=InProcessRunner()).ok


def test_a_key_that_the_store_refuses_is_the_failure_of_its_record(proxy: FaultyProxy, behind: ConnectorConfig) -> None:
    proxy.refuse("PUT", ODD, 400, "InvalidRequest")
    valued(behind.kafka, behind.topics[0], "a", ODD, "b", ODD + "2", "\u2602")
    report = tried(behind, [NOON])
    assert isinstance(report.failure, UnresolvedOffsetsError)
    assert "400 InvalidRequest" in str(report.failure)
    found = [(u.start_offset, u.end_offset, u.reason) for u in snapshot(behind).state.unresolved]
    assert found == [(1, 2, "TASK_PUT"), (3, 4, "TASK_PUT")]
    assert sum(s.record_count for s in snapshot(behind).segments) == 3
    assert len([1 for method, target in proxy.requests if method == "PUT" and ODD in target]) == 2


def test_where_errors_are_tolerated_it_is_a_dead_letter(proxy: FaultyProxy, behind: ConnectorConfig) -> None:
    proxy.refuse("PUT", ODD, 400, "InvalidRequest")
    valued(behind.kafka, behind.topics[0], "a", ODD, "b")
    report = tried(tolerant(behind), [NOON])
    assert (report.failure, report.record_count, report.hours[0].dead_letter_count) == (None, 2, 1)


def test_a_store_that_refuses_every_key_is_no_failure_of_records(proxy: FaultyProxy, behind: ConnectorConfig) -> None:
    """Else a wrong setting would make dead letters of all records."""
    config = tolerant(behind)
    valued(behind.kafka, behind.topics[0], "a")
    tried(config, [NOON]).raise_failure()
    before = snapshot(config)
    produce(config.kafka, config.topics[0], [Sent(json.dumps({"n": ODD}).encode(), None, NOON + HOUR)])
    proxy.refuse("PUT", "topics/", 400, "InvalidRequest")
    with pytest.raises(PermanentError, match="400 InvalidRequest"):
        tried(config, [NOON + HOUR]).raise_failure()
    assert snapshot(config).segments == before.segments
    assert snapshot(config).state.scans == before.state.scans


def test_a_key_that_is_too_long_is_the_failure_of_its_record(lab: Lab, topic: str) -> None:
    valued(lab.kafka, topic, "a")
    config = lab.connector(layout={"topics_dir": "d/" + "x" * 980})
    report = tried(config, [NOON])
    assert "has more than 1024 bytes" in str(report.failure)
    assert [(u.start_offset, u.end_offset) for u in snapshot(config).state.unresolved] == [(0, 1)]


@pytest.mark.parametrize("name", ["../_index", "..", "a/b", "\\..\\", "x" * 250, "a\n", "\u2603"])
def test_what_no_topic_can_be_named_names_no_folder(lab: Lab, topic: str, name: str) -> None:
    valued(lab.kafka, topic, "plain", name)
    step = {"alias": "t", "type": "ExtractTopic$Value", "options": {"field": "n"}}
    records = {"value": {"format": "JSON"}, "transforms": [step]}
    config = lab.connector(layout={"format": "json"}, records=records)
    report = tried(config, [NOON])
    assert "which no topic can be named" in str(report.failure)
    assert [(u.start_offset, u.end_offset) for u in snapshot(config).state.unresolved] == [(1, 2)]
    assert [s.key.split("/")[1] for s in snapshot(config).segments] == ["plain"]


def test_a_request_that_the_store_refuses_is_not_tried_again(store_settings: StoreSettings) -> None:
    with pytest.raises(RefusedRequestError, match="400 InvalidRequest"):
        ObjectStore(store_settings).put_new("a/\\..\\b", b"")
    assert issubclass(RefusedRequestError, PermanentError)


def branching(depth: int) -> dict[str, Any]:
    """Each record names two others, both of the next level: a short schema, and 2 ** depth columns."""
    names = [{"type": "record", "name": f"{side}{depth}", "fields": [{"name": "f", "type": "int"}]} for side in "AB"]
    inner: Any = names
    for level in range(depth - 1, -1, -1):
        first = {"type": "record", "name": f"A{level}", "fields": [{"name": "f", "type": inner}]}
        again = [f"A{level + 1}", f"B{level + 1}"]
        inner = [first, {"type": "record", "name": f"B{level}", "fields": [{"name": "f", "type": again}]}]
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", *inner]}]}


HOSTILE: dict[str, tuple[Any, Any]] = {
    "a type inside itself": (
        {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
        {"r": None},
    ),
    "a record without fields": ({"type": "record", "name": "R", "fields": []}, {}),
    "a million columns": (branching(20), {"f": None}),
    "a decimal of a hundred digits": (
        {"type": "bytes", "logicalType": "decimal", "precision": 100, "scale": 0},
        b"\1",
    ),
}


@pytest.mark.parametrize("tolerance", ["none", "all"])
@pytest.mark.parametrize("name", HOSTILE)
def test_records_of_a_schema_that_parquet_cannot_hold_stop_no_others(
    lab: Lab, registry: RegistrySettings, name: str, tolerance: str
) -> None:
    """They ended each run of the topic. They are no dead letters: a wrong format would make them of all records."""
    topic = lab.create_topic()
    schema, value = HOSTILE[name]
    bad = framed(registry, f"{topic}-other", schema, [value])
    one, other = framed(registry, topic, F1, [{"f1": "a"}, {"f1": "b"}])
    produce(lab.kafka, topic, [Sent(value, None, NOON) for value in (*bad, one, *bad, other)])
    config = with_tolerance(lab.connector(layout=PARQUET, records=avro(registry)), tolerance)
    report = tried(config, [NOON])
    assert isinstance(report.failure, UnresolvedOffsetsError)
    found = snapshot(config)
    assert sum(s.record_count for s in found.segments) == 2
    assert [(u.start_offset, u.end_offset) for u in found.state.unresolved] == [(0, 1), (2, 3)]
    assert verify_archive(config, topic, deep=True, runner=InProcessRunner()).ok


def with_tolerance(config: ConnectorConfig, tolerance: str) -> ConnectorConfig:
    errors = config.records.errors.model_copy(update={"tolerance": tolerance})
    return config.model_copy(update={"records": config.records.model_copy(update={"errors": errors})})


def test_a_record_without_a_schema_does_not_decide_for_those_with_one(lab: Lab) -> None:
    """The first one did: a stranger's null as schema ended the run, and failed all records behind it."""
    topic = lab.create_topic()
    schema = {"type": "struct", "fields": [{"field": "a", "type": "int32"}]}
    good = json.dumps({"schema": schema, "payload": {"a": 1}}).encode()
    produce(lab.kafka, topic, [Sent(b'{"schema":null,"payload":1}', None, NOON), Sent(good, None, NOON)])
    records = {"value": {"format": "JSON", "schemas_enable": True}}
    config = lab.connector(layout=PARQUET, records=records)
    report = tried(config, [NOON])
    assert isinstance(report.failure, UnresolvedOffsetsError)
    assert [(u.start_offset, u.end_offset) for u in snapshot(config).state.unresolved] == [(0, 1)]
    assert sum(s.record_count for s in snapshot(config).segments) == 1


def test_a_decimal_larger_than_its_precision_is_its_record_s_failure(lab: Lab, registry: RegistrySettings) -> None:
    """An error of Arrow's ended each run."""
    topic = lab.create_topic()
    small = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}
    schema = {"type": "record", "name": "D", "fields": [{"name": "d", "type": small}]}
    [fits] = framed(registry, topic, schema, [{"d": b"\1"}])
    values = [fits, fits[:5] + b"\x10" + b"\x7f" * 8]
    produce(lab.kafka, topic, [Sent(value, None, NOON) for value in values])
    config = lab.connector(layout=PARQUET, records=avro(registry))
    report = tried(config, [NOON])
    assert isinstance(report.failure, UnresolvedOffsetsError)
    assert [(u.start_offset, u.end_offset) for u in snapshot(config).state.unresolved] == [(1, 2)]
    assert sum(s.record_count for s in snapshot(config).segments) == 1
