"""Which schema records are written with: the rules of `schema.compatibility`, without any server."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro.schema import strip_logical_types
from kafka_s3_platform.connect.segments.schema_targets import SchemaTargets
from kafka_s3_platform.core.config.settings import Compatibility
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Payload, Schema
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.schema import SubjectVersion
from kafka_s3_platform_tests.converters.values import archived, convert_rows, framed, of_archive


def version(number: int) -> Schema:
    """Version n has the fields f1 to fn; those after the first have a default."""
    fields = [{"name": f"f{n}", "type": "string", **({"default": "?"} if n > 1 else {})} for n in range(1, number + 1)]
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    return Schema(text, 100 + number, "t-value", number)


def payload(versions: Sequence[int | None]) -> Payload:
    known = sorted({v for v in versions if v})
    codes = np.array([NO_SCHEMA if v is None else known.index(v) for v in versions], np.int32)
    objects = [None if v is None else {f"f{n}": f"{v}" for n in range(1, v + 1)} for v in versions]
    return Payload(None, codes, tuple(version(v) for v in known), objects)


def targets(compatibility: Compatibility, *batches: Sequence[int | None]) -> list[int | None]:
    chooser = SchemaTargets(compatibility)
    found: list[int | None] = []
    for batch in batches:
        schemas, codes = chooser.choose(payload(batch))
        chosen = [schemas[c] for c in codes]
        found += [None if s is None else s.version for s in chosen]
    return found


@pytest.mark.parametrize(
    ("compatibility", "written"),
    [
        ("NONE", [1, 2, 1, 3, 2]),
        ("BACKWARD", [1, 2, 2, 3, 3]),
        ("FULL", [1, 2, 2, 3, 3]),
        ("FORWARD", [1, 1, 1, 1, 1]),
    ],
)
def test_records_are_written_with_the_schema_that_the_mode_says(
    compatibility: Compatibility, written: list[int]
) -> None:
    assert targets(compatibility, [1, 2, 1, 3, 2]) == written


def test_forward_goes_back_to_an_older_schema_that_comes_later() -> None:
    assert targets("FORWARD", [3, 2, 3, 1, 2]) == [3, 2, 2, 1, 1]


@pytest.mark.parametrize("compatibility", ["NONE", "BACKWARD", "FORWARD", "FULL"])
def test_a_record_of_the_version_that_is_reached_keeps_its_own_schema(compatibility: Compatibility) -> None:
    """A transform of some records gives one version two schemas: records lost the fields that the other one lacks."""
    one, two = version(1), version(2)
    changed = replace(two, version=1)
    chooser = SchemaTargets(compatibility)
    written = []
    for codes in ([0, 1, 0], [1], [0, 1]):
        schemas, chosen = chooser.choose(Payload(None, np.array(codes, np.int32), (one, changed), [{}] * len(codes)))
        written += [schemas[code] for code in chosen]
    assert written == [one, changed, one, changed, one, changed]


SUBJECTS = [("shop.Placed", 1), ("shop.Paid", 2), ("shop.Placed", 1), ("shop.Paid", 1), ("shop.Placed", 3)]
"""Subjects and versions of the records of a topic with several types of events."""


@pytest.mark.parametrize(
    ("compatibility", "written"),
    [("BACKWARD", [1, 2, 1, 2, 3]), ("FULL", [1, 2, 1, 2, 3]), ("FORWARD", [1, 2, 1, 1, 1]), ("NONE", [1, 2, 1, 1, 3])],
)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_versions_are_compared_within_one_subject(compatibility: Compatibility, written: list[int], size: int) -> None:
    """The value of one type was written with the newer version of another, and lost its own fields."""
    chooser = SchemaTargets(compatibility)
    chosen: list[Schema | None] = []
    for start in range(0, len(SUBJECTS), size):
        schemas = [replace(version(number), subject=subject) for subject, number in SUBJECTS[start : start + size]]
        codes = np.arange(len(schemas), dtype=np.int32)
        found, targets = chooser.choose(Payload(None, codes, schemas, [{}] * len(schemas)))
        chosen += [found[code] for code in targets]
    assert [(s.subject, s.version) for s in chosen if s] == [
        (subject, number) for (subject, _), number in zip(SUBJECTS, written, strict=True)
    ]


def test_fields_that_the_chosen_version_lacks_are_told() -> None:
    notes = Notes()
    SchemaTargets("FORWARD", notes).project(payload([1, 3, 1, 3]))
    [said] = notes.sentences
    assert said == (
        "2 records of version 3 of subject t-value are written without the fields that version 1 lacks, which"
        " schema.compatibility=FORWARD chose for them (the first one: f2, f3)"
    )


def test_a_value_keeps_the_branch_of_its_union_in_an_older_and_in_the_newest_version() -> None:
    """The first type that fits was taken, also for the records of the newest version of the same batch."""
    ways: list[Any] = [{"type": "record", "name": name, "fields": []} for name in ("Card", "Cash")]
    old, new = (
        {"type": "record", "name": "Paid", "fields": [{"name": "by", "type": ways}, *more]}
        for more in ([], [{"name": "at", "type": "long", "default": 0}])
    )
    records: list[tuple[int, Any]] = [(2, {"by": ("Cash", {}), "at": 5}), (1, {"by": ("Cash", {})})]
    assert write(("AVRO", [old, new]), *records) == [records[0], (2, {"by": ("Cash", {}), "at": 0})]


def test_tombstones_have_no_schema_and_change_none() -> None:
    assert targets("BACKWARD", [2, None, 1], [None, 1]) == [2, None, 2, None, 2]


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.sampled_from(["NONE", "BACKWARD", "FORWARD", "FULL"]),
)
def test_how_records_are_batched_changes_nothing(
    versions: list[int | None], cuts: list[int], compatibility: Compatibility
) -> None:
    bounds = sorted({0, *(c for c in cuts if c < len(versions)), len(versions)})
    batches = [versions[a:b] for a, b in pairwise(bounds)]
    assert targets(compatibility, *batches) == targets(compatibility, versions)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=200))
def test_schemas_that_take_turns_give_no_more_rows_of_objects_than_there_are_schemas(versions: list[int]) -> None:
    chooser = SchemaTargets("NONE")
    schemas, codes = chooser.choose(payload(versions))
    assert len({schemas[c] for c in codes}) == len(set(versions))


def test_values_of_an_older_schema_get_the_defaults_of_the_newer_one() -> None:
    written = SchemaTargets("BACKWARD").project(payload([2, 1]))
    assert list(written.objects) == [{"f1": "2", "f2": "2"}, {"f1": "1", "f2": "?"}]
    assert [written.schemas[code] for code in written.codes] == [version(2)] * 2


def test_values_of_a_newer_schema_lose_the_fields_that_the_older_one_lacks() -> None:
    assert list(SchemaTargets("FORWARD").project(payload([1, 2])).objects) == [{"f1": "1"}, {"f1": "2"}]


def test_values_that_have_the_schema_stay_as_they_came() -> None:
    given_values = payload([2, 2])
    assert SchemaTargets("BACKWARD").project(given_values) is given_values


Registered = tuple[str, Sequence[Any]]
"""The schemas of a subject, by version, in the registry's name of their kind."""


def write(
    versions: Registered,
    *records: tuple[int, Any],
    compatibility: Compatibility = "BACKWARD",
    notes: Notes | None = None,
) -> list[Any]:
    """Return each record as it is written: the version of its schema and its value."""
    kind, schemas = versions
    registered = [
        archived(kind, json.dumps(schema), at, SubjectVersion("t-value", at, None))
        for at, schema in enumerate(schemas, 1)
    ]
    rows = []
    for number, value in records:
        body = io.BytesIO()
        if kind == "AVRO":
            fastavro.schemaless_writer(body, strip_logical_types(schemas[number - 1]), value)
        else:
            body.write(json.dumps(value).encode())
        rows.append(framed(number, body.getvalue()))
    found = convert_rows(of_archive("AVRO" if kind == "AVRO" else "JSON_SR", *registered), rows)
    assert not found.failures
    written = SchemaTargets(compatibility, notes).project(found.payload)
    return [(written.schemas[c].version, value) for c, value in zip(written.codes, written.objects, strict=True)]


def avro_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


AMOUNT = logical("bytes", "decimal", precision=10, scale=2)
AT = logical("long", "timestamp-millis")


@pytest.mark.parametrize("compatibility", ["BACKWARD", "FORWARD", "FULL"])
@pytest.mark.parametrize(
    ("old", "new", "one", "two"),
    [
        (AMOUNT, logical("bytes", "decimal", precision=12, scale=4), b"\x04\xd2", b"\x01\xe2\x08"),
        (AT, logical("long", "timestamp-micros"), 1000, 1_000_000),
        ("long", AT, 1, 1000),
        (logical("int", "date"), AT, 1, 86_400_000),
        ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, "long", 1, 1),
    ],
)
def test_a_value_that_would_mean_something_else_keeps_its_own_schema(
    compatibility: Compatibility, old: Any, new: Any, one: Any, two: Any
) -> None:
    """12.34 became 0.1234: the bytes of a decimal were written with another scale."""
    versions = ("AVRO", [avro_field(old), avro_field(new)])
    records = [(2, {"v": two}), (1, {"v": one}), (2, {"v": two})]
    assert write(versions, *records, compatibility=compatibility) == records


def test_a_value_that_the_chosen_schema_cannot_hold_keeps_its_own_and_the_others_are_projected() -> None:
    """Such a value stopped its range for ever."""
    versions = ("AVRO", [avro_field(["null", "long"]), avro_field("double")])
    records = [(2, {"v": 0.5}), (1, {"v": None}), (1, {"v": 7}), (1, {"v": (1 << 53) + 1})]
    assert write(versions, *records) == [(2, {"v": 0.5}), (1, {"v": None}), (2, {"v": 7.0}), records[3]]


def test_records_that_are_kept_apart_are_told() -> None:
    versions = ("AVRO", [avro_field(["null", "long"]), avro_field("double")])
    notes = Notes()
    write(versions, (2, {"v": 0.5}), (1, {"v": None}), (1, {"v": None}), notes=notes)
    [said] = notes.sentences
    assert said == (
        "2 records of version 1 of subject t-value keep their own schema, apart from version 2, which"
        " schema.compatibility=BACKWARD chose for them (the first one: field v is null and cannot be made into double)"
    )


MILLIS: Any = {"type": "integer", "title": "io.debezium.time.Timestamp", "connect.type": "int64"}
NAME: Any = {"type": "object", "properties": {"name": {"type": "string"}}}
ZIP: Any = {"type": "object", "properties": {"zip": {"type": "string"}}}
EVA = {"name": "Eva"}


def json_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("old", "new", "value", "written"),
    [
        (json_object(c=NAME), json_object(a=ZIP, c=NAME), {"c": EVA}, {"a": None, "c": EVA}),
        (
            json_object(c={"type": "array", "items": NAME}),
            json_object(a={"type": "array", "items": ZIP}, c={"type": "array", "items": NAME}),
            {"c": [EVA]},
            {"a": None, "c": [EVA]},
        ),
        (
            json_object(c={**NAME, "title": "Party"}),
            json_object(a={**ZIP, "title": "Party"}, c={**NAME, "title": "Party"}),
            {"c": EVA},
            {"a": None, "c": EVA},
        ),
    ],
)
def test_an_object_of_json_schema_is_known_by_its_place_and_not_by_a_number_made_up_for_it(
    old: Any, new: Any, value: Any, written: Any
) -> None:
    empty = dict.fromkeys(new["properties"])
    assert write(("JSON", [old, new]), (2, {}), (1, value)) == [(2, empty), (2, written)]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ({**NAME, "title": "Customer"}, {**NAME, "title": "Client"}, EVA),
        (json_object(v={}), json_object(v={"type": "string"}), {"v": "text"}),
        (json_object(v=MILLIS), json_object(v={**MILLIS, "title": "io.debezium.time.MicroTimestamp"}), {"v": 1}),
    ],
)
def test_a_json_value_whose_meaning_changed_keeps_its_own_schema(old: Any, new: Any, value: Any) -> None:
    """Text that is the JSON of any value became text itself; a changed title at the root stopped the range."""
    ((first, _), (second, _)) = write(("JSON", [old, new]), (2, value), (1, value))
    assert (first, second) == (2, 1)


def test_an_order_of_versions_needs_versions() -> None:
    unknown = Payload(None, np.zeros(1, np.int32), (Schema('"string"'),), ["v"])
    assert SchemaTargets("BACKWARD").find_versionless(unknown).tolist() == [True]
    assert SchemaTargets("NONE").find_versionless(unknown).tolist() == [False]
