"""Objects that are cut off, damaged, missing or another than their names say: named, and never passed on as data."""

import gzip
import io
import tarfile
import zipfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform_tests.formats.connect import came, decoded
from kafka_s3_platform_tests.sources.memory import (
    AVRO,
    F1,
    FOLDER,
    GOOD,
    MemoryStore,
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

CUT = {
    "avro": object_of(AVRO, decoded(GOOD, F1), schema=F1),
    "json": object_of({"format": "json"}, came([b'{"a":1}'] * 9, is_json=True)),
    "bytes": object_of({"format": "bytes"}, came([b"value"] * 9)),
    "parquet": object_of({"format": "parquet", "codec": "snappy"}, decoded(GOOD, F1), schema=F1),
    "json.gz": object_of({"format": "json", "codec": "gzip"}, came([b'{"a":1}'] * 9, is_json=True)),
    "json.zst": object_of({"format": "json", "codec": "zstd"}, came([b'{"a":1}'] * 9, is_json=True)),
}

SUMMED = {
    "avro": object_of({"format": "avro", "codec": "snappy"}, decoded(GOOD, F1), schema=F1),
    "parquet": CUT["parquet"],
    "json.gz": CUT["json.gz"],
    "json.zst": CUT["json.zst"],
    "json.bz2": object_of({"format": "json", "codec": "bzip2"}, came([b'{"a":1}'] * 9, is_json=True)),
}

RAW = {f"{FOLDER}0.bin": b"\x0a\x05hello\x10\x0a\n\x0a\x02hi\n"}


def test_nothing_of_an_avro_object_goes_out_when_one_of_its_records_is_corrupt() -> None:
    config = source(AVRO, records={"value": {"format": "AVRO"}})
    objects = object_of(AVRO, decoded(GOOD, F1), schema=F1) | object_of(AVRO, decoded(GOOD, F1), 9, F1)
    first, last = sorted(objects)
    body = bytearray(objects[last])
    body[-40] ^= 0xFF
    objects[last] = bytes(body).replace(b"value1", b"value\xff")
    found = stream(config, MemoryStore(objects))
    sent: list[Any] = []
    with pytest.raises(IntegrityError, match=last.replace("+", r"\+")):
        sent.extend(found)
    assert sum(b.num_rows for b in sent) == 9
    for behavior in ("ignore", "log"):
        rows, report = restored(
            source(AVRO, records={"value": {"format": "AVRO"}}, behavior_on_error=behavior), objects
        )
        assert ([r["offset"] for r in rows], len(report.skipped_objects)) == (list(range(9)), 1)
        assert last in report.skipped_objects[0]
    assert first != last


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("left", [1, 5, -3])
def test_an_object_that_was_cut_off_is_named_and_nothing_of_it_goes_out(name: str, left: int) -> None:
    ((key, body),) = CUT[name].items()
    config = source({"format": name.partition(".")[0]}, records={"value": {"format": "AVRO"}})
    with pytest.raises(IntegrityError, match=key.replace("+", r"\+")):
        restored(config, {key: body[:left]})


def read_or_fault(name: str, key: str, body: bytes) -> list[Any] | str:
    """The decoded values of an object of a format, or what its fault is."""
    config = source({"format": name.partition(".")[0]}, records={"value": {"format": "AVRO"}})
    try:
        return decoded_values(config, {key: body})
    except IntegrityError as err:
        return str(err)


def contents(value: Any) -> list[Any]:
    """The fields of a value, whatever they are called, text as the bytes that it is."""
    return [v.encode() if isinstance(v, str) else v for v in value.values()]


@given(st.sampled_from(sorted(SUMMED)), st.integers(0, 10_000), st.integers(1, 255))
@example("parquet", 160, 160)  # in the footer: the column's type becomes null
@example("parquet", 941, 1)  # there, too: a field of its schema has no type
def test_no_bit_of_an_object_with_checksums_turns_into_other_data(name: str, at: int, flip: int) -> None:
    ((key, body),) = SUMMED[name].items()
    whole, found = read_or_fault(name, key, body), read_or_fault(name, key, flipped(body, at, flip))
    if isinstance(found, str):
        assert key in found
    else:
        # The schema has no checksum, in the header of an Avro object or in the footer of a Parquet one.
        assert list(map(contents, found)) == list(map(contents, whole))


@given(st.sampled_from(sorted(CUT)), st.integers(0, 10_000), st.integers(1, 255), st.integers(0, 400))
def test_whatever_happened_to_an_object_its_fault_is_told_with_its_key(
    name: str, at: int, flip: int, left: int
) -> None:
    ((key, body),) = CUT[name].items()
    found = read_or_fault(name, key, flipped(body, at, flip)[: max(1, len(body) - left)])
    assert isinstance(found, list) or key in found


def test_lines_that_end_where_an_object_was_cut_are_told_by_its_metadata() -> None:
    key = f"{FOLDER}0000000000.json"
    metadata = {key: {"record-count": "3"}}
    with pytest.raises(IntegrityError, match="holds 2 records, but 3 by its metadata: it was cut off"):
        restored(source({"format": "json"}), {key: b"1\n2\n"}, metadata=metadata)


def test_a_line_that_is_no_json_fails_its_object_or_is_skipped_alone() -> None:
    objects = {f"{FOLDER}0000000000.json": b'{"a":1}\n{"a":\n{"a":3}\n'}
    with pytest.raises(IntegrityError, match="line 2: is no JSON"):
        restored(source({"format": "json"}), objects)
    rows, report = restored(source({"format": "json"}, behavior_on_error="ignore"), objects)
    assert values(rows) == [(0, b'{"a":1}'), (2, b'{"a":3}')]
    assert len(report.skipped_records) == 1


def test_a_compressed_object_that_does_not_begin_as_one_is_never_taken_for_lines() -> None:
    with pytest.raises(IntegrityError, match=r"does not begin as what ends in \.gz does"):
        restored(source({"format": "bytes"}), {f"{FOLDER}0.bin.gz": b"plain\nlines\n"})


def test_bytes_that_look_compressed_and_are_not_are_left_alone() -> None:
    value = gzip.compress(b"x", mtime=0).replace(b"\n", b"")
    objects = {f"{FOLDER}0.bin": value + b"\n"}
    rows, _ = restored(source({"format": "bytes"}, separator_is_named=True, codec_is_named=True), objects)
    assert values(rows) == [(0, value)]
    with pytest.raises(IntegrityError, match=r"begins as gzip does: .* Set s3.compression.type=gzip, or none"):
        restored(source({"format": "bytes"}, separator_is_named=True), objects)
    with pytest.raises(IntegrityError, match="gzip"):
        restored(source({"format": "bytes"}), objects)
    rows, _ = restored(source({"format": "bytes"}), objects, metadata={f"{FOLDER}0.bin": {"record-count": "1"}})
    assert values(rows) == [(0, value)]


def test_raw_bytes_between_line_breaks_are_refused_until_the_file_names_the_separator() -> None:
    for behavior in ("fail", "ignore"):
        config = source({"format": "bytes"}, behavior_on_error=behavior)
        if behavior == "fail":
            with pytest.raises(IntegrityError, match=r"values would come in pieces.*format\.bytearray\.separator"):
                restored(config, RAW)
        else:
            rows, report = restored(config, RAW)
            assert (rows, len(report.skipped_objects)) == ([], 1)
    rows, _ = restored(source({"format": "bytes"}, separator_is_named=True), RAW)
    assert len(rows) == 5


def test_raw_keys_are_believed_where_their_values_tell_how_many_there_are() -> None:
    layout = {"format": "json", "keys_format": "bytes"}
    objects = {f"{FOLDER}0.json": b"1\n2\n", f"{FOLDER}0.keys.bin": b"\x00\x01\n\xff\n"}
    rows, _ = restored(source(layout), objects)
    assert [r["key"] for r in rows] == [b"\0\1", b"\xff"]
    deleted = {"topics/t/tombstone/t+0+0000000009.keys.bin": b"\0\n"}
    with pytest.raises(IntegrityError, match="values would come in pieces"):
        restored(source(layout), objects | deleted)


def test_an_object_may_end_without_a_line_break_and_one_that_was_cut_off_is_told_where_it_can_be() -> None:
    key = f"{FOLDER}0.json"
    rows, _ = restored(source({"format": "json"}), {key: b'{"a":1}\n{"a":2}'})
    assert [r["value"] for r in rows] == [b'{"a":1}', b'{"a":2}']
    for cut in (b'{"a":1}\n{"a":', b"1\n2"):
        with pytest.raises(IntegrityError, match="has no line break behind its last line, 2, which is "):
            restored(source({"format": "json"}), {key: cut})
    with pytest.raises(IntegrityError, match="ends with 7 bytes and no separator"):
        restored(source({"format": "json"}), {key: b'{"a":1}\n{"a":2}'}, metadata={key: {"record-count": "2"}})
    bytes_key = f"{FOLDER}0.bin"
    with pytest.raises(IntegrityError, match=r"does not end with its separator.*format\.bytearray\.separator"):
        restored(source({"format": "bytes"}), {bytes_key: b"a\nb"})
    rows, report = restored(source({"format": "bytes"}, separator_is_named=True), {bytes_key: b"a\nb"})
    assert values(rows) == [(0, b"a"), (1, b"b")]
    assert any("without one at its end is complete" in note for note in report.list_notes(source({"format": "bytes"})))


@pytest.mark.parametrize("format_name", ["json", "bytes", "avro", "parquet", "envelope.json", "envelope.avro"])
def test_an_archive_of_files_is_refused_by_name_whatever_its_own_says(format_name: str) -> None:
    extension_ = {"bytes": "bin"}.get(format_name, format_name.rpartition(".")[2])
    packed, gz = io.BytesIO(), gzip.compress(b'{"a":1}\n', mtime=0)
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as files:
        files.writestr("a", "1\n")
    bodies = {"a tar archive": packed.getvalue(), "a zip archive": zipped.getvalue()}
    if format_name in {"avro", "parquet", "envelope.avro"}:
        bodies["compressed with gzip"] = gz
    for what, body in bodies.items():
        with pytest.raises(IntegrityError, match=what):
            restored(source({"format": format_name}), {f"{FOLDER}0.{extension_}": body})


def test_an_object_too_large_to_be_held_is_read_twice_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, objects = siblings([b"k"] * 20_000, [None] * 20_000, [b"%d" % n for n in range(20_000)])
    held = restored(source(layout), objects)
    monkeypatch.setattr("kafka_s3_platform.connect.sources.read.HOLD_BYTES", 1000)
    assert restored(source(layout), objects) == held
    assert [int(r["value"]) for r in held[0]] == list(range(20_000))
    objects[f"{FOLDER}0000000005.json"] += b"cut"
    store = MemoryStore(objects)
    sent: list[Any] = []
    with pytest.raises(IntegrityError, match="has no line break behind its last line, 20001"):
        sent.extend(stream(source(layout), store))
    assert sent == []


def test_missing_and_replaced_objects_are_named() -> None:
    config = source({"format": "json"})
    store = MemoryStore(lines_at(0, 10))
    group = opened(config, store)
    key = f"{FOLDER}0000000010.json"
    store.objects[key] = b"7\n8\n"
    with pytest.raises(IntegrityError, match="was replaced or damaged"):
        list(ForeignStream(config, group, store))
    del store.objects[key]
    with pytest.raises(IntegrityError, match=r"t\+0\+0000000010.json does not exist"):
        list(ForeignStream(config, group, store))
