"""What comes back of objects of values alone: exactly what they hold, or a fault by name."""

import base64
import gzip
import io
import json
import pickle
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform_tests.formats.connect import came, decoded, written, written_with_sidecars
from kafka_s3_platform_tests.formats.records import rows_of
from kafka_s3_platform_tests.sources.memory import (
    AVRO,
    BLOCKS,
    F1,
    FOLDER,
    GOOD,
    MemoryStore,
    blocks_of,
    decoded_values,
    flipped,
    lines_at,
    object_of,
    opened,
    restored,
    siblings,
    source,
    stream,
    values,
)

TEXT = Schema('"string"')
RICH = Schema(
    json.dumps(
        {
            "type": "record",
            "name": "Rich",
            "fields": [
                {"name": "n", "type": "long"},
                {"name": "maybe", "type": ["null", "string"], "default": None},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
                {"name": "list", "type": {"type": "array", "items": "int"}},
                {"name": "map", "type": {"type": "map", "values": "double"}},
                {
                    "name": "inner",
                    "type": {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes"}]},
                },
                {"name": "either", "type": ["null", "string", "long"]},
            ],
        }
    )
)
riches = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "maybe": st.none() | st.text(max_size=3),
        "at": st.integers(0, 2**41),
        "day": st.integers(0, 20_000),
        "money": st.integers(-(10**9) + 1, 10**9 - 1).map(
            lambda n: n.to_bytes((8 + (n + (n < 0)).bit_length()) // 8, "big", signed=True)
        ),
        "list": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "map": st.dictionaries(st.text(max_size=2), st.floats(allow_nan=False), max_size=2),
        "inner": st.fixed_dictionaries({"b": st.binary(max_size=3)}),
        "either": st.none()
        | st.tuples(st.just("string"), st.text(max_size=2))
        | st.tuples(st.just("long"), st.integers(-(2**40), 2**40)),
    }
)


@settings(deadline=None)
@given(st.lists(riches, max_size=20), st.sampled_from(["null", "deflate", "snappy", "bzip2", "zstd"]))
def test_avro_objects_come_back_as_their_values_with_their_schema(records: list[Any], codec: str) -> None:
    layout = {"format": "avro", "codec": codec}
    objects = object_of(layout, decoded(records, RICH), schema=RICH)
    config = source({"format": "avro"}, records={"value": {"format": "AVRO"}})
    assert decoded_values(config, objects) == records
    for batch in stream(config, objects).batches():
        assert batch.value.schemas[0].avro == RICH.avro
        assert batch.value.avro_start == 0
        assert batch.records.column("value").equals(batch.value.raw)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "snappy", "zstandard", "xz"])
def test_what_pythons_fastavro_wrote_is_read_and_what_was_damaged_of_it_is_told(codec: str) -> None:
    body = io.BytesIO()
    fastavro.writer(body, fastavro.parse_schema(F1.avro), GOOD, codec=codec)
    key, config = f"{FOLDER}0000000000.avro", source(AVRO, records={"value": {"format": "AVRO"}})
    whole = body.getvalue()
    assert decoded_values(config, {key: whole}) == GOOD
    # Between the block and the sync marker behind it: what is left of zlib's checksum, with deflate.
    for changed in (flipped(whole, len(whole) - 18, 1), whole[:-1]):
        if codec != "null" or len(changed) < len(whole):
            with pytest.raises(IntegrityError, match=r"\.avro"):
                decoded_values(config, {key: changed})


@settings(deadline=None)
@given(st.lists(riches, max_size=20), st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]))
def test_parquet_objects_come_back_as_their_values(records: list[Any], codec: str) -> None:
    layout = {"format": "parquet", "codec": codec}
    objects = object_of(layout, decoded(records, RICH), schema=RICH)
    config = source({"format": "parquet"}, records={"value": {"format": "AVRO"}})
    assert decoded_values(config, objects) == records


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())


@settings(deadline=None)
@given(st.lists(json_values, max_size=20), st.sampled_from(["none", "gzip", "bzip2", "zstd"]))
def test_json_lines_come_back_byte_for_byte(lines: list[bytes], codec: str) -> None:
    objects = object_of({"format": "json", "codec": codec}, came(lines, is_json=True))
    rows, report = restored(source({"format": "json"}), objects)
    assert values(rows) == list(enumerate(lines))
    assert report.position_count == report.timeless_count == len(lines)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), max_size=20), st.sampled_from(["none", "gzip", "bzip2", "zstd"]))
def test_bytes_behind_their_lengths_come_back_whatever_they_hold(records: list[bytes], codec: str) -> None:
    layout = {"format": "bytes", "codec": codec, "bytes_separator": "length"}
    rows, _ = restored(source({**layout, "codec": "none"}), object_of(layout, came(records)))
    assert values(rows) == list(enumerate(records))


def test_bytes_between_separators_come_back_and_the_report_says_what_that_proves() -> None:
    layout = {"format": "bytes", "bytes_separator": "--"}
    config = source(layout)
    rows, report = restored(config, object_of(layout, came([b"a\nb", b"", b"-c"])))
    assert values(rows) == [(0, b"a\nb"), (1, b""), (2, b"-c")]
    assert any("that none held it itself, and" in note for note in report.list_notes(config))


def test_block_gzip_tells_offsets_by_its_blocks() -> None:
    layout: dict[str, Any] = {"format": "block_gzip", "codec": "gzip", "block_size": 5}
    settings_ = LayoutSettings(**layout)
    found = written_with_sidecars(settings_, came([b"aa", b"bb", b"cc", b"dd"]))
    objects = {f"{FOLDER}0000000000.gz": found[""], f"{FOLDER}0000000000.index.json": found["index.json"]}
    rows, report = restored(source(layout), objects)
    assert values(rows) == [(0, b"aa"), (2, b"bb"), (4, b"cc"), (6, b"dd")]
    assert report.position_count == 0


@pytest.mark.parametrize("ending", ["index.json", "none"])
def test_lines_of_block_gzip_are_json_where_the_sink_decoded_json(ending: str) -> None:
    """As bytes, JsonConverter would write them to Kafka as texts of base64."""
    layout: dict[str, Any] = {"format": "block_gzip", "codec": "gzip", "block_size": 5}
    found = written_with_sidecars(LayoutSettings(**layout), came([b'{"n":1}', b'"a"', b"2"]))
    store = MemoryStore({f"{FOLDER}0000000000.gz": found[""], f"{FOLDER}0000000000.{ending}": found["index.json"]})
    config = source(layout, records={"value": {"format": "JSON"}})
    batches = list(stream(config, store).batches())
    assert [value for batch in batches for value in batch.value.objects] == [{"n": 1}, "a", 2]
    assert all(batch.value.raw_is_json for batch in batches)
    with pytest.raises(IntegrityError, match="line 2: is no JSON"):
        list(stream(config, {f"{FOLDER}0000000000.gz": gzip.compress(b"1\nno JSON\n")}))


def hours_of_blocks(hours: Sequence[int | None], block: int) -> dict[str, bytes]:
    """Objects of the hours that offsets 0, 1, ... are in, None where compaction has left a hole."""
    objects = {}
    for hour in range(3):
        offsets = [offset for offset, own in enumerate(hours) if own == hour]
        if offsets:
            key = f"topics/t/year=2026/month=01/day=01/hour={hour:02d}/t+0+{offsets[0]:010d}"
            held = [offsets[at : at + block] for at in range(0, len(offsets), block)]
            objects[f"{key}.gz"], objects[f"{key}.index.json"] = blocks_of(held)
    return objects


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=12).filter(lambda hours: set(hours) - {None}),
    st.integers(1, 3),
    st.integers(1, 20),
    st.sampled_from(["fail", "ignore"]),
)
def test_blocks_are_read_from_any_offset_to_any_other_and_offsets_stay_what_they_are(
    hours: list[int | None], block: int, length: int, behavior: str
) -> None:
    """Also where hours took turns, so that objects lie between one another: a resumed run counts as the first did."""
    store, config = MemoryStore(hours_of_blocks(hours, block)), source(BLOCKS, behavior_on_error=behavior)
    group = opened(config, store)
    whole = rows_of(ForeignStream(config, group, store))
    assert sorted(int(row["value"]) for row in whole) == [o for o, hour in enumerate(hours) if hour is not None]
    for start in range(whole[-1]["offset"] + 2):
        part = ForeignStream(config, group, store, start, start + length)
        found = rows_of(part)
        assert found == [row for row in whole if start <= row["offset"] < start + length]


def test_of_a_window_only_its_blocks_are_read() -> None:
    objects = hours_of_blocks([0] * 20 + [1] * 20, 5)
    store, config = MemoryStore(objects), source(BLOCKS)
    found = [int(row["value"]) for batch in stream(config, store, 10, 25) for row in rows_of(batch)]
    assert found == list(range(10, 25))
    assert [key[-13:] for key in store.reads] == ["0000000000.gz"] * 2 + ["0000000020.gz"]


def test_a_window_that_begins_in_the_middle_does_not_take_its_object_for_cut_off() -> None:
    objects = hours_of_blocks([0] * 20, 5)
    (key,) = (key for key in objects if key.endswith(".gz"))
    config = source(BLOCKS)
    for count, whole in (("20", True), ("21", False)):
        store = MemoryStore(objects, {key: {"record-count": count, "last-offset": "19"}})
        read = stream(config, store, 7, 12)
        if whole:
            assert [int(row["value"]) for batch in read for row in rows_of(batch)] == list(range(7, 12))
        else:
            with pytest.raises(IntegrityError, match="holds 20 records, but 21 by its metadata"):
                list(read)


def test_objects_of_text_give_the_bytes_that_were_in_kafka() -> None:
    for layout, schema in (({"format": "avro", "codec": "null"}, TEXT), ({"format": "json"}, TEXT)):
        objects = object_of(layout, decoded(["é", ""], schema), schema=schema)
        rows, _ = restored(source(layout, records={"value": {"format": "STRING"}}), objects)
        assert values(rows) == [(0, "é".encode()), (1, b"")]


def test_keys_and_headers_are_joined_with_their_values() -> None:
    headers = [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None]
    layout, objects = siblings([b"k1", b"k2"], headers, [b"1", b"2"])
    rows, _ = restored(source(layout), objects)
    assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in rows] == [
        (5, b"k1", b"1", headers[0]),
        (6, b"k2", b"2", None),
    ]


def test_keys_and_values_of_different_number_are_a_fault_of_the_object() -> None:
    layout, objects = siblings([b"k1", b"k2"], [None, None], [b"1", b"2"])
    objects[f"{FOLDER}0000000005.keys.bin"] += b"k3\n"
    with pytest.raises(IntegrityError, match=r"t-0: object .*t\+0\+0000000005.json has fewer records of value"):
        restored(source(layout), objects)
    rows, report = restored(source(layout, behavior_on_error="ignore"), objects)
    assert (rows, len(report.skipped_objects)) == ([], 1)


def test_tombstones_come_back_as_keys_without_values() -> None:
    layout = {"format": "json", "keys_format": "bytes"}
    objects = {
        f"{FOLDER}0000000000.json": b"1\n2\n",
        f"{FOLDER}0000000000.keys.bin": b"a\nc\n",
        "topics/t/tombstone/t+0+0000000001.keys.bin": b"b\n",
    }
    config = source(layout)
    rows, report = restored(config, objects)
    assert [(r["offset"], r["key"], r["value"]) for r in rows] == [(0, b"a", b"1"), (1, b"c", b"2"), (2, b"b", None)]
    assert any("1 records without a value" in note for note in report.list_notes(config))


def test_offsets_are_counted_from_the_first_of_each_object() -> None:
    rows, report = restored(source({"format": "json"}), lines_at(30, 0, 10))
    assert [r["offset"] for r in rows] == [0, 1, 10, 11, 30, 31]
    assert [int(r["value"]) for r in rows] == [0, 1, 10, 11, 30, 31]
    assert report.position_count == 6


def test_objects_of_ours_without_holes_prove_their_offsets() -> None:
    metadata = {f"{FOLDER}0000000010.json": {"first-offset": "10", "last-offset": "11", "record-count": "2"}}
    _, report = restored(source({"format": "json"}), lines_at(0, 10), metadata=metadata)
    assert report.position_count == 2


def test_objects_that_reach_into_the_next_one_would_give_records_twice() -> None:
    with pytest.raises(
        IntegrityError, match=r"would come twice\. Or they lie between one another, .* without their meta"
    ):
        restored(source({"format": "json"}), lines_at(0, 1))


def test_field_layouts_go_by_file_and_say_so() -> None:
    layout = {"format": "json", "partitioner": "Field", "partition_fields": ("f",)}
    objects = {f"topics/t/f={f}/t+0+{o}.json": b"%d\n%d\n" % (o, o) for f, o in (("b", 0), ("a", 1), ("a", 9))}
    config = source(layout)
    rows, report = restored(config, objects)
    assert [(r["offset"], int(r["value"])) for r in rows] == [(0, 0), (1, 0), (2, 1), (3, 1), (9, 9), (10, 9)]
    assert any(note.startswith("order is by file") for note in report.list_notes(config))


def test_no_timestamp_is_made_up() -> None:
    config = source({"format": "json", "partitioner": "Hourly"})
    rows, report = restored(config, {"topics/t/year=2026/month=01/day=01/hour=12/t+0+0.json": b"1\n"})
    assert [(r["timestamp"], r["timestampType"]) for r in rows] == [(-1, -1)]
    assert any("1 records: no object has their timestamp" in note for note in report.list_notes(config))


@pytest.mark.parametrize("start", [0, 1, 2, 10, 11, 12, 30])
def test_a_stream_goes_on_from_any_offset(start: int) -> None:
    objects = lines_at(0, 10, 30)
    for layout in ({"format": "json"}, {"format": "json", "partitioner": f"{__name__}.AnyFolders"}):
        store = MemoryStore(objects)
        whole = rows_of(stream(source(layout), store))
        rest = rows_of(stream(source(layout), store, start))
        assert rest == [r for r in whole if r["offset"] >= start]


class AnyFolders:
    """A partitioner of a user's that does not read its folders back."""

    def __init__(self, layout: Any) -> None:
        pass

    def encode(self, batch: Any, times_ms: Any) -> Any: ...


@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 6, 7, 8])
def test_our_own_objects_may_lie_between_one_another_also_in_one_folder(start: int) -> None:
    """They end with their hour: records of two hours that took turns are in two objects."""
    objects = {f"{FOLDER}{o:010d}.json": b"".join(b"%d\n" % n for n in held) for o, held in HELD.items()}
    metadata = {
        f"{FOLDER}{o:010d}.json": {"last-offset": str(held[-1]), "record-count": str(len(held))}
        for o, held in HELD.items()
    }
    store, config = MemoryStore(objects, metadata), source({"format": "json"})
    whole = rows_of(stream(config, store))
    assert [int(r["value"]) for r in whole] == [0, 2, 4, 1, 3, 5, 6, 7, 8]
    assert [r["offset"] for r in whole] == list(range(9))
    assert rows_of(stream(config, store, start)) == whole[start:]


HELD = {0: (0, 2, 4), 1: (1, 3, 5), 6: (6, 7), 8: (8,)}


def test_objects_before_the_start_are_not_even_opened() -> None:
    store = MemoryStore(lines_at(0, 10, 30))
    found = list(stream(source({"format": "json"}), store, 30))
    assert sum(b.num_rows for b in found) == 2
    # the one before the first that is wanted might reach into it
    assert set(store.reads) == {f"{FOLDER}0000000010.json", f"{FOLDER}0000000030.json"}


def test_an_object_that_reaches_into_the_next_one_is_told_also_where_a_run_goes_on_behind_both() -> None:
    objects = {f"{FOLDER}{first:010d}.json": b"1\n" * count for first, count in ((0, 100), (50, 60), (200, 1))}
    with pytest.raises(IntegrityError, match="records would come twice"):
        list(stream(source({"format": "json"}), objects, 100))


def test_envelopes_keep_their_offsets_and_timestamps() -> None:
    layout = {"format": "envelope.json", "codec": "gzip"}
    batch = came([b"v", None], [None, b"k"])
    objects = {k.replace("partition=0/t+0", "partition=3/t+3"): b for k, b in object_of(layout, batch).items()}
    rows, report = restored(source(layout), objects)
    assert rows == rows_of(batch.records)
    assert (report.position_count, report.timeless_count) == (0, 0)


def test_envelopes_of_several_folders_are_merged_by_offset_and_read_from_any() -> None:
    layout = {"format": "envelope.json", "partitioner": "Hourly"}
    folder = "topics/t/year=2026/month=01/day=01/hour"
    both = came([b"%d" % n for n in range(10)])
    objects = {
        f"{folder}=12/t+3+0000000000.json": written(LayoutSettings(**NONE), both.take(np.array([0, 3, 4, 9]))),
        f"{folder}=13/t+3+0000000002.json": written(LayoutSettings(**NONE), both.take(np.array([1, 2, 5, 6, 7, 8]))),
    }
    rows, report = restored(source(layout), objects)
    assert rows == rows_of(both.records)
    assert (report.record_count, report.position_count) == (10, 0)
    assert rows_of(stream(source(layout), objects, 7))[0]["offset"] == 8
    misplaced = {key.replace("+3+", "+4+"): body for key, body in objects.items()}
    with pytest.raises(IntegrityError, match="holds records of kafka partitions 3 to 3, where 4 to 4 are due"):
        restored(source(layout), misplaced)


NONE: dict[str, Any] = {"codec": "none", "format": "envelope.json"}


def test_a_stream_is_made_anew_on_another_machine_from_what_it_was_made_of() -> None:
    config, store = source({"format": "json"}), MemoryStore(lines_at(0, 10))
    config, group = pickle.loads(pickle.dumps((config, opened(config, store))))  # noqa: S301 - our own
    assert sum(batch.num_rows for batch in ForeignStream(config, group, store)) == 4


def test_numbers_of_any_size_are_decoded() -> None:
    config = source({"format": "json"})
    big = 10**40
    (batch,) = stream(config, {f"{FOLDER}0.json": b'{"n":%d}\n' % big}).batches()
    assert batch.value.field(["n"]) == [big]


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


AIVEN_FIELDS = ("key", "value", "offset", "timestamp", "headers")
AIVEN: dict[str, Any] = {"key_layout": "template", "topics_dir": "", "extension": "", "partitioner": "Default"}
NAME = "{{topic}}-{{partition}}-{{start_offset}}"
AIVEN_CSV = f"{b64(b'k')},{b64(b'v')},17,2020-01-01T00:00:01.250Z,{b64(b'h')}:{b64(b'x')};{b64(b'h')}:{b64(b'y')}"


def test_aivens_csv_comes_back_with_offsets_times_as_text_and_headers() -> None:
    layout = {**AIVEN, "format": "aiven.csv", "codec": "gzip", "file_name_template": NAME + ".gz"}
    text = AIVEN_CSV + "\n" + f",{b64(b'w')},19,2020-01-01T00:00:02Z,"
    rows, report = restored(source(layout, fields=AIVEN_FIELDS), {"t-0-17.gz": gzip.compress(text.encode())})
    assert [r["offset"] for r in rows] == [17, 19]
    assert (rows[0]["key"], rows[0]["value"], rows[0]["timestamp"]) == (b"k", b"v", 1_577_836_801_250)
    assert [h["value"] for h in rows[0]["headers"]] == [b"x", b"y"]
    assert (report.position_count, report.timeless_count) == (0, 0)


@pytest.mark.parametrize("number", [b"0.2000000000000000111", b"98765432109876543210.5", b"2.5E+400", b"2.5", b"7"])
def test_numbers_in_headers_of_aivens_json_keep_their_digits(number: bytes) -> None:
    layout = {**AIVEN, "format": "aiven.jsonl", "file_name_template": NAME}
    line = b'{"value":1,"headers":[{"key":"h","value":%s}],"offset":3}\n' % number
    [row], _ = restored(source(layout, fields=("value", "headers", "offset")), {"t-0-3": line})
    assert row["headers"] == [{"key": "h", "value": number}]


def test_aivens_avro_comes_back_with_the_values_own_schema() -> None:
    fields = [{"name": name, "type": kind} for name, kind in (("offset", "long"), ("value", F1.avro))]
    schema = Schema(json.dumps({"type": "record", "name": "connector_records", "fields": fields}))
    rows = [{"offset": 3, "value": {"f1": "a"}}]
    body = written(LayoutSettings(format="avro", codec="null"), decoded(rows, schema), schema=schema)
    layout = {**AIVEN, "format": "aiven.avro", "file_name_template": NAME}
    config = source(layout, records={"value": {"format": "AVRO"}}, fields=("offset", "value"))
    (batch,) = stream(config, {"t-0-3": body}).batches()
    assert (list(batch.value.objects), batch.value.schemas[0].avro) == ([{"f1": "a"}], F1.avro)


class CsvFormat:
    """A format of a user's that reads its objects back."""

    extension = "csv"

    @staticmethod
    def read(source: Any, key: str, layout: LayoutSettings) -> list[bytes]:
        assert key.endswith(layout.format.rpartition(".")[2][:3].lower())
        return [line.partition(b",")[2] for line in source.read().splitlines()]


def test_a_format_of_the_users_is_read_back() -> None:
    config = source({"format": f"{__name__}.CsvFormat"})
    rows, _ = restored(config, {f"{FOLDER}0.csv": b"0,a\n1,b,c\n"})
    assert values(rows) == [(0, b"a"), (1, b"b,c")]
