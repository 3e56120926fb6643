"""What Lenses' S3 sink wrote, in its names and in its envelopes, is read as the records that it was given.

Objects that are named by the offset of their last record, as Lenses' sink and templates name them.

Objects whose names prove that they hold the same records, in whichever folders they are.
"""

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.connect.sources.report import explain_missing
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform_tests.sources.lenses import FIELDS, LINES, SAM, avro, headers, parquet, record
from kafka_s3_platform_tests.sources.memory import MemoryStore, decoded_values, lines, restored, sent, source, stream
from kafka_s3_platform_tests.sources.sink_files import JSON, Keys, config_of, confluent

LAYOUT = {"key_layout": "lenses", "topics_dir": "streamReactorBackups", "format": "lenses.json"}
NAME = "streamReactorBackups/myTopic/1/000000000003_10001_10003"
PERSON = b'{"name":"sam","title":null,"salary":100.43}'


LENSES_JSON = {"value": {"format": "JSON"}, "key": {"format": "JSON"}}

LENSES: Keys = {
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
    "connect.s3.kcql": "INSERT INTO copy SELECT * FROM bucket:topics STOREAS JSON",
    "key.converter": JSON,
    "value.converter": JSON,
}
TEMPLATE = {
    **confluent("json", JSON, JSON),
    "archive.source.template": "{{topic}}/{{partition}}/{{end_offset}}.json",
}
ENVELOPES = LENSES | {"connect.s3.kcql": f"{LENSES['connect.s3.kcql']} PROPERTIES('store.envelope'=true)"}

VALUES = confluent("json", JSON, JSON)
HOURLY = VALUES | {"partitioner.class": "HourlyPartitioner", "locale": "en", "timezone": "UTC"}

TEMPLATE_FIELDS = VALUES | {"partitioner.class": "FieldPartitioner", "partition.field.name": "f"}

ANY = VALUES | {"archive.source.template": "dt={{any}}/{{topic}}+{{partition}}+{{start_offset}}.json"}
BOTH = VALUES | {"archive.source.template": "dt={{any}}/{{topic}}+{{partition}}+{{start_offset}}-{{end_offset}}.json"}
HOUR = "topics/t/year=2026/month=01/day=01/hour="


def config(format_name: str = "lenses.json", **own: Any) -> ConnectorConfig:
    return source({**LAYOUT, "format": format_name}, records=LENSES_JSON, **own)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (f"{NAME}.json", ("myTopic", 1, 3, (10_001, 10_004))),
        (f"{NAME}-cluster-b.gz", ("myTopic", 1, 3, (10_001, 10_004))),
        ("streamReactorBackups/myTopic/000000000001/7.json", ("myTopic", 1, 7, None)),
        ("streamReactorBackups/topic=my.Topic/partition=2/7_-1_-1.json", ("my.Topic", 2, 7, None)),
        ("streamReactorBackups/date=2026-01-01/name=a/b/my-t(3_000000000009).json", ("my-t", 3, 9, None)),
        ("streamReactorBackups//t(0_1).json", ("t", 0, 1, None)),
    ],
)
def test_names_of_lenses_sink_tell_topic_kafka_partition_last_offset_and_times(key: str, told: tuple[Any, ...]) -> None:
    [item] = SourceListing(config(), store=MemoryStore({key: b"x"}))
    assert (item.topic, item.kafka_partition, item.last_offset, item.window) == told
    assert item.first_offset is None


def test_the_folder_of_the_source_may_be_that_of_a_topic_or_the_buckets_root_with_lenses_own_documents() -> None:
    for folder in ("streamReactorBackups/myTopic", "streamReactorBackups/myTopic/1", ""):
        own = (".indexes/sink/myTopic/1/00000000000000000003", f".temp-upload/myTopic/1/c0ffee{NAME}.json")
        keys = dict.fromkeys([f"{NAME}.json", *own, "_restore/r.json"], b"x")
        scanned = SourceListing(source({**LAYOUT, "topics_dir": folder}), store=MemoryStore(keys))
        assert [(o.topic, o.kafka_partition) for o in scanned] == [("myTopic", 1)]
        assert scanned.report.counts in ({"index": 2}, {"outside": 2})


def test_what_is_not_named_by_lenses_sink_is_told() -> None:
    with pytest.raises(IntegrityError, match=r"a\.json: its name is not of the sink's"):
        list(SourceListing(config(), store=MemoryStore({"streamReactorBackups/a.json": b"x"})))


@pytest.mark.parametrize("name", [f"{NAME}.json", f"{NAME}.gz"])
def test_an_envelope_in_json_keeps_key_value_headers_timestamp_and_offset(name: str) -> None:
    body = gzip.compress(LINES) if name.endswith("gz") else LINES
    rows, report = restored(config(), {name: body})
    assert [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in rows] == [
        (n, 10_000 + n, b'{"name":"sam"}', PERSON) for n in (1, 2, 3)
    ]
    assert rows[0]["headers"] == headers(b"record1-header1", b"1")
    assert (report.position_count, report.timeless_count) == (0, 0)


def test_bytes_and_nulls_in_json_come_back_as_they_were() -> None:
    lines: list[dict[str, Any]] = [
        {"key": "AP8=", "keyIsArray": True, "value": "aGk=", "valueIsArray": True, "metadata": {"offset": 4}},
        {"key": None, "value": None, "metadata": {"offset": 6}, "headers": {}},
    ]
    lines[0]["headers"] = {"h": "/w=="}
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    for parts, header in (((), b"/w=="), (("headers",), b"\xff")):
        rows, _ = restored(config(base64=parts), {f"{NAME}.json": body})
        assert rows[0]["headers"] == [{"key": "h", "value": header}]
    assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in rows] == [
        (4, b"\x00\xff", b"hi", rows[0]["headers"]),
        (6, None, None, None),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"key":1,"metadata":{"offset":1}}', "it has no member value"),
        (b'{"value":1,"metadata":{"offset":1,"topic":"other"}}', "it is of other-None, but its object's name"),
        (b'{"value":1,"metadata":{"offset":"x"}}', "is no record in Lenses' envelope"),
        (b'{"value":"?","valueIsArray":true,"metadata":{}}', "is no record in Lenses' envelope"),
        (b"{", "is no JSON"),
    ],
)
def test_a_line_that_is_no_envelope_is_bad_and_never_a_tombstone(line: bytes, why: str) -> None:
    with pytest.raises(IntegrityError, match=why):
        restored(config(), {f"{NAME}.json": line + b"\n"})


@pytest.mark.parametrize("format_name", ["lenses.avro", "lenses.parquet"])
def test_envelopes_in_avro_and_parquet_keep_the_same_with_the_values_own_schema(format_name: str) -> None:
    records = [record(n) for n in (1, 3)]
    body = avro(FIELDS, records) if format_name == "lenses.avro" else parquet(records)
    own, objects = config(format_name), {f"{NAME}.{format_name[7:]}": body}
    rows, report = restored(own, objects)
    assert [(r["offset"], r["timestamp"], r["headers"]) for r in rows] == [
        (n, 10_000 + n, headers(b"x%d" % n, b"%d" % n)) for n in (1, 3)
    ]
    assert decoded_values(own, objects) == [SAM, SAM]
    assert (report.position_count, report.timeless_count) == (0, 0)


def test_values_alone_are_at_the_offsets_that_end_with_the_one_of_the_name() -> None:
    folder = "streamReactorBackups/myTopic/1"
    objects = {f"{folder}/000000000109_2_3.json": lines(105, 5), f"{folder}/000000000004_1_2.json": lines(0, 5)}
    rows, report = restored(config("json"), objects)
    assert [(r["offset"], r["value"]) for r in rows] == [(n, b"%d" % n) for n in (*range(5), *range(105, 110))]
    assert report.position_count == 10
    assert any("10 by position from the one in the object's name" in note for note in report.list_notes(config("json")))
    with pytest.raises(IntegrityError, match=r"6_1_2\.json begins at offset 2, .* up to 4: records would come twice"):
        restored(config("json"), {**objects, f"{folder}/000000000006_1_2.json": lines(2, 5)})


def test_of_a_field_that_is_none_of_the_envelopes_the_object_is_damaged() -> None:
    fields = [*FIELDS[:3], {"name": "metadata", "type": "string"}]
    with pytest.raises(IntegrityError, match="holds no records in Lenses' envelope"):
        restored(config("lenses.avro"), {f"{NAME}.avro": avro(fields, [{**record(3), "metadata": "?"}])})
    fields = [*FIELDS[:2], {"name": "headers", "type": "string"}, FIELDS[3]]
    with pytest.raises(IntegrityError, match="holds no records in Lenses' envelope"):
        restored(config("lenses.avro"), {f"{NAME}.avro": avro(fields, [{**record(3), "headers": "?"}])})


def test_objects_without_values_are_tombstones_only_where_the_file_says_that_values_were_kept() -> None:
    fields = [field for field in FIELDS if field["name"] != "value"]
    objects = {f"{NAME}.avro": avro(fields, [{k: v for k, v in record(3).items() if k != "value"}])}
    with pytest.raises(IntegrityError, match=r"has no field `value`: .* say so with 'store\.envelope\.fields\.value'"):
        restored(config("lenses.avro"), objects)
    rows, _ = restored(config("lenses.avro", fields=("value",)), objects)
    assert [(r["offset"], r["value"]) for r in rows] == [(3, None)]
    assert rows[0]["key"] is not None


def test_nothing_is_said_to_be_lost_that_the_envelope_has_a_place_for() -> None:
    assert not [note for note in explain_missing(config()) if "holds no" in note]


def named(objects: Mapping[int, bytes]) -> dict[str, bytes]:
    return {f"topics/t/0/{last}.json": body for last, body in objects.items()}


def envelopes(start: int, count: int) -> bytes:
    return b"".join(b'{"key":1,"value":%d,"metadata":{"offset":%d}}\n' % (n, n) for n in range(start, start + count))


@pytest.mark.parametrize("keys", [LENSES, TEMPLATE], ids=["Lenses", "a template"])
def test_an_object_with_more_records_than_offsets_up_to_its_last_one_is_bad(tmp_path: Path, keys: Keys) -> None:
    found = stream(config_of(tmp_path, keys), named({2: lines(0, 4)}))
    with pytest.raises(IntegrityError, match=r"2\.json holds 4 records, but the offset 2 in its name has room for"):
        list(found)


@pytest.mark.parametrize("keys", [LENSES, TEMPLATE], ids=["Lenses", "a template"])
@pytest.mark.parametrize(
    ("middle", "hole"),
    [({}, (4, 8)), ({7: lines(6, 2)}, (4, 6)), ({7: lines(4, 4)}, None)],
    ids=["missing", "cut", "whole"],
)
def test_offsets_between_two_objects_that_are_in_none_are_told(
    tmp_path: Path, keys: Keys, middle: dict[int, bytes], hole: tuple[int, int] | None
) -> None:
    found = stream(config_of(tmp_path, keys), named({3: lines(0, 4), **middle, 11: lines(8, 4)}))
    list(found)
    told = [f"t-0: offsets [{hole[0]}, {hole[1]}) are in no object"] if hole else []
    assert [",".join(gap.text.split(",")[:2]) for gap in found.report.gaps] == told
    assert found.report.gap_count == len(told)


def test_offsets_between_two_envelopes_that_are_in_none_are_told(tmp_path: Path) -> None:
    found = stream(config_of(tmp_path, ENVELOPES), named({3: envelopes(0, 4), 11: envelopes(8, 4)}))
    list(found)
    assert ["t-0: offsets [4, 8) are in no object" in gap.text for gap in found.report.gaps] == [True]


@pytest.mark.parametrize(("end", "hole"), [(10, (8, 10)), (8, None), (None, None)])
def test_offsets_that_were_asked_for_behind_the_last_object_are_told(
    tmp_path: Path, end: int | None, hole: tuple[int, int] | None
) -> None:
    objects = named({3: lines(0, 4), 7: lines(4, 4)})
    found = stream(config_of(tmp_path, TEMPLATE), objects, 2, end, by_offset=True)
    list(found)
    told = [f"offsets [{hole[0]}, {hole[1]}) are in no object" in gap.text for gap in found.report.gaps if hole]
    assert told == [True] * bool(hole)
    assert found.report.gap_count == bool(hole)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (HOURLY, (f"{HOUR}12/t+0+10.json", f"{HOUR}13/t+0+10.json")),
        (TEMPLATE_FIELDS, ("topics/t/f=a/t+0+10.json", "topics/t/f=b/t+0+10.json")),
        (ANY, ("topics/dt=1/t+0+10.json", "topics/dt=2/t+0+10.json")),
    ],
    ids=["hours", "fields", "a template"],
)
def test_two_objects_that_begin_at_one_offset_hold_one_record_twice(
    tmp_path: Path, keys: Keys, names: tuple[str, str]
) -> None:
    objects = {names[0]: lines(10, 3), names[1]: lines(10, 5)}
    with pytest.raises(IntegrityError, match=r"it begins where .* does, so records would come twice"):
        sent(config_of(tmp_path, keys), objects)
    ignoring = keys | {"behavior.on.error": "ignore"}
    assert sent(config_of(tmp_path, ignoring), objects) == [b"10", b"11", b"12"]


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("0-9", lines(0, 10)), ("5-14", lines(5, 10)), 5),
        (("0-9", lines(0, 10)), ("5-14", lines(5, 3)), 5),
        (("0-9", lines(0, 3)), ("5-14", lines(5, 10)), 9),
        (("0-9", lines(0, 3)), ("5-14", lines(5, 3)), None),
        (("0-4", lines(0, 5)), ("5-14", lines(5, 10)), None),
    ],
    ids=["both whole", "the first whole", "the second whole", "neither", "apart"],
)
def test_names_and_numbers_of_records_prove_that_two_objects_share_records(
    tmp_path: Path, one: tuple[str, bytes], other: tuple[str, bytes], shared: int | None
) -> None:
    objects = {f"topics/dt={n}/t+0+{name}.json": body for n, (name, body) in enumerate((one, other))}
    if shared is None:
        assert len(sent(config_of(tmp_path, BOTH), objects)) == (one[1] + other[1]).count(b"\n")
        return
    with pytest.raises(IntegrityError, match=f"5-14.json holds offset {shared}, and so does an object before it"):
        sent(config_of(tmp_path, BOTH), objects)


def split(*objects: tuple[str, int, int]) -> dict[str, bytes]:
    """Objects of a folder, a first offset and a number of records each."""
    return {f"{HOUR}{hour}/t+0+{first}.json": lines(first, count) for hour, first, count in objects}


@pytest.mark.parametrize(
    ("objects", "bad"),
    [
        ((("08", 20, 7), ("09", 24, 5), ("08", 27, 3)), ("09/t+0+24", 24)),
        ((("08", 20, 7), ("09", 19, 1), ("09", 25, 2), ("08", 27, 3)), ("09/t+0+25", 25)),
        ((("08", 20, 4), ("08", 24, 4), ("09", 22, 6), ("08", 28, 1)), ("09/t+0+22", 22)),
    ],
)
def test_an_object_whose_records_reach_the_next_one_of_its_folder_holds_all_offsets_between(
    tmp_path: Path, objects: tuple[tuple[str, int, int], ...], bad: tuple[str, int]
) -> None:
    where, shared = bad
    with pytest.raises(IntegrityError, match=rf"{re.escape(where)}.json holds offset {shared}, and so does an object"):
        sent(config_of(tmp_path, HOURLY), split(*objects))


@pytest.mark.parametrize(
    ("objects", "doubt"),
    [
        ((("08", 20, 7), ("09", 27, 3), ("10", 30, 1)), ""),
        ((("08", 20, 7), ("09", 24, 5)), "order differs from the source's: records of 1 objects lay between"),
        ((("08", 20, 3), ("09", 24, 5), ("08", 29, 3)), "by names and numbers of records, 1 objects begin behind"),
        ((("08", 20, 3), ("09", 24, 2), ("10", 29, 3)), "by names and numbers of records, 2 objects begin behind"),
    ],
)
def test_an_order_of_folders_that_names_and_numbers_do_not_prove_is_a_doubt(
    tmp_path: Path, objects: tuple[tuple[str, int, int], ...], doubt: str
) -> None:
    config = config_of(tmp_path, HOURLY)
    found = stream(config, split(*objects))
    assert sum(batch.num_rows for batch in found) == sum(count for _, _, count in objects)
    doubts = [note for note in found.report.list_notes(config) if isinstance(note, DoubtNote)]
    assert [doubt in note for note in doubts] == [True] * bool(doubt)
