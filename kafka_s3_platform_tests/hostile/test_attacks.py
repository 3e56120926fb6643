"""No object takes more than some memory and time: it is refused by the one error, or read with its bad records told."""

import gzip
import random
from pathlib import Path

import pytest

from kafka_s3_platform_tests.hostile.attacks import ATTACKS
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
        assert found.fault.startswith("object k")
    else:
        assert (found.records, found.bad, found.fault) == (1, 1, "")


def test_every_reader_is_attacked() -> None:
    # csv, and the readers within Aiven's, have no attack of their own: they are the lines, Avro and Parquet above.
    alike = {"aiven.csv", "aiven.avro", "aiven.parquet", "bytes", "bytes.bz2", "bytes.zst"}
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
        assert measured(name, path).fault.startswith(("object k", "object k is no"))
