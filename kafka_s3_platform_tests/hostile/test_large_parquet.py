"""Parquet of others, with row groups of hundreds of megabytes, is read with the default limits in bounded memory."""

import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.core.errors import IntegrityError, PermanentError
from kafka_s3_platform.core.model.limits import ReadLimits
from kafka_s3_platform_tests.hostile.measure import measured

MEGABYTES = 400
"""Above what the process has before: what is stored of the file is not in it."""

_RECORDS = 100_000


def _texts(chance: random.Random) -> pa.Array:
    words = [f"word{n}" * 3 for n in range(1000)]
    texts = [" ".join(chance.choices(words, k=150)) for _ in range(1000)]
    return pa.array([f"{n} {texts[n % 1000]}" for n in range(_RECORDS)])


def _by_pyarrow(path: Path) -> None:
    """Its defaults: a dictionary until it is a megabyte, pages of a megabyte, a row group of a million records."""
    text = _texts(random.Random(1))
    pq.write_table(
        pa.table({"id": np.arange(_RECORDS), "text": text, "again": text.take(np.arange(_RECORDS)[::-1])}), path
    )


def _of_large_groups(path: Path) -> None:
    """Sizes and version of parquet-mr: pages of a megabyte, snappy."""
    text = _texts(random.Random(2))
    options = {"compression": "snappy", "use_dictionary": False, "data_page_size": 2**20, "version": "1.0"}
    pq.write_table(pa.table({"id": np.arange(_RECORDS), "text": text, "again": text}), path, **options)


def _stored(path: Path) -> None:
    """What does not compress."""
    values = np.random.default_rng(3).bytes(300 * 2**20)
    size = len(values) // _RECORDS
    rows = pa.array([values[at * size : (at + 1) * size] for at in range(_RECORDS)], pa.binary())
    pq.write_table(pa.table({"value": rows}), path, use_dictionary=False, compression="zstd")


def _by_duckdb(path: Path) -> None:
    """Pages of 65 MB, one of each column."""
    rows = duckdb.from_arrow(pa.table({"i": np.arange(_RECORDS)}))
    columns = [f"repeat(md5((i * {n})::varchar), 20) as c{n}" for n in (1, 2, 3, 5, 7)]
    rows.project(", ".join(["i as id", *columns])).write_parquet(str(path))


@pytest.mark.parametrize("write", [_by_pyarrow, _of_large_groups, _stored, _by_duckdb])
def test_a_row_group_of_hundreds_of_megabytes_is_read(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    write(path)
    (group,) = (pq.read_metadata(path).row_group(at) for at in range(pq.read_metadata(path).num_row_groups))
    assert group.total_byte_size > 280 * 2**20
    found = measured("parquet", path)
    assert (found.records, found.bad, found.fault) == (_RECORDS, 0, "")
    assert found.megabytes < MEGABYTES, found


def test_columns_that_waited_in_files_are_beside_those_that_did_not(tmp_path: Path) -> None:
    path = tmp_path / "k.parquet"
    _by_duckdb(path)
    with path.open("rb") as source:
        read = [datum for batch in ParquetReader(source, "k").batches() for datum in batch.value.objects]
    expected = pq.ParquetFile(path, pre_buffer=False).iter_batches(1000)
    at = 0
    for batch in expected:
        assert read[at : at + len(batch)] == batch.to_pylist()
        at += len(batch)
    assert at == len(read)


@contextmanager
def _no_folder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/absent")
        yield


@contextmanager
def _files_of(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "lacking",
    [_no_folder, *(partial(_files_of, most) for most in (0, 1_000, 100_000, 1_000_000))],
    ids=["folder", "all room", "1 kB", "100 kB", "1 MB"],
)
def test_a_machine_without_room_for_columns_is_no_fault_of_the_file(
    lacking: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> None:
    """A bad object is left out where bad ones are ignored."""
    path = tmp_path / "two.parquet"
    column = pa.array([random.Random(n).randbytes(40) for n in range(30_000)])
    pq.write_table(pa.table({"a": column, "b": column}), path, use_dictionary=False)
    limits = ReadLimits(block_bytes=1_500_000)
    with path.open("rb") as source:
        assert sum(len(b) for b in ParquetReader(source, "k", limits=limits).batches()) == 30_000
        with (
            lacking(),
            pytest.raises(PermanentError, match=r"temporary files.*Make room there, or have TMPDIR") as raised,
        ):
            list(ParquetReader(source, "k", limits=limits).batches())
    assert not isinstance(raised.value, IntegrityError)
