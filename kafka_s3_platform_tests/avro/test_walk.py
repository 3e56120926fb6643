"""Avro data are told from what is none, and become columns, as fastavro reads them one by one."""

import io
import random
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from fastavro.validation import validate
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro import cursor
from kafka_s3_platform.connect.avro.walk import MAX_DEPTH, check_bodies, read_columns
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform_tests.conftest import present

UNHURRIED = settings(deadline=None)
LONGS = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.sampled_from([-(2**63), 2**63 - 1, 2**55, -(2**62)])
)
FLOATS = st.floats(width=32, allow_nan=False)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70),
    "long": LONGS,
    "float": FLOATS,
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
LIST: Any = {
    "type": "record",
    "name": "List",
    "namespace": "a.b",
    "fields": [{"name": "head", "type": "int"}, {"name": "tail", "type": ["null", "List"]}],
}
TREE: Any = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "name", "type": "string"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
}


def written(schema: Any, *values: Any) -> list[bytes]:
    parsed, bodies = fastavro.parse_schema(schema), []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, value)
        bodies.append(body.getvalue())
    return bodies


def verdicts(schema: Any, bodies: Sequence[bytes | None], skip: int = 0) -> list[bool]:
    return [bool(v) for v in check_bodies(schema, pa.array(bodies, pa.binary()), skip)]


def fastavro_reads_all_of(schema: Any, body: bytes) -> Any:
    """The value, None unless fastavro reads it and stops at the end."""
    source = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    except (ValueError, EOFError, IndexError, TypeError, struct.error, OverflowError, MemoryError, StopIteration):
        return None
    return (value,) if source.tell() == len(body) else None


def columns_of(schema: Any, rows: Sequence[bytes | None]) -> pa.StructArray:
    columns = present(read_columns(schema, pa.array(rows, pa.binary()), 0))
    columns.validate(full=True)
    return columns


class Names:
    """Names of types: none twice in a schema."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"N{self._count}"


Kind = tuple[Any, st.SearchStrategy[Any]]


def schemas(draw: st.DrawFn, names: Names, depth: int, *, flat: bool = False) -> Kind:
    """A schema and the values it has; `flat` without what `read_columns` cannot do."""
    if depth == 0 or draw(st.booleans()):
        return leaf(draw, names)
    kinds = [record, optional] if flat else [record, optional, array, mapping, union]
    nested: Callable[..., Kind] = draw(st.sampled_from(kinds))
    return nested(draw, names, depth - 1, flat=flat)


def leaf(draw: st.DrawFn, names: Names) -> Kind:
    kind = draw(st.sampled_from([*sorted(PRIMITIVES), "enum", "fixed"]))
    if kind == "enum":
        return {"type": "enum", "name": names.next(), "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    if kind == "fixed":
        size = draw(st.integers(1, 20))
        return {"type": "fixed", "name": names.next(), "size": size}, st.binary(min_size=size, max_size=size)
    return kind, PRIMITIVES[kind]


def optional(draw: st.DrawFn, names: Names, depth: int, *, flat: bool) -> Kind:
    inner, values = schemas(draw, names, depth, flat=flat)
    if isinstance(inner, list):
        return inner, values
    return draw(st.permutations(["null", inner])), st.none() | values


def array(draw: st.DrawFn, names: Names, depth: int, *, flat: bool) -> Kind:
    inner, values = schemas(draw, names, depth, flat=flat)
    return {"type": "array", "items": inner}, st.lists(values, max_size=4)


def mapping(draw: st.DrawFn, names: Names, depth: int, *, flat: bool) -> Kind:
    inner, values = schemas(draw, names, depth, flat=flat)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)


def union(draw: st.DrawFn, names: Names, depth: int, *, flat: bool) -> Kind:
    primitives = draw(st.lists(st.sampled_from(["boolean", "long", "double", "string"]), unique=True, min_size=1))
    return ["null", *primitives], st.none() | st.one_of([PRIMITIVES[p] for p in primitives])


def record(draw: st.DrawFn, names: Names, depth: int, *, flat: bool) -> Kind:
    fields = [schemas(draw, names, depth, flat=flat) for _ in range(draw(st.integers(1, 5)))]
    schema = {
        "type": "record",
        "name": names.next(),
        "fields": [{"name": f"f{i}", "type": s} for i, (s, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(fields)})


@st.composite
def data(draw: st.DrawFn, *, flat: bool = False) -> tuple[Any, list[Any]]:
    """A schema, and values of it: from a few, which are read alone, to more than are read in step."""
    schema, values = record(draw, Names(), 2, flat=flat)
    some = draw(st.lists(values, min_size=1, max_size=4))
    return schema, some * draw(st.sampled_from([1, 9]))


@UNHURRIED
@given(data())
def test_what_fastavro_writes_is_valid(found: tuple[Any, list[Any]]) -> None:
    schema, values = found
    assert all(verdicts(schema, written(schema, *values)))


@UNHURRIED
@given(data())
def test_every_proper_prefix_and_every_byte_more_is_invalid(found: tuple[Any, list[Any]]) -> None:
    schema, values = found
    bodies = list(dict.fromkeys(written(schema, *values)))
    prefixes = [body[:i] for body in bodies for i in range(len(body))]
    assert not any(verdicts(schema, prefixes))
    assert not any(verdicts(schema, [body + more for body in bodies for more in (b"\0", b"\x02", b"\xff" * 9)]))


@UNHURRIED
@given(data(), st.randoms(use_true_random=False))
def test_a_damaged_datum_is_judged_as_fastavro_reads_it(found: tuple[Any, list[Any]], chance: random.Random) -> None:
    schema, values = found
    damaged = [damage(body, chance) for body in written(schema, *values) for _ in range(5)]
    judged = verdicts(schema, damaged)
    for body, valid in zip(damaged, judged, strict=True):
        read = fastavro_reads_all_of(schema, body)
        if valid:
            assert read is not None
        elif read is not None and validate(read[0], schema, raise_errors=False):
            # Stricter than fastavro, where what it read would not be written like that.
            assert written(schema, *read) != [body]
    assert judged == [v for body in damaged for v in verdicts(schema, [body])]


def damage(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(changed) + 1)
        changed[at : at + chance.randrange(2)] = chance.randbytes(chance.randrange(3))
    return bytes(changed)


@UNHURRIED
@given(data(), st.integers(0, 40), st.integers(0, 7))
def test_slices_nulls_and_what_stands_before_a_datum_change_nothing(
    found: tuple[Any, list[Any]], start: int, skip: int
) -> None:
    schema, values = found
    bodies = written(schema, *values)
    rows = [row for body in bodies for row in (b"\xff" * skip + body, None, b"\xff" * skip + body[:-1], b"")]
    expected = [v for _ in bodies for v in (True, True, False, False)]
    if skip == 0:
        expected[3::4] = verdicts(schema, [b""]) * len(bodies)
    column = pa.array(rows, pa.binary()).slice(start)
    assert [bool(v) for v in check_bodies(schema, column, skip)] == expected[start:]


def test_a_batch_larger_than_what_is_read_at_once_is_judged_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]}
    bodies: list[bytes | None] = list(written(schema, *[{"a": "ä" * (i % 9), "b": i**4} for i in range(1_000)]))
    bodies[500], bodies[501] = b"\x08\xff", None
    whole = verdicts(schema, bodies)
    assert [i for i, valid in enumerate(whole) if not valid] == [500]
    columns = columns_of(schema, bodies)
    monkeypatch.setattr(cursor, "_CHUNK_RECORDS", 77)
    monkeypatch.setattr(cursor, "_CHUNK_BYTES", 300)
    assert verdicts(schema, bodies) == whole
    assert columns_of(schema, bodies) == columns


def test_no_records_and_only_nulls_are_fine() -> None:
    assert verdicts("string", []) == []
    assert verdicts("string", [None, None]) == [True, True]
    assert columns_of(LIST | {"fields": LIST["fields"][:1]}, []).to_pylist() == []


# Where the specification says more than fastavro asks for


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("boolean", b"\x02"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("int", b"\x80\x80\x80\x80\x80\x01"),
        ("int", b"\x80\x80\x80\x80\x80\x00"),
        ("long", b"\x80" * 10 + b"\x01"),
        ("string", b"\x01"),
        ("bytes", b"\x05abc"),
        ("string", b"\x02\xff"),
        ("string", b"\x06\xed\xa0\x80"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04"),
        (["null", "int"], b"\x03"),
        (["null", "int"], b"\x04\x02"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x00"),
        ({"type": "array", "items": "int"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x02\x00"),
    ],
)
def test_what_the_specification_forbids_is_invalid_alone_and_among_others(schema: Any, body: bytes) -> None:
    assert verdicts(schema, [body]) == [False]
    assert verdicts(schema, [body] * 40) == [False] * 40


@pytest.mark.parametrize("records", [1, 40])
def test_blocks_of_an_array_may_say_their_size_and_come_one_after_the_other(records: int) -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "long"}}
    inner = b"\x03\x06\x02\x80\x01\x02\x02\x00"
    body = b"\x02" + inner + b"\x01" + b"\x10" + inner + b"\x00"
    assert verdicts(schema, [body] * records) == [True] * records
    assert fastavro_reads_all_of(schema, body) == ([[1, 64, 1], [1, 64, 1]],)


@pytest.mark.parametrize("records", [1, 40])
def test_items_without_bytes_are_counted_and_not_walked_through(records: int) -> None:
    schema = {"type": "array", "items": "null"}
    most = b"\x80\x89\x7a"
    assert verdicts(schema, [most + b"\x00"] * records) == [True] * records
    assert verdicts(schema, [most + b"\x02\x00"] * records) == [False] * records
    assert verdicts(schema, [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"] * records) == [False] * records
    assert verdicts(schema, [b"\x03\x02\x00"] * records) == [False] * records
    lists = {"type": "array", "items": schema}
    assert verdicts(lists, [b"\x02" + most + b"\x00\x00"] * records) == [True] * records
    assert verdicts(lists, [b"\x04" + (most + b"\x00") * 2 + b"\x00"] * records) == [False] * records


def test_a_schema_whose_values_double_at_each_step_is_refused() -> None:
    doubled: Any = {"type": "record", "name": "R0", "fields": []}
    for step in range(1, 41):
        fields = [{"name": "a", "type": doubled}, {"name": "b", "type": f"R{step - 1}"}]
        doubled = {"type": "record", "name": f"R{step}", "fields": fields}
    with pytest.raises(PermanentError, match="has more than 100,000 values"):
        verdicts(doubled, [b""])


def test_a_schema_whose_types_lie_too_deep_is_refused() -> None:
    fields: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": []}}]
    for step in range(1, 100_000):
        inside = [{"name": "a", "type": f"R{step - 1}"}]
        fields.append({"name": f"f{step}", "type": {"type": "record", "name": f"R{step}", "fields": inside}})
    with pytest.raises(PermanentError, match="lie 100001 deep, read are 200"):
        verdicts({"type": "record", "name": "R", "fields": fields}, [b""])
    nested: Any = "long"
    for _ in range(900):
        nested = {"type": "array", "items": nested}
    with pytest.raises(PermanentError, match=r"lie (901|more than 200) deep"):
        verdicts(nested, [b"\0"])


@pytest.mark.parametrize("records", [1, 40])
def test_items_of_one_size_are_stepped_over_at_once(records: int) -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": n, "type": "double"} for n in "xyz"]}
    schema = {"type": "array", "items": point}
    body = written(schema, [{"x": 1.0, "y": 2.0, "z": 3.0}] * 1_000)[0]
    assert verdicts(schema, [body] * records) == [True] * records
    assert verdicts(schema, [body[:-1]] * records) == [False] * records
    assert verdicts(schema, [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + body] * records) == [False] * records


# Recursion


def listed(length: int) -> bytes:
    return b"\x02\x02" * (length - 1) + b"\x02\x00"


@pytest.mark.parametrize("records", [1, 40])
def test_a_type_inside_itself_is_followed_to_a_limit(records: int) -> None:
    deepest = MAX_DEPTH // 3
    assert written(LIST, {"head": 1, "tail": {"head": 1, "tail": None}}) == [listed(2)]
    assert verdicts(LIST, [listed(deepest)] * records) == [True] * records
    assert verdicts(LIST, [listed(100_000)] * records) == [False] * records
    assert verdicts(LIST, [listed(deepest)[:-1]] * records) == [False] * records


def test_the_limit_is_the_same_alone_and_among_others() -> None:
    bodies = [listed(i) for i in range(1, 200)]
    assert verdicts(LIST, bodies) == [v for body in bodies for v in verdicts(LIST, [body])]
    assert 50 < sum(verdicts(LIST, bodies)) < 199


def test_trees_of_all_shapes_are_followed() -> None:
    def tree(chance: random.Random, depth: int) -> Any:
        return {"name": "ü" * depth, "children": [tree(chance, depth - 1) for _ in range(chance.randrange(depth + 1))]}

    bodies = written(TREE, *[tree(random.Random(i), i % 5) for i in range(200)])
    assert all(verdicts(TREE, bodies))
    assert not any(verdicts(TREE, [body[:-1] for body in bodies]))


def test_a_record_that_holds_itself_has_no_datum() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    assert verdicts(schema, [b"", b"\0"]) == [False, False]


# Names


def test_names_are_found_in_their_namespaces() -> None:
    schema = {
        "type": "record",
        "name": "x.Outer",
        "fields": [
            {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "b", "type": {"type": "record", "name": "y.Inner", "fields": [{"name": "c", "type": "x.E"}]}},
            {"name": "d", "type": ["null", "E", "y.Inner"]},
        ],
    }
    value = {"a": "A", "b": {"c": "A"}, "d": {"c": "A"}}
    assert verdicts(schema, written(schema, value)) == [True]


def test_a_type_that_is_not_defined_is_named() -> None:
    with pytest.raises(PermanentError, match=r"names the type shop\.Order, which"):
        check_bodies({"type": "array", "items": "shop.Order"}, pa.array([b""]), 0)


# Cost


def test_one_long_array_and_garbage_cost_no_more_than_their_bytes() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "int"}}
    long = written(schema, [[1] * 100_000, *[[]] * 100_000])
    short = written(schema, *[[[i]] for i in range(5_000)])
    garbage = [random.Random(i).randbytes(200) for i in range(5_000)]
    started = time.process_time()
    assert verdicts(schema, [*short, *long, *garbage])[:5_001] == [True] * 5_001
    assert time.process_time() - started < 5


# Columns


@UNHURRIED
@given(data(flat=True))
def test_columns_hold_what_fastavro_reads(found: tuple[Any, list[Any]]) -> None:
    schema, values = found
    bodies = written(schema, *values)
    rows = [row for body in bodies for row in (body, None, body + b"\0")]
    columns = columns_of(schema, rows)
    read = [fastavro_reads_all_of(schema, body)[0] for body in bodies]
    assert columns.to_pylist() == [row for value in read for row in (value, None, None)]


@UNHURRIED
@given(data(flat=True), st.randoms(use_true_random=False))
def test_a_row_is_null_where_the_datum_is_invalid(found: tuple[Any, list[Any]], chance: random.Random) -> None:
    schema, values = found
    damaged = [damage(body, chance) for body in written(schema, *values)]
    assert columns_of(schema, damaged).is_valid().to_pylist() == verdicts(schema, damaged)


def test_columns_have_the_physical_types() -> None:
    types = {
        "a": {"type": "long", "logicalType": "timestamp-millis"},
        "b": {"type": "int", "logicalType": "date"},
        "c": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "d": {"type": "fixed", "name": "F", "size": 3},
        "e": ["F", "null"],
        "f": "float",
        "g": "null",
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in types.items()]}
    body = b"\x02\x02\x04\x01\x02xyz\x00xyz" + struct.pack("<f", 0.5)
    columns = columns_of(schema, [body])
    assert columns.to_pylist() == [{"a": 1, "b": 1, "c": b"\x01\x02", "d": b"xyz", "e": b"xyz", "f": 0.5, "g": None}]
    expected = [pa.int64(), pa.int32(), pa.binary(), pa.binary(3), pa.binary(3), pa.float32(), pa.null()]
    assert [f.type for f in columns.type] == expected


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        LIST,
        {"type": "record", "name": "R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "map", "values": "int"}}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int", "string"]}]},
    ],
)
def test_what_has_no_simple_columns_is_left_to_others(schema: Any) -> None:
    assert read_columns(schema, pa.array([b""]), 0) is None


def test_records_are_not_told_apart_by_what_follows_them() -> None:
    body = written("long", 2**40)[0]
    for end in range(1, len(body)):
        assert not verdicts("long", [body[:end], body[end:]])[0]
    assert np.array_equal(check_bodies("long", pa.array([body[:-1], body]), 0), [False, True])
