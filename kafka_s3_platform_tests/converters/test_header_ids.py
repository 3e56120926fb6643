"""Keys and values whose schema a header names, as Confluent's own serializers write them, are read like all others."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField

from kafka_s3_platform.connect.avro.wire import read_schema_names
from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.framed import RecordConverter
from kafka_s3_platform.connect.segments.schema_ids import collect_schema_ids, fetch_archived_schemas
from kafka_s3_platform.core.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.core.model.connect import Side
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.converters.header_records import TRIP, Confluent, Record, batch_of
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, running

HEADER = "__value_schema_id"
KINDS = ("AVRO", "JSON_SR", "PROTOBUF")
TRIPS = [{"from": f"stop {at}", "metres": 900 + at} for at in range(3)]


@pytest.fixture
def source() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=4)) as server:
        yield server


def converted(
    server: SmallRegistry, rows: Sequence[Record], kind: str = "AVRO", side: Side = "value"
) -> ConvertedPayload:
    registry = RegistrySettings(url=server.url)
    settings = ConverterSettings.model_validate({"format": kind, "registry": registry})
    return RecordConverter(settings, "t", side).convert(batch_of(rows, side))


def reason(done: ConvertedPayload) -> str:
    [failure] = done.failures
    assert failure.offset == 10
    return failure.message


@pytest.mark.parametrize("kind", KINDS)
def test_prefixes_and_headers_are_read_in_one_batch(source: SmallRegistry, kind: str) -> None:
    confluent = Confluent(source.url, "t", kind)
    rows = [confluent.written(trip, in_header=at != 1) for at, trip in enumerate(TRIPS)]
    done = converted(source, [*rows, Record(None, rows[0].headers)], kind)
    assert done.failures == ()
    assert list(done.payload.objects) == [*TRIPS, None]
    assert {schema.schema_id for schema in done.payload.schemas} == {5}


def test_keys_have_a_header_of_their_own(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t", field=MessageField.KEY).written(TRIPS[0])
    assert [name for name, _ in row.headers] == ["__key_schema_id"]
    assert converted(source, [row], side="key").payload.objects == TRIPS[:1]
    assert "begins with the byte" in reason(converted(source, [row]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_the_record_stay_at_hand(source: SmallRegistry, kind: str) -> None:
    confluent = Confluent(source.url, "t", kind)
    rows = [confluent.written(trip, in_header=at != 1) for at, trip in enumerate(TRIPS)]
    payload = converted(source, rows, kind).payload
    for taken in (payload, payload.take(slice(1, 3)), payload.take(np.array([2, 0]))):
        assert taken.bytes_read is not None
    assert payload.take(np.array([2, 0])).bytes_read.to_pylist() == [rows[2].value, rows[0].value]  # type: ignore[union-attr]


def test_data_that_begins_like_a_prefix_is_data(source: SmallRegistry) -> None:
    """`00 00 00 00 05` would be the id of the very schema."""
    row = Confluent(source.url, "t").written({"from": "", "metres": 0})
    assert row.value == b"\0\0"
    zeros = replace(row, value=b"\0\0", headers=(("a", None), *row.headers))
    assert converted(source, [zeros]).payload.objects == [{"from": "", "metres": 0}]


def test_an_id_in_the_header_is_read_as_confluent_s_readers_read_it(source: SmallRegistry) -> None:
    confluent = Confluent(source.url, "t")
    prefixed = confluent.written(TRIPS[1], in_header=False)
    assert prefixed.value is not None
    row = Record(prefixed.value[5:], ((HEADER, prefixed.value[:5]),))
    assert confluent.read(row) == TRIPS[1]
    assert converted(source, [row]).payload.objects == [TRIPS[1]]


def test_a_guid_that_nobody_knows_fails_its_record_alone(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIPS[0])
    guid = uuid.UUID(int=7)
    done = converted(source, [replace(row, headers=((HEADER, b"\1" + guid.bytes),)), row])
    assert (
        f"has the header {HEADER}, by which no schema is found: it has a schema that the registry does not"
        in reason(done)
    )
    assert f"answers for the schema of GUID {guid}" in reason(done)
    assert list(done.payload.objects) == TRIPS[:1]


def test_a_registry_without_guids_is_named() -> None:
    with running(SmallRegistry()) as server:
        row = Confluent(server.url, "t").written(TRIPS[0])
        server.guids = False
        why = reason(converted(server, [row]))
    assert "names its schema by a GUID, which its registry does not know" in why
    assert server.url in why


class Hostile(SmallRegistry):
    """Has an id for a GUID that no record can name, and GUIDs that are none."""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        found = super().answer(request)
        text = found.body.replace(b'"id": 1}', b'"id": 4294967296}')
        return replace(found, body=text if "/guids/" in request.path else text.replace(b'"guid": "', b'"guid": "no'))


def test_a_hostile_registry_fails_a_record_and_no_run() -> None:
    with running(SmallRegistry()) as honest:
        row = Confluent(honest.url, "t").written(TRIPS[0])
    with running(Hostile()) as server:
        assert server.register("t-value", TRIP) == 1
        assert server.guid(1) == honest.guid(1)
        assert "has a schema without an id in its registry" in reason(converted(server, [row]))
        records = RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=server.url)))
        assert [each.schema_guid for each in fetch_archived_schemas(IndexState(), [1], records).rows] == [None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [None, b"", b"\1" + b"g" * 15, b"\2" + b"g" * 16, b"\0\0\0\0", b"5"])
def test_a_header_that_names_nothing_fails_its_record(source: SmallRegistry, kind: str, text: bytes | None) -> None:
    row = Confluent(source.url, "t", kind).written(TRIPS[0])
    said = f"has {len(text or b'')} bytes, neither 1 and a GUID"
    assert f"has the header {HEADER}, by which no schema is found: it {said}" in reason(
        converted(source, [replace(row, headers=((HEADER, text),))], kind)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [lambda text: text[:17], lambda text: text + b"\0"], ids=["less", "more"])
def test_message_indexes_are_neither_missing_nor_too_many(source: SmallRegistry, kind: str, change: object) -> None:
    row = Confluent(source.url, "t", kind).written(TRIPS[0])
    [(_, text)] = row.headers
    other = change(text)  # type: ignore[operator]
    done = converted(source, [replace(row, headers=((HEADER, other),))], kind)
    assert bool(done.failures) == (other != text)


def test_headers_that_differ_fail_and_equal_ones_do_not(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIPS[0])
    other = (HEADER, b"\1" + uuid.UUID(int=9).bytes)
    assert "it has 0 bytes" in reason(converted(source, [replace(row, headers=(*row.headers, other))]))
    assert converted(source, [replace(row, headers=row.headers * 2)]).payload.objects == TRIPS[:1]


def names_in(headers: pa.ListArray) -> list[bytes | None]:
    return list(present(read_schema_names(headers, "value")).to_pylist())


def test_headers_are_found_in_slices_and_among_others(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIPS[0])
    rows = [
        Record(b"x"),
        row,
        Record(b"x", (("a", b"1"),)),
        replace(row, headers=(("b", b""), *row.headers, ("c", None))),
    ]
    headers = batch_of(rows * 2).column("headers")
    [(_, text)] = row.headers
    assert names_in(headers) == [None, text] * 4
    assert names_in(headers.slice(3, 3)) == [text, None, text]
    assert read_schema_names(headers, "key") is None
    assert read_schema_names(batch_of(rows[:1]).column("headers"), "value") is None


def test_ids_are_not_looked_for_in_bytes_that_have_none(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIPS[0])
    batch = batch_of([replace(row, value=b"\0\1\2\3\4\5"), Record(b"\0\0\0\0\6x"), Record(None)])
    assert collect_schema_ids(batch, "value") == {6, source.guid(5)}


def test_schemas_that_headers_name_are_archived_once(source: SmallRegistry) -> None:
    confluent = Confluent(source.url, "t")
    batch = batch_of([confluent.written(TRIPS[0])])
    records = RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=source.url)))
    ids = collect_schema_ids(batch, "value")
    fetched = fetch_archived_schemas(IndexState(), ids, records)
    assert [(row.schema_id, row.schema_guid) for row in fetched.rows] == [(5, source.guid(5))]
    again = fetch_archived_schemas(IndexState(schemas=fetched.rows), ids, records)
    assert (again.rows, again.missing, again.problem) == ((), (), None)


def test_archived_schemas_are_found_by_guid_when_the_registry_is_gone(source: SmallRegistry) -> None:
    row = Confluent(source.url, "t").written(TRIPS[0])
    records = RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=source.url)))
    schemas = fetch_archived_schemas(IndexState(), [source.guid(5)], records).rows
    gone = RegistrySettings(url="http://127.0.0.1:9", archived=schemas)
    settings = ConverterSettings(format="AVRO", registry=gone)
    assert RecordConverter(settings, "t", "value").convert(batch_of([row])).payload.objects == TRIPS[:1]


def test_a_guid_that_no_schema_has_is_told_and_not_archived(source: SmallRegistry) -> None:
    records = RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=source.url)))
    fetched = fetch_archived_schemas(IndexState(), [str(uuid.UUID(int=3))], records)
    assert (fetched.rows, fetched.missing) == ((), (str(uuid.UUID(int=3)),))
    assert fetched.problem is not None
