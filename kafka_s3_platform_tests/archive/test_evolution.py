"""Which schema records are written with: the rules of `schema.compatibility`, without any server."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.archive.evolution import SchemaTargets, adapt_values
from kafka_s3_platform.config.keys.layout import Compatibility
from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.model.record import RECORD_SCHEMA


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


def batch(versions: Sequence[int]) -> ConnectBatch:
    rows = [
        {"topic": "t", "partition": 0, "offset": n, "timestamp": 0, "timestampType": 0} for n in range(len(versions))
    ]
    records = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)
    return ConnectBatch(records, ConnectBatch.of(records).key, payload(versions))


def test_values_of_an_older_schema_get_the_defaults_of_the_newer_one() -> None:
    written = adapt_values(batch([1, 2]), version(2))
    assert list(written.value.objects) == [{"f1": "1", "f2": "?"}, {"f1": "2", "f2": "2"}]
    assert written.value.schemas == (version(2),)


def test_values_of_a_newer_schema_lose_the_fields_that_the_older_one_lacks() -> None:
    assert list(adapt_values(batch([2, 1]), version(1)).value.objects) == [{"f1": "2"}, {"f1": "1"}]


def test_values_that_have_the_schema_stay_as_they_came() -> None:
    given_batch = batch([2, 2])
    assert adapt_values(given_batch, version(2)) is given_batch


def test_an_order_of_versions_needs_versions() -> None:
    unknown = Payload(None, np.zeros(1, np.int32), (Schema('"string"'),), ["v"])
    assert SchemaTargets("BACKWARD").unordered(unknown).tolist() == [True]
    assert SchemaTargets("NONE").unordered(unknown).tolist() == [False]
