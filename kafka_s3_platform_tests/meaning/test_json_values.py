"""JSON with its schema beside it, and JSON without one, mean in every format what their text says."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform_tests.meaning.agreement import check_column, check_json
from kafka_s3_platform_tests.meaning.connect_json import envelopes, read_outline, read_payload, read_tree
from kafka_s3_platform_tests.meaning.harness import (
    CONVERTERS,
    INSERT,
    INSERTED,
    Archived,
    archive,
    convert,
    framed,
    read_connector,
    registered,
    restore,
)
from kafka_s3_platform_tests.meaning.json_schemas import find_lost, schemas_and_instances
from kafka_s3_platform_tests.meaning.readers import READERS


def archived(output: str, schema: Any, payloads: Sequence[Any]) -> Archived:
    bodies = [json.dumps({"schema": schema, "payload": payload}).encode() for payload in payloads]
    return archive(read_connector(output, "JSON"), (), bodies, cut=len(bodies) // 2)


def check_envelopes(output: str, schema: Any, payloads: Sequence[Any]) -> None:
    """Compare what an object holds of each payload with what its text means."""
    meant = [read_payload(schema, payload) for payload in payloads]
    found = archived(output, schema, payloads)
    assert not found.refused
    if output == "parquet":
        _check_columns(schema, payloads, meant, found)
    elif output in READERS:
        for offsets, body in found.objects():
            for offset, read in _pair(offsets, READERS[output](body)):
                assert _find_meaning(schema, read) == meant[offset]
    if output not in ("json", "block_gzip", "parquet"):
        check_sent(schema, meant, found)


def _find_meaning(schema: Any, read: Any) -> Any:
    """What a value means that was read in an object: Avro's with its types, a line, or what JSON was parsed to."""
    if isinstance(read, tuple):
        return read_tree(schema, read[0], read[0].root, read[1])
    return read_payload(schema, json.loads(read) if isinstance(read, bytes) else read)


def _check_columns(schema: Any, payloads: Sequence[Any], meant: Sequence[Any], found: Archived) -> None:
    """Compare columns with what an object of Avro holds, and that with what the text means."""
    trees = [read for _, body in archived("avro", schema, payloads).objects() for read in READERS["avro"](body)]
    columns = [read for _, body in found.objects() for read in READERS["parquet"](body)]
    for (types, value), one, column in zip(trees, meant, columns, strict=True):
        assert read_tree(schema, types, types.root, value) == one
        check_column(types, types.root, value, column)


def check_sent(schema: Any, meant: Sequence[Any], found: Archived) -> None:
    """Restore with a field more, and compare the payloads that are sent."""
    restored = restore(found.config, (), found.decoded(), CONVERTERS["JSON"] | INSERT)
    assert not restored.refused
    for offset, (body, _) in restored.values.items():
        assert body is not None
        sent = json.loads(body)
        fields = [field for field in sent["schema"]["fields"] if field["field"] != INSERTED]
        assert sent["payload"].pop(INSERTED) == "x"
        if found.config.layout.is_envelope:
            assert read_outline({**sent["schema"], "fields": fields}) == read_outline(schema)
        assert read_payload(schema, sent["payload"]) == meant[offset]


@pytest.mark.parametrize("output", ["avro", "json", "parquet", "block_gzip", "envelope.json"])
@given(envelopes())
def test_any_payload_of_any_schema_means_what_its_text_says(output: str, drawn: Any) -> None:
    check_envelopes(output, *drawn)


def check_json_schema(output: str, schema: Any, values: Sequence[Any]) -> None:
    """Compare what an object of Avro holds with the values' own text, and all other formats with that object."""
    schemas = [registered(7, schema, kind="JSON")]
    bodies = [framed(7, json.dumps(value).encode()) for value in values]
    found = archive(read_connector("avro", "JSON_SR"), schemas, bodies)
    read = {offset: one for offsets, body in found.objects() for offset, one in _pair(offsets, READERS["avro"](body))}
    assert read.keys() | found.refused.keys() == set(range(len(values)))
    lost = [each for offset, (_, one) in read.items() for each in find_lost(values[offset], one)]
    assert not lost or found.told, f"{lost} is lost, and nobody is told"
    assert all(re.search("does not fit its schema|, which is required", reason) for reason in found.refused.values())
    if output == "envelope.json":
        _check_sent_values(archive(read_connector(output, "JSON_SR"), schemas, bodies), values)
    elif output != "avro":
        check_others(output, archive(read_connector(output, "JSON_SR"), schemas, bodies), read)


def _check_sent_values(found: Archived, values: Sequence[Any]) -> None:
    """Restore with a field more. What a value lacks then was told when it was read."""
    batches = found.decoded()
    restored = restore(found.config, found.schemas, batches, CONVERTERS["JSON_SR"] | INSERT)
    lost = [
        each
        for offset, (body, _) in restored.values.items()
        for each in find_lost(values[offset], json.loads((body or b"")[5:]))
    ]
    notes = convert(found.config, found.schemas, [framed(7, json.dumps(value).encode()) for value in values]).notes
    assert not lost or notes.sentences, f"{lost} is lost, and nobody is told"


def check_others(output: str, found: Archived, read: Mapping[int, Any]) -> None:
    for offsets, body in found.objects():
        for offset, one in _pair(offsets, READERS[output](body)):
            types, value = read[offset]
            if output == "parquet":
                check_column(types, types.root, value, one)
            else:
                check_json(types, types.root, value, one)


def _pair(offsets: Sequence[int], values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    return zip(offsets, values, strict=True)


@pytest.mark.parametrize("output", ["avro", "json", "parquet", "envelope.json"])
@given(schemas_and_instances())
def test_any_valid_value_of_any_json_schema_is_kept_or_refused(output: str, drawn: Any) -> None:
    check_json_schema(output, *drawn)


_NUMBERS = ("0", "-7", "1.0", "0.1", "1e5", "9007199254740993", "1" * 30, "1e400", "1e-400", "0." + "1" * 25, "-0.0")


@st.composite
def json_texts(draw: Any, depth: int = 2) -> str:
    """Texts of objects as somebody types them: with any numbers, with spaces, and with a key twice."""
    gap = draw(st.sampled_from(["", " ", "\n"]))
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3))
    pairs = [f"{gap}{json.dumps(name)}:{gap}{draw(_parts(depth))}" for name in names]
    return "{" + f"{gap},".join(pairs) + "}"


def _parts(depth: int) -> st.SearchStrategy[str]:
    plain = st.sampled_from([*_NUMBERS, "true", "null", '""', '"\\u0000\\u00e9"', '"1"'])
    if not depth:
        return plain
    lists = st.lists(_parts(depth - 1), max_size=2).map(lambda parts: f"[{','.join(parts)}]")
    return plain | json_texts(depth - 1) | lists


def read_exactly(text: bytes) -> Any:
    """Read JSON without losing a digit, a key, or whether a number is whole by its text."""
    return json.loads(text, parse_float=lambda digits: ("real", Decimal(digits)), object_pairs_hook=tuple)


@given(st.lists(json_texts(), min_size=1, max_size=3))
def test_json_without_a_schema_keeps_each_digit_and_key_or_its_record_fails(texts: list[str]) -> None:
    meant = [read_exactly(text.encode()) for text in texts]
    for output in ("json", "envelope.json"):
        found = archive(read_connector(output, "PLAIN_JSON"), (), [text.encode() for text in texts])
        assert not found.refused
        if output == "json":
            assert [read_exactly(line) for _, body in found.objects() for line in body.splitlines()] == meant
        restored = restore(found.config, (), found.decoded(), CONVERTERS["PLAIN_JSON"] | INSERT)
        assert restored.values.keys() | restored.refused.keys() == set(range(len(texts)))
        for offset, (body, _) in restored.values.items():
            assert read_exactly(body or b"") == (*meant[offset], (INSERTED, "x"))
