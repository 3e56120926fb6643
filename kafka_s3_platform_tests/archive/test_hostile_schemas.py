"""Schemas that a format cannot hold: their records are told and stay behind, and all others are archived."""

import json
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.errors import UnresolvedOffsetsError
from kafka_s3_platform.upkeep.verify import verify_archive
from kafka_s3_platform_tests.archive.test_sink import F1, avro, framed
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, connector, produce, snapshot, tried

pytestmark = pytest.mark.integration

PARQUET = {"format": "parquet", "codec": "snappy"}


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
    config = with_tolerance(connector(lab.kafka, lab.store, topic, layout=PARQUET, records=avro(registry)), tolerance)
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
    config = connector(lab.kafka, lab.store, topic, layout=PARQUET, records=records)
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
    config = connector(lab.kafka, lab.store, topic, layout=PARQUET, records=avro(registry))
    report = tried(config, [NOON])
    assert isinstance(report.failure, UnresolvedOffsetsError)
    assert [(u.start_offset, u.end_offset) for u in snapshot(config).state.unresolved] == [(1, 2)]
    assert sum(s.record_count for s in snapshot(config).segments) == 1
