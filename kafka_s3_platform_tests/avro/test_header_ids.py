"""Which schema a header names, compared with what a reader of one record after the other finds."""

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.avro.wire import encode_schema_name, parse_schema_name, read_schema_names
from kafka_s3_platform.model.batches import RECORD_SCHEMA

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
