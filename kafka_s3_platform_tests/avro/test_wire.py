"""Which schema a header names, compared with what a reader of one record after the other finds."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro.wire import (
    NO_ID,
    encode_schema_name,
    map_schema_ids,
    parse_schema_name,
    read_schema_names,
    write_schema_ids,
)
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA

IDS = st.integers(0, 2**32 - 1)


def framed(schema_id: int, body: bytes = b"body") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


VALUES = st.none() | st.binary(max_size=8) | st.builds(framed, IDS | st.integers(0, 3), st.binary(max_size=4))


def mapped(row: bytes | None, ids: Mapping[int, int]) -> bytes | None:
    """The rule, one value at a time."""
    if row is None or len(row) < 5 or row[0] != 0:
        return row
    old = int.from_bytes(row[1:5], "big")
    return framed(ids.get(old, old), row[5:])


@settings(deadline=None)
@given(st.lists(VALUES), st.dictionaries(st.integers(0, 3), IDS), st.integers(0, 3), st.integers(0, 3))
def test_ids_are_replaced_and_nothing_else_is_touched(
    rows: list[bytes | None], ids: dict[int, int], skip: int, drop: int
) -> None:
    kept = rows[skip : len(rows) - drop] if skip + drop <= len(rows) else []
    raw = pa.array(rows, pa.binary()).slice(skip, len(kept))
    found, unknown, olds = map_schema_ids(raw, ids)
    found.validate(full=True)
    assert found.to_pylist() == [mapped(row, ids) for row in kept]
    assert raw.to_pylist() == kept
    named = [row and len(row) >= 5 and row[0] == 0 and int.from_bytes(row[1:5], "big") not in ids for row in kept]
    assert unknown.tolist() == [at for at, is_unknown in enumerate(named) if is_unknown]
    assert olds.tolist() == [int.from_bytes((kept[at] or b"")[1:5], "big") for at in unknown.tolist()]


def test_values_are_not_copied_where_every_id_stays_what_it_is() -> None:
    raw = pa.array([framed(1), None, b"x"], pa.binary())
    assert map_schema_ids(raw, {1: 1, 2: 3})[0] is raw


def test_a_null_and_a_value_that_gets_no_id_stay() -> None:
    raw = pa.array([framed(1), None, framed(2)], pa.binary())
    assert write_schema_ids(raw, np.array([9, 9, NO_ID])).to_pylist() == [framed(9), None, framed(2)]


Headers = list[tuple[str, bytes | None]]
NAMES = st.sampled_from(["__value_schema_id", "__key_schema_id", "__value_schema", ""])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=2)), max_size=4)
GUID = "0f4c2a3e-0000-4000-8000-00000000abcd"


def name_of(headers: Headers) -> bytes | None:
    found = [value for name, value in headers if name == "__value_schema_id"]
    if not found:
        return None
    return (found[0] or b"") if (found[0] or b"") == (found[-1] or b"") else b""


@settings(deadline=None)
@given(st.lists(st.none() | HEADERS), st.integers(0, 2))
def test_each_record_has_the_name_that_its_own_headers_give(rows: list[Headers | None], skip: int) -> None:
    made = [headers if headers is None else [{"key": k, "value": v} for k, v in headers] for headers in rows]
    column = pa.array(made, RECORD_SCHEMA.field("headers").type).slice(skip)
    expected = [name_of(headers or []) for headers in rows[skip:]]
    found = read_schema_names(column, "value")
    assert (found.to_pylist() if found is not None else [None] * len(column)) == expected


@pytest.mark.parametrize("rest", [b"", b"\0", b"\4\2\6"])
def test_names_are_in_confluent_s_bytes(rest: bytes) -> None:
    by_guid, by_id = SchemaId("AVRO", guid=GUID).guid_to_bytes(), SchemaId("AVRO", 2**31 - 1).id_to_bytes()
    assert parse_schema_name(by_guid + rest) == (GUID, rest)
    assert parse_schema_name(by_id + rest) == (2**31 - 1, rest)
    assert [encode_schema_name(*parse_schema_name(text + rest)) for text in (by_guid, by_id)] == [
        text + rest for text in (by_guid, by_id)
    ]
