"""Restores of records whose header names the schema: bytes stay, names become the target's, and no header lies."""

import dataclasses
from collections.abc import Iterator, Sequence

import pytest

from kafka_s3_platform.connect.restore.outgoing.schemas import map_schemas
from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.connect.segments.schema_ids import collect_schema_ids, fetch_archived_schemas
from kafka_s3_platform.core.config.settings import (
    ConverterSettings,
    RecordSettings,
    RegistrySettings,
    TransformSettings,
)
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, ValueSettings
from kafka_s3_platform.core.restore.request import OnError, Outgoing
from kafka_s3_platform_tests.converters.header_records import TRIP as TRIP_TEXT
from kafka_s3_platform_tests.converters.header_records import Confluent, Record, batch_of, records_of
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.store.http_proxy import running

HEADER = "__value_schema_id"
KINDS = ("AVRO", "JSON_SR", "PROTOBUF")
TRIP = {"from": "Bern", "metres": 1_200}
OTHER_TRIP = {"from": "Thun", "metres": 7}
MASKED = TransformSettings.model_validate({"alias": "m", "type": "MaskField$Value", "options": {"fields": "from"}})
KEYED = TransformSettings.model_validate({"alias": "k", "type": "ValueToKey", "options": {"fields": "metres"}})


@pytest.fixture
def source() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=4)) as server:
        yield server


@pytest.fixture
def target() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=80)) as server:
        yield server


@dataclasses.dataclass
class Restored:
    """What became of records. `notes` are those of the report."""

    records: Sequence[Record]
    notes: Sequence[str]


def restored(
    rows: Sequence[Record],
    source: SmallRegistry,
    target: SmallRegistry,
    kind: str = "AVRO",
    outgoing: Outgoing | None = None,
    on_error: OnError = "fail",
) -> Restored:
    """Archive the schemas of the records, then send the records: with the target's ids, unless `outgoing` says more."""
    side = ConverterSettings.model_validate({"format": kind, "registry": RegistrySettings(url=source.url)})
    records = RecordSettings(value=side)
    batch = batch_of(rows)
    schemas = fetch_archived_schemas(IndexState(), collect_schema_ids(batch, "value"), records).rows
    there = RegistrySettings(url=target.url)
    mapping = None if outgoing else map_schemas(there, schemas, records, "t", "copy")
    wanted = outgoing or Outgoing(map_schema_ids=True, target_registry=there)
    values = ValueSettings(wanted, records, "t", "copy", mapping, schemas)
    settings = SentSettings("copy", 4, outgoing=wanted, values=values, behavior_on_error=on_error)
    stream = OutgoingStream("t", 3, settings)
    sent = [record for _, done in stream.apply(batch) for record in records_of(done)]
    return Restored(sent, stream.notes)


def test_bytes_without_an_id_stay_whatever_they_begin_with(source: SmallRegistry, target: SmallRegistry) -> None:
    """Bytes 1 to 4 are those of an archived id: before, they became the target's, and the value another one."""
    named = Confluent(source.url, "t").written(TRIP)
    prefixed = Confluent(source.url, "t").written(OTHER_TRIP, in_header=False)
    zeros = dataclasses.replace(named, value=b"\0\0\0\0\x05\x02")
    done = restored([zeros, prefixed], source, target)
    assert done.records[0] == zeros
    assert done.records[1].value == b"\0\0\0\0\x51" + (prefixed.value or b"")[5:]
    [note] = done.notes
    assert note.startswith(f"1 records named their schema in the header {HEADER}, which names it at the target too")


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_the_copy_read_by_the_target_s_registry(
    source: SmallRegistry, target: SmallRegistry, kind: str
) -> None:
    confluent = Confluent(source.url, "t", kind)
    rows = [confluent.written(TRIP), confluent.written(OTHER_TRIP, in_header=False)]
    done = restored(rows, source, target, kind)
    reader = Confluent(target.url, "copy", kind)
    assert [reader.read(record) for record in done.records] == [TRIP, OTHER_TRIP]


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_with_guids_of_its_own_gets_these(source: SmallRegistry, kind: str) -> None:
    row = Confluent(source.url, "t", kind).written(TRIP)
    more = dataclasses.replace(row, headers=(("a", None), *row.headers, ("b", b"1")))
    with running(SmallRegistry(last_id=80, salt="another digest")) as target:
        done = restored([more, Record(None, row.headers), Record(b"\0\0\0\0\x05x"), more], source, target, kind)
        assert Confluent(target.url, "copy", kind).read(done.records[0]) == TRIP
    assert [name for name, _ in done.records[0].headers] == ["a", HEADER, "b"]
    assert done.records[0].headers != more.headers
    assert [record.value for record in done.records[:2]] == [row.value, None]
    assert f"2 records named their schema in the header {HEADER}, which names it at the target too" in done.notes[0]


def test_an_id_in_a_header_is_mapped_like_one_before_the_bytes(source: SmallRegistry, target: SmallRegistry) -> None:
    prefixed = Confluent(source.url, "t").written(TRIP, in_header=False).value or b""
    done = restored([Record(prefixed[5:], ((HEADER, prefixed[:5]),))], source, target)
    assert done.records == [Record(prefixed[5:], ((HEADER, b"\0\0\0\0\x51"),))]
    assert Confluent(target.url, "copy").read(done.records[0]) == TRIP


def test_a_name_that_the_target_cannot_know_fails_its_record(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIP)
    strange = dataclasses.replace(row, headers=((HEADER, b"\1" + bytes(16)),))
    tombstones = [
        Record(None, headers)
        for headers in (strange.headers, ((HEADER, None), ("a", None)), (*row.headers, *strange.headers))
    ]
    with running(SmallRegistry(guids=False)) as target:
        done = restored([row, strange, *tombstones], source, target, on_error="ignore")
    assert done.records == tombstones
    assert "2 records cannot be written" in done.notes[-1]
    assert (
        f"names schema {source.guid(5)}, which was not archived, or has no GUID in the target's registry"
        in done.notes[-1]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_values_written_anew_lose_the_header_that_would_lie(
    source: SmallRegistry, target: SmallRegistry, kind: str
) -> None:
    confluent = Confluent(source.url, "t", kind)
    row = confluent.written(TRIP)
    rows = [dataclasses.replace(row, headers=(*row.headers, ("a", b"1"))), confluent.written(TRIP, in_header=False)]
    there = RegistrySettings(url=target.url)
    done = restored(rows, source, target, kind, Outgoing(transforms=(MASKED,), target_registry=there))
    assert [record.headers for record in done.records] == [(("a", b"1"),), ()]
    reader = ConverterSettings.model_validate({"format": kind, "registry": there})
    again = restored(done.records, target, target, kind, Outgoing(value=ConverterSettings(format="JSON")))
    assert reader.registry == there
    assert [record.value for record in again.records] == [b'{"from":"","metres":1200}'] * 2
    assert done.notes == (
        f"1 records named their schema in the header {HEADER}, and come without it: the value was written anew",
    )


def test_a_tombstone_keeps_the_header(source: SmallRegistry, target: SmallRegistry) -> None:
    tombstone = dataclasses.replace(Confluent(source.url, "t").written(TRIP), value=None)
    wanted = Outgoing(value=ConverterSettings(format="JSON"))
    assert restored([tombstone], source, target, outgoing=wanted) == Restored([tombstone], ())


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_a_transform_does_not_touch_stay_with_their_header(
    source: SmallRegistry, target: SmallRegistry, kind: str
) -> None:
    """Values are decoded, since the transform makes keys of them."""
    row = Confluent(source.url, "t", kind).written(TRIP)
    wanted = Outgoing(transforms=(KEYED,), key=ConverterSettings(format="JSON"))
    assert restored([row, row], source, target, kind, wanted) == Restored([row, row], ())


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_as_they_are_keep_the_header(source: SmallRegistry, target: SmallRegistry, kind: str) -> None:
    row = Confluent(source.url, "t", kind).written(TRIP)
    done = restored([row], source, target, kind, Outgoing(value=ConverterSettings(format="BYTES")))
    assert (list(done.records), done.notes) == ([row], ())


def test_avro_becomes_json_without_a_schema_and_without_the_header(
    source: SmallRegistry, target: SmallRegistry
) -> None:
    row = Confluent(source.url, "t").written(TRIP)
    done = restored([row], source, target, outgoing=Outgoing(value=ConverterSettings(format="JSON")))
    assert done.records == [Record(b'{"from":"Bern","metres":1200}')]


def test_rules_that_what_is_written_anew_does_not_get_are_told(source: SmallRegistry, target: SmallRegistry) -> None:
    rules = {"domainRules": [{"name": "hide", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]}
    schema_id = source.register("t-value", TRIP_TEXT, ruleSet=rules)
    row = Record(b"\0" + schema_id.to_bytes(4, "big") + b"\x02a\2")
    wanted = Outgoing(transforms=(MASKED,), target_registry=RegistrySettings(url=target.url))
    done = restored([row], source, target, outgoing=wanted)
    assert done.notes == (
        f"schemas [{schema_id}] have metadata or rules, and what was written anew has schemas without them",
    )
