"""Reads the objects of an archive as others do: with the reference decoder, Python's own JSON, and pyarrow."""

import gzip
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.parquet as pq

from kafka_s3_platform_tests.meaning.avro_reference import Types, read_container


def read_avro(body: bytes) -> list[tuple[Types, Any]]:
    """The values of a container, each with the types of its schema."""
    text, values, _ = read_container(body)
    return [(Types.of(json.loads(text)), value) for value in values]


def read_lines(body: bytes) -> list[Any]:
    """The values of lines of JSON. No object may have a key twice."""
    assert not body or body.endswith(b"\n")
    return [json.loads(line, object_pairs_hook=_build_object) for line in body.split(b"\n")[:-1]]


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key is there twice: {pairs}"
    return found


def read_blocks(body: bytes) -> list[bytes]:
    """The lines of a Block-GZIP object, which need not be JSON."""
    return gzip.decompress(body).split(b"\n")[:-1]


def read_columns(body: bytes) -> list[Any]:
    """The rows of a Parquet file, as values of pyarrow."""
    table = pq.read_table(io.BytesIO(body))
    return list(table.to_struct_array().combine_chunks() if table.num_columns else [])


READERS: Mapping[str, Callable[[bytes], list[Any]]] = {
    "avro": read_avro,
    "json": read_lines,
    "block_gzip": read_blocks,
    "parquet": read_columns,
}
