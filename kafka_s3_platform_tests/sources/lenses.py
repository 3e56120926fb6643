"""Objects as Lenses' sink writes them."""

import io
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

# As its own test of the sink has it.
LINE = (
    b'{"headers":{"h1":"record1-header%d","h2":%d},"metadata":{"partition":1,"offset":%d,"topic":"myTopic",'
    b'"timestamp":1000%d},"value":{"name":"sam","title":null,"salary":100.43},"key":{"name":"sam"}}\n'
)
LINES = b"".join(LINE % (n, n, n, n) for n in (1, 2, 3))


OPTIONAL: dict[str, Any] = {
    "type": "record",
    "name": "ConnectDefault2",
    "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "name", "type": "string"}, {"name": "title", "type": ["null", "string"], "default": None}],
}
METADATA = {
    "type": "record",
    "name": "ConnectDefault4",
    "fields": [
        {"name": "timestamp", "type": "long"},
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
    ],
}
HEADERS = {
    "type": "record",
    "name": "ConnectDefault3",
    "fields": [{"name": "h1", "type": ["null", "string"]}, {"name": "h2", "type": ["null", "long"]}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "key", "type": ["null", OPTIONAL], "default": None},
    {"name": "value", "type": ["null", "ConnectDefault2"], "default": None},
    {"name": "headers", "type": HEADERS},
    {"name": "metadata", "type": ["null", METADATA], "default": None},
]
SAM = {"name": "sam", "title": None}


def record(offset: int) -> dict[str, Any]:
    place = {"timestamp": 10_000 + offset, "topic": "myTopic", "partition": 1, "offset": offset}
    return {"key": SAM, "value": SAM, "headers": {"h1": f"x{offset}", "h2": offset}, "metadata": place}


def headers(*values: bytes) -> list[dict[str, Any]]:
    return [{"key": f"h{n}", "value": value} for n, value in enumerate(values, 1)]


def avro(fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> bytes:
    schema = {"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro", "fields": fields}
    body = io.BytesIO()
    fastavro.writer(body, fastavro.parse_schema(schema), records)
    return body.getvalue()


def parquet(records: list[dict[str, Any]]) -> bytes:
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), body)
    return body.getvalue()
