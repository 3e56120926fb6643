"""No object takes more than some memory and time: it is refused by the one error, or read with its bad records told."""

import gzip
import random
import zlib
from pathlib import Path

import pytest

from kafka_s3_platform.formats.envelope.avro import ENVELOPE_SCHEMA
from kafka_s3_platform_tests.hostile.attacks import ATTACKS
from kafka_s3_platform_tests.hostile.containers import avro, long
from kafka_s3_platform_tests.hostile.measure import measured
from kafka_s3_platform_tests.hostile.readers import READERS

MEGABYTES, SECONDS = 300, 10


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_one_bad_object_and_costs_little(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    path = tmp_path / name
    path.write_bytes(attack.build())
    found = measured(attack.format, path)
    assert found.seconds < SECONDS, found
    assert found.megabytes < MEGABYTES, found
    if attack.fault:
        assert attack.fault in found.fault
        assert found.fault.startswith("[KS-ARCHIVE-DATA] object k")
    else:
        assert (found.records, found.bad, found.fault) == (1, 1, "")


def test_records_whose_items_take_no_byte_are_decoded_some_at_a_time(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "value", "type": {"type": "array", "items": "null"}},
            *({"name": name, "type": "null"} for name in ("key", "offset", "timestamp", "headers")),
        ],
    }
    path = tmp_path / "items"
    path.write_bytes(avro(schema, [(60, (long(10**6) + b"\0") * 60)]))
    found = measured("aiven.avro", path)
    assert (found.records, found.bad, found.fault) == (60, 0, "")
    assert found.megabytes < MEGABYTES, found


def test_names_that_are_no_fields_of_a_record_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_bytes(b'{"value":1,' + b",".join(b'"%d":0' % i for i in range(4_000_000)) + b"}\n")
    found = measured("aiven.jsonl", path)
    assert (found.records, found.bad, found.fault) == (1, 1, "")
    assert found.megabytes < MEGABYTES, found


def test_all_that_a_record_holds_counts_for_its_batch(tmp_path: Path) -> None:
    record = b"\0\0\0" + long(10**6) + b"t" * 10**6 + bytes(4)
    block = zlib.compressobj(6, zlib.DEFLATED, -15)
    data = block.compress(record * 100) + block.flush()
    path = tmp_path / "topics"
    path.write_bytes(avro(ENVELOPE_SCHEMA.encode(), [(100, data)] * 10, "deflate"))
    found = measured("envelope.avro", path)
    assert (found.records, found.fault) == (1000, "")
    assert found.megabytes < MEGABYTES, found


def test_every_reader_is_attacked() -> None:
    # The readers within Aiven's and Lenses' have no attack of their own: they are the lines, Avro and Parquet above.
    alike = {
        "aiven.avro",
        "aiven.parquet",
        "lenses.avro",
        "lenses.parquet",
        "bytes",
        "bytes.bz2",
        "bytes.zst",
        "bytes.lz4",
        "bytes.snappy",
        "bytes.xz",
    }
    assert {attack.format for attack in ATTACKS.values()} == set(READERS) - alike


def test_a_large_line_that_is_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.write_bytes(b'{"a":"' + b"x" * 100_000_000 + b'"}\n' + b"1\n")
    found = measured("json", path)
    assert (found.records, found.bad, found.fault) == (2, 0, "")
    assert found.seconds < SECONDS


def test_lines_that_compress_well_are_read(tmp_path: Path) -> None:

    path = tmp_path / "lines"
    path.write_bytes(gzip.compress(b'{"id":1,"text":"the same again and again"}\n' * 1_000_000))
    found = measured("json.gz", path)
    assert (found.records, found.bad, found.fault) == (1_000_000, 0, "")
    assert found.megabytes < MEGABYTES


def test_random_bytes_are_refused_by_the_one_error(tmp_path: Path) -> None:
    seeded = random.Random(1)
    path = tmp_path / "noise"
    path.write_bytes(seeded.randbytes(100_000))
    for name in ("avro", "parquet", "envelope.parquet", "envelope.avro", "envelope.json", "aiven.json", "block_gzip"):
        assert measured(name, path).fault.startswith("[KS-ARCHIVE-DATA] object k")
