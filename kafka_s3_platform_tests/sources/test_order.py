"""In which order records of objects come back, and at which offsets: as objects tell them, or as their names do."""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.formats.kept_offsets import KeptOffsets, OffsetRuns
from kafka_s3_platform.core.layouts.segment_key import make_offsets_key
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.model.offsets import MAX_OFFSET
from kafka_s3_platform_tests.formats.connect import decoded
from kafka_s3_platform_tests.formats.records import rows_of
from kafka_s3_platform_tests.sources.memory import BLOCKS, FOLDER, blocks_of, object_of, source, stream

AIVEN: dict[str, Any] = {"key_layout": "template", "topics_dir": "", "extension": "", "format": "aiven.jsonl"}
NAMED = {**AIVEN, "file_name_template": "{{topic}}-{{partition}}-{{start_offset}}"}
UNNAMED = {**AIVEN, "file_name_template": "{{topic}}-{{partition}}-{{any}}"}
JSON = {"format": "json"}


def aiven(layout: Mapping[str, Any], **own: Any) -> ConnectorConfig:
    return source(layout, fields=("key", "value", "offset"), **own)


def told(*offsets: int) -> bytes:
    return b"".join(b'{"key":"k","value":%d,"offset":%d}\n' % (o, o) for o in offsets)


def lines(*numbers: int) -> bytes:
    return b"".join(b"%d\n" % n for n in numbers)


def rows(found: ForeignStream) -> list[tuple[int, int]]:
    """Offset and value of each record."""
    return [(row["offset"], int(row["value"])) for batch in found for row in rows_of(batch)]


def same(offsets: Sequence[int]) -> list[tuple[int, int]]:
    return [(o, o) for o in offsets]


REBALANCED = {"t-0-0": told(*range(10)), "t-0-5": told(*range(5, 15))}


def test_a_record_whose_offset_was_there_already_is_bad_and_comes_once() -> None:
    with pytest.raises(IntegrityError, match=r"t-0: object t-0-5: it holds offset 5 and 4 others again"):
        rows(stream(aiven(NAMED), REBALANCED))
    for behavior in ("ignore", "log"):
        found = stream(aiven(NAMED, behavior_on_error=behavior), REBALANCED)
        assert rows(found) == same(range(15))
        assert (found.report.skipped_record_count, found.report.position_count) == (5, 0)
        assert "object t-0-5: it holds offset 5 and 4 others again" in found.report.skipped_records[0]


def test_a_window_of_offsets_goes_by_those_that_records_tell() -> None:
    found = stream(aiven(NAMED, behavior_on_error="ignore"), REBALANCED, 0, 12, by_offset=True)
    assert rows(found) == same(range(12))


def test_objects_that_take_turns_are_merged_by_the_offsets_of_their_records() -> None:
    found = stream(aiven(NAMED), {"t-0-0": told(0, 2, 4), "t-0-1": told(1, 3, 5)})
    assert rows(found) == same(range(6))
    assert not any("order" in note or "position" in note for note in found.report.list_notes(aiven(NAMED)))


def test_a_record_that_tells_no_offset_among_those_that_do_is_bad() -> None:
    objects = {"t-0-0": told(0, 1) + b'{"key":"k","value":2}\n'}
    with pytest.raises(IntegrityError, match=r"(has|tells) no offset"):
        rows(stream(aiven(NAMED), objects))
    assert rows(stream(aiven(NAMED, behavior_on_error="ignore"), objects)) == same(range(2))


def test_an_object_that_holds_offsets_below_its_name_is_bad() -> None:
    with pytest.raises(IntegrityError, match="object t-0-5 holds offset 3, but by its name it begins at 5"):
        rows(stream(aiven(NAMED), {"t-0-5": told(5, 3)}))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=40),
    st.booleans(),
    st.integers(0, 31),
)
def test_whatever_objects_tell_each_offset_comes_once_in_order_from_any_offset_on(
    held: list[tuple[int, int]], named: bool, start: int
) -> None:
    """Also where an object's own offsets go back, and where no name tells where it begins."""
    objects, wanted = {}, sorted({offset for _, offset in held})
    for number in {number for number, _ in held}:
        offsets = [offset for own, offset in held if own == number]
        objects[f"t-0-{min(offsets)}" if named else f"t-0-part-{number}"] = told(*offsets)
    config = aiven(NAMED if named else UNNAMED, behavior_on_error="ignore")
    there = [int(json.loads(line)["offset"]) for body in objects.values() for line in body.splitlines()]
    wanted = sorted(set(there))
    whole = stream(config, objects)
    assert rows(whole) == same(wanted)
    assert whole.report.skipped_record_count == len(there) - len(wanted)
    assert rows(stream(config, objects, start)) == same([o for o in wanted if o >= start])


HOUR = "topics/t/year=2026/month=01/day=01/hour="


def test_objects_of_others_that_overlap_in_one_folder_are_refused_and_in_two_they_are_told() -> None:
    config = source({**JSON, "partitioner": "Hourly"})
    first = {f"{HOUR}12/t+0+0.json": lines(*range(10))}
    with pytest.raises(IntegrityError, match=r"hour=12/t\+0\+5.json begins at offset 5, .* up to 9: .* come twice"):
        rows(stream(config, first | {f"{HOUR}12/t+0+5.json": lines(*range(5, 15))}))
    two = first | {f"{HOUR}13/t+0+5.json": lines(*range(5, 15))}
    found = stream(config, two)
    assert [value for _, value in rows(found)] == [*range(10), *range(5, 15)]
    (note,) = (n for n in found.report.list_notes(config) if n.startswith("order differs"))
    assert "hour=13/t+0+5.json begins at offset 5, those before it reach 9" in note


def test_a_window_of_offsets_is_refused_where_objects_lie_between_one_another_and_nothing_tells_how() -> None:
    config = source({**JSON, "partitioner": "Hourly"})
    objects = {f"{HOUR}12/t+0+0.json": lines(*range(10)), f"{HOUR}13/t+0+5.json": lines(*range(5, 15))}
    found = iter(stream(config, objects, 0, 12, by_offset=True))
    with pytest.raises(PreflightError, match="a window of offsets would choose others"):
        next(found)
    apart = {f"{HOUR}12/t+0+0.json": lines(*range(10)), f"{HOUR}13/t+0+10.json": lines(*range(10, 15))}
    assert rows(stream(config, apart, 3, 12, by_offset=True)) == same(range(3, 12))


@pytest.mark.parametrize(
    ("middle", "hole"),
    [
        ({}, (10, 20)),
        ({f"{FOLDER}0000000010.json": b""}, (10, 20)),
        ({f"{FOLDER}0000000010.json": lines(*range(10, 16))}, (16, 20)),
    ],
)
def test_offsets_between_two_objects_that_are_in_none_are_told(middle: dict[str, bytes], hole: tuple[int, int]) -> None:
    ends = {f"{FOLDER}{o:010d}.json": lines(*range(o, o + 10)) for o in (0, 20)}
    found = stream(source(JSON), ends | middle)
    assert rows(found) == same([o for o in range(30) if not hole[0] <= o < hole[1]])
    (gap,) = found.report.gaps
    assert gap.text.startswith(f"t-0: offsets [{hole[0]}, {hole[1]}) are in no object")
    inside = stream(source(JSON), ends | middle, 18, 30)
    assert rows(inside) == same(range(20, 30))
    assert [g.text.partition(" are")[0] for g in inside.report.gaps] == ["t-0: offsets [18, 20)"]


def test_no_gap_is_told_where_folders_lie_between_one_another() -> None:
    config = source({**JSON, "partitioner": "Hourly"})
    objects = {f"{HOUR}12/t+0+0.json": lines(0, 1), f"{HOUR}13/t+0+9.json": lines(9)}
    found = stream(config, objects)
    assert (rows(found), found.report.gaps) == (same([0, 1, 9]), [])


def test_without_any_offset_objects_are_read_by_their_names_as_people_count_and_that_is_said() -> None:
    layout = {**AIVEN, "format": "json", "file_name_template": "{{topic}}/{{any}}.json"}
    objects = {f"t/part-{n}.json": lines(n) for n in (10, 2, 1)}
    found = stream(source(layout), objects)
    assert [value for _, value in rows(found)] == [1, 2, 10]
    notes = found.report.list_notes(source(layout))
    assert any(note.startswith("order is by file") and "part-2 before part-10" in note for note in notes)
    assert not any("first offset in the object's name" in note for note in notes)


def kept(*offsets: int) -> dict[str, str]:
    runs = OffsetRuns()
    runs.add(np.array(offsets))
    return {"offsets": runs.text()}


V1 = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')
V2 = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}')


def test_two_schemas_in_turn_come_back_in_the_order_that_is_kept_with_their_objects() -> None:
    layout = {"format": "avro", "codec": "null"}
    one, two = [0, 1, 3, 5], [2, 4]
    objects = object_of(layout, decoded([{"a": n} for n in one], V1), 0, V1)
    objects |= object_of(layout, decoded([{"a": n, "b": 0} for n in two], V2), 2, V2)
    metadata = dict(zip(objects, [kept(*one), kept(*two)], strict=True))
    config = source(layout, records={"value": {"format": "AVRO"}})
    for start in range(7):
        found = stream(config, objects, start, metadata=metadata, by_offset=True)
        batches = list(found.batches())
        assert [(int(o), v["a"]) for b in batches for o, v in zip(b.offsets, b.value.objects, strict=True)] == same(
            range(start, 6)
        )
        assert (found.report.position_count, found.report.gaps) == (0, [])
    assert {s.text for b in stream(config, objects, metadata=metadata).batches() for s in b.value.schemas} == {
        V1.text,
        V2.text,
    }
    # Metadata without the list tell no more than where an object ends: it cannot be merged, and that is said.
    before = {
        key: {"last-offset": str(last), "record-count": str(count)}
        for key, last, count in zip(objects, (5, 4), (4, 2), strict=True)
    }
    found = stream(config, objects, metadata=before)
    assert [v["a"] for b in found.batches() for v in b.value.objects] == [*one, *two]
    assert any("order differs" in note for note in found.report.list_notes(config))
    with pytest.raises(PreflightError, match="a window of offsets would choose others"):
        rows(stream(config, objects, 2, 4, metadata=before, by_offset=True))


@pytest.mark.parametrize("values", [("STRING", '"string"'), ("AVRO", '["null","string"]')])
def test_objects_whose_values_are_of_several_kinds_are_merged_too(values: tuple[str, str]) -> None:
    """Text comes back as bytes, a record as a datum: no one array holds both."""
    layout = {"format": "avro", "codec": "null"}
    text = Schema(values[1])
    objects = object_of(layout, decoded(["0", "2"], text), 0, text)
    objects |= object_of(layout, decoded([{"a": 1}, {"a": 3}], V1), 1, V1)
    metadata = dict(zip(objects, [kept(0, 2), kept(1, 3)], strict=True))
    config = source(layout, records={"value": {"format": values[0]}})
    batches = list(stream(config, objects, metadata=metadata).batches())
    assert [int(o) for b in batches for o in b.offsets] == [0, 1, 2, 3]
    assert len([b for b in batches for _ in b.value.objects]) == 4


def test_offsets_that_are_kept_in_an_object_of_their_own_are_found_there_and_lost_ones_are_not_made_up() -> None:
    objects = {f"{FOLDER}0000000000.json": lines(0, 2), f"{FOLDER}0000000001.json": lines(1, 3)}
    metadata = {key: {"offsets": "beside"} for key in objects}
    beside = {
        make_offsets_key(key, "/"): kept(*held)["offsets"].encode()
        for key, held in zip(objects, [(0, 2), (1, 3)], strict=True)
    }
    found = stream(source(JSON), objects | beside, metadata=metadata)
    assert rows(found) == same(range(4))
    lost = stream(source(JSON), objects, metadata=metadata)
    assert [value for _, value in rows(lost)] == [0, 2, 1, 3]
    assert lost.report.position_count == 4


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "0", "0+", "0+1,1", "0+1,0,1", "-1+1", "0+9223372036854775808", "z!", "zAAAA", "0+1,1,1 ", "0+1,,1"),
        *("9223372036854775807+1", "0+9223372036854775807,9223372036854775807,3", "9223372036854775808+1"),
    ],
)
def test_what_is_kept_and_is_no_list_of_offsets_makes_a_bad_object(text: str) -> None:
    with pytest.raises(ValueError, match="is no list of offsets"):
        KeptOffsets.parse(text, 1000)


def test_offsets_that_come_to_more_than_is_read_or_are_of_another_object_make_a_bad_one() -> None:
    bomb = "z" + b64encode(zlib.compress(b"0+" + b"1," * 100_000 + b"1")).decode()
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        KeptOffsets.parse(bomb, 1000)
    with pytest.raises(ValueError, match="has more than 125 numbers"):
        KeptOffsets.parse("0+" + "1," * 200 + "1", 1000)
    assert KeptOffsets.parse("9223372036854775806+1", 1000).last == MAX_OFFSET - 1
    key = f"{FOLDER}0000000000.json"
    with pytest.raises(IntegrityError, match="by its name it begins at offset 0, by the list of its offsets at 7"):
        rows(stream(source(JSON), {key: lines(7)}, metadata={key: kept(7)}))
    with pytest.raises(IntegrityError, match="the list of its offsets cannot be read"):
        rows(stream(source(JSON), {key: lines(7)}, metadata={key: {"offsets": "nonsense"}}))
    with pytest.raises(IntegrityError, match="holds 1 records, but 2 by its metadata: it was cut off"):
        rows(stream(source(JSON), {key: lines(0)}, metadata={key: kept(0, 5)}))
    with pytest.raises(IntegrityError, match="holds more than the 1 records in its metadata"):
        rows(stream(source(JSON), {key: lines(0, 1)}, metadata={key: kept(0)}))


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=30), min_size=1, max_size=4))
def test_offsets_are_kept_whatever_holes_are_between_them(steps: list[list[int]]) -> None:
    offsets = np.cumsum([step for batch in steps for step in batch])
    runs = OffsetRuns()
    for part in np.split(offsets, np.cumsum([len(batch) for batch in steps])[:-1]):
        runs.add(part)
    found = KeptOffsets.parse(runs.text(), 10_000)
    assert found.of(0, found.count).tolist() == offsets.tolist()
    assert (found.first, found.last, found.count) == (offsets[0], offsets[-1], len(offsets))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=12).filter(lambda hours: set(hours) - {None}),
    st.integers(1, 3),
    st.integers(1, 20),
    st.sampled_from(["fail", "ignore"]),
)
def test_blocks_of_hours_in_turn_are_merged_and_only_those_of_a_window_are_read(
    hours: list[int | None], block: int, length: int, behavior: str
) -> None:
    objects, metadata = {}, {}
    for hour in (0, 1):
        offsets = [offset for offset, own in enumerate(hours) if own == hour]
        if offsets:
            key = f"{HOUR}{hour:02d}/t+0+{offsets[0]:010d}"
            held = [offsets[at : at + block] for at in range(0, len(offsets), block)]
            objects[f"{key}.gz"], objects[f"{key}.index.json"] = blocks_of(held)
            metadata[f"{key}.gz"] = kept(*offsets)
    config = source(BLOCKS, behavior_on_error=behavior)
    there = [offset for offset, hour in enumerate(hours) if hour is not None]
    for start in range(len(hours) + 1):
        found = stream(config, objects, start, start + length, metadata=metadata, by_offset=True)
        assert rows(found) == same([o for o in there if start <= o < start + length])
