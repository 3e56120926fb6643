"""Block-GZIP: plain gzip for everybody, and any block alone for those who know its index."""

import gzip
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.formats.block_gzip import Block, read_from, read_index
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.format_io import find_unsafe_values
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform_tests.formats.connect import came, cut, decoded, written, written_with_sidecars

BLOCKS = LayoutSettings(format="block_gzip", codec="gzip", block_size=100)
lines = st.lists((st.text("abü", max_size=60) | st.integers(90, 250).map("x".__mul__)).map(str.encode), max_size=40)


def chunks(found: dict[str, bytes]) -> list[dict[str, int]]:
    index: dict[str, Any] = json.loads(found["index.json"])
    assert list(index) == ["chunks"]
    result: list[dict[str, int]] = index["chunks"]
    return result


def dense(values: list[bytes], first_offset: int = 0) -> ConnectBatch:
    """The same records without holes between their offsets."""
    batch = came(values)
    at = batch.records.schema.get_field_index("offset")
    offsets = np.arange(first_offset, first_offset + len(values))
    records = batch.records.set_column(at, batch.records.schema.field(at), offsets)
    return ConnectBatch(records, batch.key, batch.value)


@settings(deadline=None)
@given(lines, st.lists(st.integers(0, 40), max_size=4))
def test_anybody_reads_it_as_gzip_however_it_was_batched(values: list[bytes], bounds: list[int]) -> None:
    found = written_with_sidecars(BLOCKS, came(values))
    assert gzip.decompress(found[""]) == b"".join(value + b"\n" for value in values)
    assert written_with_sidecars(BLOCKS, *cut(came(values), bounds)) == found


@settings(deadline=None)
@given(lines)
def test_the_index_tells_each_block_apart(values: list[bytes]) -> None:
    found = written_with_sidecars(BLOCKS, came(values))
    row, position = 0, 0
    for chunk in chunks(found):
        assert list(chunk) == [
            "byte_length_uncompressed", "num_records", "byte_length", "byte_offset", "first_record_offset",
        ]  # fmt: skip
        assert chunk["byte_offset"] == position
        position += chunk["byte_length"]
        text = gzip.decompress(found[""][chunk["byte_offset"] : position])
        held = values[row : row + chunk["num_records"]]
        assert text == b"".join(value + b"\n" for value in held)
        assert len(text) == chunk["byte_length_uncompressed"]
        assert len(text) <= BLOCKS.block_size or chunk["num_records"] == 1
        assert chunk["first_record_offset"] == 2 * row
        row += chunk["num_records"]
        if row < len(values):
            assert len(text) + len(values[row]) + 1 > BLOCKS.block_size
    assert (row, position) == (len(values), len(found[""]))


def test_the_index_of_the_document_comes_out() -> None:
    # Its blocks hold 100 records in 2890 bytes and 123 in 3121, the first of which did not fit into the block before.
    sizes = [28] * 10 + [29] * 90 + [250] + [24] * 65 + [23] * 57
    layout = BLOCKS.model_copy(update={"block_size": 3121})
    found = chunks(written_with_sidecars(layout, dense([b"x" * (size - 1) for size in sizes])))
    shown = [(c["byte_length_uncompressed"], c["num_records"], c["first_record_offset"]) for c in found]
    assert shown == [(2890, 100, 0), (3121, 123, 100)]
    assert [c["byte_offset"] for c in found] == [0, found[0]["byte_length"]]


def test_no_records_have_no_block() -> None:
    assert written_with_sidecars(BLOCKS) == {"": b"", "index.json": b'{"chunks":[]}'}


def test_a_value_that_ends_its_line_gets_no_second_break() -> None:
    assert gzip.decompress(written(BLOCKS, came([b"a\n", b"b", b"\n", b""]))) == b"a\nb\n\n\n"
    batch = came([b"a\n", b"\n", b"a\nb", b"a\n\n", b"", b"\na"])
    assert find_unsafe_values(batch, BLOCKS).tolist() == [False, False, True, True, False, True]


def test_what_is_made_of_fields_is_a_line_of_json() -> None:
    schema = Schema('{"type":"record","name":"R","fields":[{"name":"f","type":"double"}]}')
    made = decoded([{"f": 1.5}, {"f": float("nan")}], schema)
    assert gzip.decompress(written(BLOCKS, made, schema=schema)) == b'{"f":1.5}\n{"f":"NaN"}\n'
    assert gzip.decompress(written(BLOCKS, decoded([{"a": "x\ny"}, "text", b"bytes"], None))) == (
        b'{"a":"x\\ny"}\ntext\nbytes\n'
    )
    with pytest.raises(UnwritableRecordsError, match="offset 0 of t-3 cannot be written as block_gzip"):
        written(BLOCKS, decoded([{"f": "x"}], schema), schema=schema)


def test_null_is_refused_by_name() -> None:
    with pytest.raises(IntegrityError, match="record at offset 2 of t-3 is null"):
        written(BLOCKS, came([b"a", None]))


# Reading by offset


class Reads:
    """An object that remembers what was read of it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        return self._body[start : start + length]


@settings(deadline=None)
@given(lines.filter(len), st.integers(0, 10**12), st.data())
def test_records_are_read_from_any_offset_on(values: list[bytes], first: int, data: st.DataObject) -> None:
    found = written_with_sidecars(BLOCKS, dense(values, first))
    blocks, end = read_index(found["index.json"], "k"), first + len(values)
    offset = data.draw(st.integers(first - 2, end + 2))
    reads = Reads(found[""])
    assert list(read_from(reads, blocks, offset, end, "k")) == values[max(offset - first, 0) :]
    stops = [*(b.first_record_offset for b in blocks[1:]), end]
    needed = [b for b, stop in zip(blocks, stops, strict=True) if stop > offset]
    assert reads.ranges == [(b.byte_offset, b.byte_length) for b in needed]


@settings(deadline=None)
@given(lines.filter(len), st.integers(-2, 85))
def test_none_is_left_out_where_offsets_have_holes(values: list[bytes], offset: int) -> None:
    found = written_with_sidecars(BLOCKS, came(values))
    lines_read = list(
        read_from(Reads(found[""]), read_index(found["index.json"], "k"), offset, 2 * len(values) - 1, "k")
    )
    wanted = [value for row, value in enumerate(values) if 2 * row >= offset]
    assert lines_read[len(lines_read) - len(wanted) :] == wanted
    assert len(lines_read) - len(wanted) <= max(chunk["num_records"] for chunk in chunks(found))


def test_blocks_of_the_default_size_hold_64_mebibytes() -> None:
    layout = BLOCKS.model_copy(update={"block_size": LayoutSettings().block_size})
    values = [b"x" * 1_048_575] * 65
    assert [c["num_records"] for c in chunks(written_with_sidecars(layout, came(values)))] == [64, 1]


def test_damage_is_told() -> None:
    values = [random.Random(i).randbytes(8).hex().encode() for i in range(50)]
    found = written_with_sidecars(BLOCKS, dense(values))
    blocks = read_index(found["index.json"], "k")
    damaged = bytearray(found[""])
    damaged[blocks[1].byte_offset + 20] ^= 1
    with pytest.raises(IntegrityError, match="object k"):
        list(read_from(Reads(bytes(damaged)), blocks, 0, 50, "k"))
    wrong = [Block(**{**c, "num_records": c["num_records"] + 1}) for c in chunks(found)]
    with pytest.raises(IntegrityError, match="object k has 5 lines in its block at byte 0 where its index says 6"):
        list(read_from(Reads(found[""]), wrong, 0, 50, "k"))
    for body in (b"", b"[]", b'{"chunks":[{"byte_offset":0}]}', b'{"chunks":null}'):
        with pytest.raises(IntegrityError, match="k is no Block-GZIP index"):
            read_index(body, "k")


def test_a_text_that_may_be_a_number_in_its_union_is_json() -> None:
    """As it is, it looked like the number."""
    schema = Schema('["string", "long"]')
    found = written_with_sidecars(BLOCKS, decoded([("string", "5"), ("long", 5)], schema), schema=schema)
    assert gzip.decompress(found[""]) == b'{"string":"5","long":null}\n{"string":null,"long":5}\n'
