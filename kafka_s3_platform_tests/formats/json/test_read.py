"""Lines, however they are cut into pieces; and which of them are JSON that is read."""

import io
import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.formats.json import JsonReader, split_lines
from kafka_s3_platform.model.json_values import find_maybe_deeper, is_deeper
from kafka_s3_platform.model.limits import NO_KEYS


@pytest.mark.parametrize("separator", [b"\n", b"||", b"aab"])
def test_lines_are_the_same_however_they_are_cut(separator: bytes) -> None:
    chance = random.Random(1)
    for _ in range(500):
        text = bytes(chance.choices(b"ab|\n", k=chance.randrange(200))) + separator
        cuts = sorted(chance.randrange(len(text)) for _ in range(chance.randrange(20)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        *ended, last = text.split(separator)
        expected = ended + [last] * bool(last)
        assert list(split_lines(iter(pieces), separator, "k", NO_KEYS, open_end=True)) == expected


def test_each_line_has_the_fault_that_it_would_have_alone() -> None:
    good = [msgspec.json.encode({"n": n, "rows": [[n]] * 400}) for n in range(20)]
    faulty = {
        3: b"[" * 251 + b"]" * 251,
        5: b"\xff",
        7: b'"\xff' + b"x" * 600 + b'"',
        9: b'{"a":' * 251 + b"1" + b"}" * 251,
        11: b"[" * 100_000,
        13: b"",
        15: b"1 2",
    }
    deepest = {1: b"[" * 250 + b"]" * 250, 2: b'"' + b"[" * 600 + b'"', 4: b"[" + b"[]," * 300 + b"[]]"}
    lines = [(faulty | deepest).get(row, line) for row, line in enumerate(good)]
    (batch,) = JsonReader(io.BytesIO(b"\n".join(lines) + b"\n"), "k").batches()
    assert set(batch.bad) == set(faulty)
    for row, why in batch.bad.items():
        (alone,) = JsonReader(io.BytesIO(faulty[row] + b"\n"), "k").batches()
        assert why == alone.bad[0].replace("line 1:", f"line {row + 1}:")
    assert "deeper than archive.read.max.depth=250" in batch.bad[3]


def test_no_text_that_is_deeper_is_missed() -> None:
    texts = [None, b"", b"[" * 251 + b"]" * 251, b"1", b"[" * 250 + b"]" * 250, b"[{" * 200 + b"}]" * 200, b"x" * 900]
    found = pa.array(texts, pa.binary())
    assert find_maybe_deeper(found, 250).tolist() == [2, 5]
    assert find_maybe_deeper(found.slice(3), 250).tolist() == [2]
    assert find_maybe_deeper(found.slice(3, 2), 250).tolist() == []
    assert find_maybe_deeper(pa.nulls(3, pa.binary()), 250).tolist() == []
    chance = random.Random(2)
    for _ in range(2000):
        text = msgspec.json.encode(_nested(chance, chance.randrange(60)))
        assert np.array_equal(find_maybe_deeper(pa.array([text]), 20), [0]) or not is_deeper(text, 20)


def _nested(chance: random.Random, depth: int) -> object:
    if not depth:
        return chance.choice(("]", 1, "[{"))
    inner = _nested(chance, depth - 1)
    return [inner] if chance.random() < 0.5 else {"k": inner, "l": []}
