"""Files that the sinks' own writers wrote come back as the records that they were: see golden/sinks/README.md."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka_s3_platform.connect.sources.report import explain_missing
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform_tests.formats.records import rows_of
from kafka_s3_platform_tests.sources.memory import MemoryStore, sent, stream
from kafka_s3_platform_tests.sources.sink_files import AVRO, BYTES, JSON, STRING, Keys, aiven, config_of, confluent

SINKS = Path(__file__).parent.parent / "golden" / "sinks"
OFFSETS = [10, 12, 13]
TIMES = [1_577_836_801_250, 1_577_836_802_000, 1_577_836_803_007]
HEADERS = [("h", b"x"), ("h", b""), ("id", b"007")]
TWO = [("h", b"x"), ("id", b"007")]

Row = tuple[Any, Any, Any, Any, Any]


BARE = {"format_output_fields": "value", "format_output_envelope": "false"}
OF_AVRO = {"keys": "avro", "headers": "avro"}
OF_PARQUET = {"keys": "parquet", "headers": "parquet"}
OF_JSON_LINES = {"keys": "json", "headers": "json"}


def restored(folder: Path, keys: Mapping[str, str], objects: Mapping[str, bytes]) -> tuple[list[Row], list[str]]:
    """Offset, timestamp, key, value and headers of each record, and what the report says."""
    config, found = config_of(folder, keys), list[Row]()
    read = stream(config, objects)
    for batch in read.batches():
        is_decoded = config.records.value.format == "AVRO"
        for row, value in zip(rows_of(batch.records), batch.value.objects, strict=True):
            headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
            sent = value if is_decoded else row["value"]
            found.append((row["offset"], row["timestamp"], row["key"], sent, headers))
    return found, read.report.list_notes(config)


def datums(folder: Path, keys: Mapping[str, str], objects: Mapping[str, bytes]) -> list[bytes | None]:
    """The data of each value, as they are sent."""
    batches = stream(config_of(folder, keys), only_values(objects)).batches()
    return [one for batch in batches for one in pa.array(batch.value.raw).to_pylist()]


def only_values(objects: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: body for key, body in objects.items() if ".keys." not in key and ".headers." not in key}


def written(name: str) -> dict[str, bytes]:
    """The object of that name, and those of keys and headers beside it."""
    if name.startswith("aiven"):
        return {"topics/t-0-10": (SINKS / name).read_bytes()}
    stem = name.partition(".")[0]
    folder = "topics/t/tombstone/" if stem.endswith("tombstone") else "topics/t/partition=0/"
    paths = [SINKS / name] if not stem.endswith("tombstone") else []
    paths += [path for part in ("keys", "headers") for path in SINKS.glob(f"{stem}.{part}.*")]
    return {f"{folder}t+0+0000000010{path.name.removeprefix(stem)}": path.read_bytes() for path in paths}


def order(number: int, tags: list[str | None], choices: list[Any]) -> dict[str, Any]:
    """What WriteSinkFiles.java makes of a number, in Avro's own types."""
    region, line = ["US", "EU"][number % 2], {"sku": f"s{number}", "where": ["US", "EU"][number % 2]}
    return {
        "id": number,
        "region": region,
        "other": None if number == 1 else region,
        "hash": bytes([255, 0, 1, number]),
        "price": (number - 1234).to_bytes(2, "big", signed=True),
        "exact": (1224 + number).to_bytes(6, "big"),
        "day": 18262 + number,
        "clock": 3_600_000 + number,
        "at": 1_577_836_800_000 + number,
        "choice": None if number == 4 else choices[number % len(choices)],
        "tags": tags if number else [],
        "zones": {"z": region},
        "lines": [line, line],
        "raw": bytes([254, number]),
    }


PLAIN = [("int", 7), ("string", "EU")]
ENHANCED = [*PLAIN, ("shop.Region", "EU"), ("shop.Hash", b"\xff\0\1\3")]


@pytest.mark.parametrize(
    ("name", "keys", "tags", "choices"),
    [
        ("aiven-orders.avro", aiven("avro", STRING, AVRO, STRING), ["a", None], ENHANCED),
        # parquet-avro writes no list with a null in it unless Confluent's sink has it do so.
        ("aiven-orders.parquet", aiven("parquet", STRING, AVRO, STRING), ["a", "b"], ENHANCED),
        ("aiven-bare-orders.avro", aiven("avro", STRING, AVRO, **BARE), ["a", None], ENHANCED),
        ("aiven-bare-orders.parquet", aiven("parquet", STRING, AVRO, **BARE), ["a", "b"], ENHANCED),
        ("confluent-orders.avro", confluent("avro", STRING, AVRO, STRING, **OF_AVRO), ["a", None], PLAIN),
        ("confluent-enhanced.avro", confluent("avro", STRING, AVRO, **OF_JSON_LINES), ["a", None], ENHANCED),
        ("confluent-no-metadata.avro", confluent("avro", STRING, AVRO), ["a", None], PLAIN),
        (
            "confluent-orders.snappy.parquet",
            confluent("parquet", STRING, AVRO, STRING, **OF_PARQUET),
            ["a", None],
            PLAIN,
        ),
        ("confluent-enhanced.snappy.parquet", confluent("parquet", STRING, AVRO, **OF_AVRO), ["a", None], ENHANCED),
    ],
)
def test_records_of_avro_come_back_with_all_their_types(
    tmp_path: Path, name: str, keys: Keys, tags: list[str | None], choices: list[Any]
) -> None:
    found, _ = restored(tmp_path, keys, written(name))
    assert [row[3] for row in found] == [order(n, tags, choices) for n in range(len(found))]
    assert len(found) == (2 if "metadata" in name else 5)
    if "bare" not in name and "metadata" not in name:
        assert [row[2] for row in found] == [b"k0", b"k1", b"k2", b"k0", b"k1"]
        assert {tuple(row[4]) for row in found} == {tuple(TWO)}


def test_the_branch_of_a_union_is_the_one_that_it_was(tmp_path: Path) -> None:
    # Decoded, "EU" of an enum and "EU" of a string are the same: the data are not.
    of_avro = confluent("avro", STRING, AVRO)
    sources = [
        ("confluent-enhanced.avro", of_avro),
        ("confluent-enhanced.snappy.parquet", of_avro | {"format.class": "ParquetFormat"}),
        ("aiven-orders.avro", aiven("avro", STRING, AVRO)),
        ("aiven-bare-orders.avro", aiven("avro", STRING, AVRO, **BARE)),
    ]
    data = [datums(tmp_path, keys, written(name)) for name, keys in sources]
    assert len(data[0]) == 5
    assert data[1:] == data[:1] * 3


def test_columns_alone_tell_an_enum_as_text(tmp_path: Path) -> None:
    body = (
        (SINKS / "confluent-enhanced.snappy.parquet")
        .read_bytes()
        .replace(b"parquet.avro.schema", b"parquet.avro.absent")
    )
    keys = confluent("parquet", STRING, AVRO)
    found, _ = restored(tmp_path, keys, {"topics/t/partition=0/t+0+0000000010.snappy.parquet": body})
    expected = [order(n, ["a", None], ENHANCED) for n in range(5)]
    assert [row[3]["region"] for row in found] == [one["region"] for one in expected]
    assert [row[3]["zones"] for row in found] == [one["zones"] for one in expected]
    # Two of its types are text now: so it is no union, and nothing takes one for the other.
    members = [None if (one := each["choice"]) is None else one[1] for each in expected]
    for at, row in enumerate(found):
        choice = row[3]["choice"]
        assert choice == (members[at] and {f"member{n}": members[at] if n == at else None for n in range(4)})


def rows(keys: list[Any], values: list[Any], headers: list[Any]) -> list[Row]:
    return list(zip(OFFSETS, TIMES, keys, values, headers, strict=True))


STRINGS = [b"k0", b"k1", b"k2"]
JSONS = [b'{"a":1,"b":["x",null]}', b'"text"', None]
TEXTS = [b"t0", b"t,1", b"t2"]
OF_BYTES = rows([b"k0", b"", None], [b"v,0", b"", None], [HEADERS, [], HEADERS])
OF_JSON = rows(STRINGS, JSONS, [HEADERS, [], HEADERS])


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("json.jsonl", aiven("jsonl", STRING, JSON), OF_JSON),
        ("json.json.zst", aiven("json", STRING, JSON, file_compression_type="zstd"), OF_JSON),
        ("bytes.jsonl", aiven("jsonl", BYTES, BYTES), OF_BYTES),
        (
            # Numbers are what SimpleHeaderConverter made of them: the file does not tell 007.
            "simple-headers.jsonl.gz",
            aiven("jsonl", STRING, JSON, "", file_compression_type="gzip"),
            rows(STRINGS, JSONS, [[("h", b"x"), ("id", b"7")]] * 3),
        ),
        ("bytes-headers.avro", aiven("avro", STRING, STRING), rows(STRINGS, TEXTS, [TWO] * 3)),
        ("bytes-headers.parquet", aiven("parquet", STRING, STRING), rows(STRINGS, TEXTS, [TWO] * 3)),
        ("no-headers.avro", aiven("avro", STRING, STRING), rows(STRINGS, TEXTS, [[]] * 3)),
        ("no-headers.parquet", aiven("parquet", STRING, STRING), rows(STRINGS, TEXTS, [[]] * 3)),
        ("bytes.avro", aiven("avro", BYTES, BYTES, STRING), [(*row[:4], TWO) for row in OF_BYTES]),
        ("bytes.parquet", aiven("parquet", BYTES, BYTES, STRING), [(*row[:4], TWO) for row in OF_BYTES]),
    ],
)
def test_aivens_records_come_back_whole(tmp_path: Path, name: str, keys: Keys, expected: list[Row]) -> None:
    found, notes = restored(tmp_path, keys, written(f"aiven-{name}"))
    assert found == expected
    assert not [note for note in notes if "by position" in note or "no object has their timestamp" in note]


@pytest.mark.parametrize(
    ("name", "keys", "values"),
    [
        ("bare.jsonl", aiven("jsonl", STRING, JSON, **BARE), JSONS),
        ("bare.json", aiven("json", STRING, JSON, **BARE), JSONS),
        ("bare-bytes.jsonl", aiven("jsonl", BYTES, BYTES, **BARE), [b"v,0", b"", None]),
        # Aiven's sink puts what is no record into one, also without an envelope.
        ("bare-texts.avro", aiven("avro", STRING, STRING, **BARE), TEXTS),
        ("bare-texts.parquet", aiven("parquet", STRING, STRING, **BARE), TEXTS),
    ],
)
def test_aivens_values_alone_come_back(tmp_path: Path, name: str, keys: Keys, values: list[Any]) -> None:
    found, _ = restored(tmp_path, keys, written(f"aiven-{name}"))
    assert [row[3] for row in found] == values


CSV = {
    "all.csv": aiven("csv", BYTES, BYTES),
    "reordered.csv.gz": aiven(
        "csv",
        BYTES,
        BYTES,
        file_compression_type="gzip",
        format_output_fields="timestamp,offset,value,headers,key",
        format_output_fields_value_encoding="none",
    ),
    "value.csv": aiven("csv", BYTES, BYTES, format_output_fields="value"),
    "value-plain.csv.zst": aiven(
        "csv",
        BYTES,
        BYTES,
        file_compression_type="zstd",
        format_output_fields="value",
        format_output_fields_value_encoding="none",
    ),
}


@pytest.mark.parametrize("empty", [None, b""])
@pytest.mark.parametrize("name", CSV)
def test_an_empty_field_of_csv_is_what_the_file_says(tmp_path: Path, name: str, empty: bytes | None) -> None:
    keys = CSV[name] | {"archive.source.csv.empty": "null" if empty is None else "empty"}
    found, notes = restored(tmp_path, keys, written(f"aiven-{name}"))
    (doubt,) = (
        note for note in notes if isinstance(note, DoubtNote) and "csv does not distinguish null from empty" in note
    )
    cells = [cell for row in found for cell in row[3 if name.startswith("value") else 2 : 4]]
    assert doubt.startswith(f"{cells.count(empty)} keys and values of csv are empty")
    if name.startswith("value"):
        # The last of them is nothing behind the last line break.
        plain = [b"a,b", b"c", empty]
        assert [row[3] for row in found] == (plain if "plain" in name else [b"v,0", empty, empty])
    else:
        assert found == rows([b"k0", empty, empty], [b"v,0", empty, empty], [HEADERS, [], HEADERS])


def test_the_lines_of_our_own_sink_by_a_file_of_aivens_are_values_as_they_were(tmp_path: Path) -> None:
    """Ours ends each value with a line break, and an empty line is an empty value. Its objects have metadata."""
    keys = CSV["value-plain.csv.zst"] | {"file.compression.type": "none", "archive.source.csv.empty": "null"}
    key = "topics/t-0-10"
    store = MemoryStore({key: b"a,b\n\nc\n"}, {key: {"record-count": "3"}})
    assert sent(config_of(tmp_path, keys), store) == [b"a,b", b"", b"c"]


def test_a_line_of_csv_with_another_number_of_fields_is_bad(tmp_path: Path) -> None:
    for line in (b"azA=", b"azA=,diww,10,1577836801250"):
        with pytest.raises(IntegrityError, match=r"\d fields instead of 5"):
            restored(tmp_path, CSV["all.csv"], {"topics/t-0-10": line})


@pytest.mark.parametrize("name", CSV)
def test_an_empty_value_of_csv_is_no_tombstone_unasked(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        IntegrityError, match=r"value is empty, and may have been null or empty: set archive\.source\.csv"
    ):
        restored(tmp_path, CSV[name], written(f"aiven-{name}"))
    found, notes = restored(tmp_path, CSV[name] | {"behavior.on.error": "ignore"}, written(f"aiven-{name}"))
    assert [row[3] for row in found] == ([b"a,b", b"c"] if "plain" in name else [b"v,0"])
    assert any("records were skipped" in note for note in notes)


@pytest.mark.parametrize("template", ["topics/{{topic}}-0-{{start_offset}}", "topics/{{topic}}-0-{{any}}"])
def test_an_object_of_bad_records_alone_is_told(tmp_path: Path, template: str) -> None:
    keys = CSV["all.csv"] | {"behavior.on.error": "ignore", "archive.source.template": template}
    good = b"azA=,diww,10,1577836801250,"
    found, notes = restored(tmp_path, keys, {"topics/t-0-10": good, "topics/t-0-20": b"a\nb"})
    assert [row[0] for row in found] == [10]
    assert any("2 records were skipped: object topics/t-0-20: is no record" in note for note in notes)


ENVELOPES = [
    ("jsonl", "bare.jsonl"),
    ("json", "bare.json"),
    ("avro", "bare-orders.avro"),
]


@pytest.mark.parametrize(("kind", "name"), ENVELOPES)
def test_a_forgotten_envelope_key_makes_no_tombstones(tmp_path: Path, kind: str, name: str) -> None:
    converter = AVRO if kind == "avro" else JSON
    keys = aiven(kind, STRING, converter, format_output_fields="value")
    with pytest.raises(
        IntegrityError, match=r"format\.output\.fields and format\.output\.envelope as the sink had them"
    ):
        restored(tmp_path, keys, written(f"aiven-{name}"))


@pytest.mark.parametrize("missing", ["key", "value", "offset", "timestamp", "headers"])
def test_what_lacks_a_promised_field_is_bad(tmp_path: Path, missing: str) -> None:
    record = json.loads((SINKS / "aiven-json.jsonl").read_bytes().splitlines()[0])
    del record[missing]
    line = json.dumps(record).encode()
    for kind, body in (("jsonl", line), ("json", b"[" + line + b"]")):
        with pytest.raises(IntegrityError, match=f"it has no {missing}; set format.output.fields"):
            restored(tmp_path, aiven(kind, STRING, JSON), {"topics/t-0-10": body})


@pytest.mark.parametrize("kind", ["avro", "parquet"])
@pytest.mark.parametrize("fields", ["key,value", "key,value,offset,timestamp"])
def test_fields_that_are_not_named_are_not_passed_over(tmp_path: Path, kind: str, fields: str) -> None:
    keys = aiven(kind, STRING, STRING, format_output_fields=fields)
    with pytest.raises(IntegrityError, match=r"has fields that are not named, .*headers"):
        restored(tmp_path, keys, written(f"aiven-no-headers.{kind}"))
    keys = aiven(kind, STRING, STRING, format_output_fields="key,value")
    with pytest.raises(IntegrityError, match=r"has no key, but its connector's file names records of key, value"):
        restored(tmp_path, keys, written(f"aiven-bare-texts.{kind}"))


def test_a_value_with_a_member_value_is_not_cut_down_to_it(tmp_path: Path) -> None:
    keys = aiven("jsonl", STRING, JSON, format_output_fields="value")
    line = b'{"sensor":7,"value":20.5}'
    with pytest.raises(IntegrityError, match="unknown field `sensor`"):
        restored(tmp_path, keys, {"topics/t-0-10": line})
    found, _ = restored(tmp_path, keys | {"format.output.envelope": "false"}, {"topics/t-0-10": line})
    assert [row[3] for row in found] == [line]


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        (
            "values.json.gz",
            confluent("json", STRING, JSON, keys="json", headers="json") | {"s3.compression.type": "gzip"},
            [(b"k0", JSONS[0], TWO), (b"k1", JSONS[1], TWO)],
        ),
        ("bytes.json", confluent("json", BYTES, BYTES, keys="json"), [(b"k0", b"v,0", []), (b"k1", b"", [])]),
        ("bytes.bin", confluent("bytes", BYTES, BYTES, keys="bytes"), [(b"k0", b"v,0", []), (b"k1", b"", [])]),
        ("texts.avro", confluent("avro", BYTES, STRING, keys="bytes"), [(b"k0", text, []) for text in TEXTS]),
        (
            "tombstone.keys.avro",
            confluent("avro", STRING, AVRO, keys="avro", headers="json") | {"behavior.on.null.values": "write"},
            [(b"k0", None, TWO), (b"k1", None, TWO)],
        ),
    ],
)
def test_confluents_records_come_back(tmp_path: Path, name: str, keys: Keys, expected: list[Any]) -> None:
    found, _ = restored(tmp_path, keys, written(f"confluent-{name}"))
    assert [row[2:] for row in found] == expected


def test_headers_that_are_no_base64_are_bad_and_those_of_our_own_objects_are_text(tmp_path: Path) -> None:
    keys = confluent("json", STRING, JSON, headers="json")
    objects = {
        "topics/t/partition=0/t+0+0000000010.json": b"1\n",
        "topics/t/partition=0/t+0+0000000010.headers.json": b'{"headers":[{"key":"h","value":"*"}]}\n',
    }
    with pytest.raises(IntegrityError, match="headers of record 1 are no base64"):
        restored(tmp_path, keys, objects)
    metadata = {key: {"record-count": "1"} for key in objects}
    ((row,),) = [rows_of(records) for records in stream(config_of(tmp_path, keys), objects, metadata=metadata)]
    assert row["headers"] == [{"key": "h", "value": b"*"}]


@pytest.mark.parametrize("kind", ["json", "avro", "parquet"])
def test_fields_of_values_alone_tell_offsets_and_timestamps(tmp_path: Path, kind: str) -> None:
    name = {"avro": "enhanced.avro", "parquet": "enhanced.snappy.parquet", "json": "orders.json"}[kind]
    fields = {"archive.source.offset.field": "id", "archive.source.timestamp.field": "at"}
    keys = confluent(kind, STRING, JSON if kind == "json" else AVRO) | fields
    objects = only_values(written(f"confluent-{name}"))
    found, notes = restored(tmp_path, keys, {key.replace("10.", "00."): body for key, body in objects.items()})
    assert [row[:2] for row in found] == [(n, 1_577_836_800_000 + n) for n in range(5)]
    assert any("offsets from the objects; timestamps from the objects" in note for note in notes)
    absent = keys | {"archive.source.timestamp.field": "lines.at"}
    with pytest.raises(IntegrityError, match=r"has no lines\.at, which archive\.source\.timestamp\.field names"):
        restored(tmp_path, absent, objects)


@pytest.mark.parametrize(
    ("number", "type_", "expected"),
    [
        (TIMES[0], "long timestamp-millis", TIMES[0]),
        (TIMES[0] * 1000, "long timestamp-micros", TIMES[0]),
        (TIMES[0] * 1_000_000, "long timestamp-nanos", TIMES[0]),
        (TIMES[0] + 3_600_000, "long local-timestamp-millis", TIMES[0]),
        ((TIMES[0] + 3_600_000) * 1000, "long local-timestamp-micros", TIMES[0]),
        (18_262, "int date", 1_577_836_800_000 - 3_600_000),
    ],
)
def test_a_timestamp_in_a_field_is_what_the_fields_type_says(
    tmp_path: Path, number: int, type_: str, expected: int
) -> None:
    ((_, time, *_),), _ = restored(tmp_path, *timed(number, type_))
    assert time == expected


def timed(number: int, type_: str) -> tuple[dict[str, str], dict[str, bytes]]:
    """The keys and the object of a record whose timestamp is a number of an Avro type."""
    kind, logical = type_.split()
    at = {"name": "at", "type": {"type": kind, "logicalType": logical}}
    inner = {"type": "record", "name": "I", "fields": [at]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "in", "type": ["null", inner]}]}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"in": {"at": number}}])
    keys = confluent("avro", STRING, AVRO) | {"archive.source.timestamp.field": "in.at", "timezone": "Europe/Paris"}
    return keys, {"topics/t/partition=0/t+0+0000000010.avro": sink.getvalue()}


def test_a_text_without_an_offset_is_a_time_of_the_files_timezone(tmp_path: Path) -> None:
    keys = confluent("json", STRING, JSON) | {"archive.source.timestamp.field": "at", "timezone": "Europe/Paris"}
    lines = b'{"at":"2020-07-01T02:00:00"}\n{"at":"2020-07-01T00:00:00Z"}\n'
    found, _ = restored(tmp_path, keys, {"topics/t/partition=0/t+0+0000000010.json": lines})
    assert [row[1] for row in found] == [1_593_561_600_000] * 2


def test_a_time_of_day_is_no_timestamp(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the field in\.at holds time-millis"):
        restored(tmp_path, *timed(5, "int time-millis"))


def test_a_text_among_other_json_is_not_taken_for_base64(tmp_path: Path) -> None:
    keys = confluent("json", STRING, BYTES) | {"behavior.on.error": "ignore"}
    name = "topics/t/partition=0/t+0+0000000010.json"
    for body, expected in (
        (b'"AQI="\nnull\n{"a":1}\n', [b"\1\2", None]),
        (b'{"a":1}\n"AQI="\n5\n', [b'{"a":1}', b"5"]),
    ):
        found, _ = restored(tmp_path, keys, {name: body})
        assert [row[3] for row in found] == expected


@pytest.mark.parametrize("encoding", ["none", "base64"])
def test_the_report_says_that_line_breaks_divide_values_of_csv(tmp_path: Path, encoding: str) -> None:
    keys = aiven("csv", BYTES, BYTES, format_output_fields="key,value", format_output_fields_value_encoding=encoding)
    found, notes = restored(tmp_path, keys, {"topics/t-0-10": b"aw==,YQ==\nYWJj,eHl6"})
    assert [row[2] for row in found] == [b"k", b"abc"]
    assert any("that held a line break was read as several" in note for note in notes) == (encoding == "none")


@pytest.mark.parametrize("value", [b'{"a":1}', b"5", b"true"])
def test_json_is_no_bytes_of_aivens_sink(tmp_path: Path, value: bytes) -> None:
    keys = aiven("jsonl", BYTES, BYTES, format_output_fields="value,offset")
    lines = b'{"offset":10,"value":%s}\n{"offset":11,"value":"AQI="}' % value
    with pytest.raises(IntegrityError, match=r"its value is no text of base64: name the value\.converter"):
        restored(tmp_path, keys, {"topics/t-0-10": lines})


def test_values_end_where_the_separator_of_their_file_begins(tmp_path: Path) -> None:
    """A line break in the file itself, not its escape: Connect takes it as it is."""
    keys = confluent("bytes", BYTES, BYTES) | {"format.bytearray.separator": "\r\n"}
    found, _ = restored(tmp_path, keys, {"topics/t/partition=0/t+0+0000000010.bin": b"a\r\nb\nc\r\n"})
    assert [row[3] for row in found] == [b"a", b"b\nc"]


def test_objects_whose_values_tell_offsets_are_merged_by_them(tmp_path: Path) -> None:
    keys = confluent("json", STRING, JSON) | {"archive.source.offset.field": "id"}
    objects = {
        "topics/t/partition=0/t+0+0000000000.json": b'{"id":0}\n{"id":2}\n',
        "topics/t/partition=0/t+0+0000000001.json": b'{"id":1}\n{"id":3}\n',
    }
    found, _ = restored(tmp_path, keys, objects)
    assert [(row[0], row[3]) for row in found] == [(n, b'{"id":%d}' % n) for n in range(4)]


def test_the_report_says_how_objects_were_read_and_what_they_do_not_hold(tmp_path: Path) -> None:
    keys = confluent("json", STRING, JSON)
    _, notes = restored(tmp_path, keys, only_values(written("confluent-orders.json")))
    assert notes[0] == (
        "how objects were read: a record a line; offsets: 5 by position from the one in the object's name, as if it"
        " had no holes; 5 records without a timestamp. Verified is that the target holds these records, not that this"
        " reading is right"
    )
    assert list(explain_missing(config_of(tmp_path, keys))) == [
        "by the connector's file, objects hold no keys: records are sent with a null key",
        "by the connector's file, objects hold no headers: records are sent without",
    ]
    csv = aiven("csv", BYTES, BYTES, "", format_output_fields="key,value,headers")
    assert [note.split(":")[0] for note in explain_missing(config_of(tmp_path, csv))] == [
        "values of headers that another sink wrote are what its SimpleHeaderConverter made of them",
    ]
    avro = confluent("avro", STRING, AVRO, **OF_AVRO)
    assert list(explain_missing(config_of(tmp_path, avro))) == []


LENSES = {"archive.source.offset.field": "metadata.offset", "archive.source.timestamp.field": "metadata.timestamp"}


def test_offsets_and_timestamps_are_found_where_the_file_says(tmp_path: Path) -> None:
    keys = aiven("jsonl", STRING, JSON, STRING, format_output_fields="key,value,headers") | LENSES
    metadata = {"timestamp": TIMES[0], "topic": "t", "partition": 0, "offset": 17}
    record = {"key": "k", "value": {"a": 1}, "headers": {"h": "x"}, "metadata": metadata}
    found, notes = restored(tmp_path, keys, {"topics/t-0-10": json.dumps(record).encode()})
    assert found == [(17, TIMES[0], b"k", b'{"a": 1}', [("h", b"x")])]
    assert [note.split(". ")[0] for note in notes] == [
        "how objects were read: a record a line; offsets from the objects; timestamps from the objects"
    ]
    del metadata["offset"]
    with pytest.raises(IntegrityError, match=r"it has no metadata\.offset, which archive\.source\.offset\.field names"):
        restored(tmp_path, keys, {"topics/t-0-10": json.dumps(record).encode()})
