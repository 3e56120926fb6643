"""DuckDB for what may be more than memory holds: bounded, the rest in temporary files."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from kafka_s3_platform.errors import PermanentError

MEMORY_LIMIT = "256MB"


def spilling(folder: str) -> duckdb.DuckDBPyConnection:
    """A database of its own in memory; what does not fit goes to files in `folder`."""
    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": folder,
            "threads": "1",
            "preserve_insertion_order": "false",
        },
    )


@contextmanager
def read_by_duckdb(schema: pa.Schema, batches: Iterable[pa.RecordBatch], what: str) -> Iterator[pa.RecordBatchReader]:
    """The batches for a query that is made while this is entered. `what` is being done, for messages.

    Raises:
        PermanentError: there is not enough memory, or room for temporary files.
        Exception: what reading the batches has raised; DuckDB passes on no more than its text.
    """
    raised: list[Exception] = []

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as err:
            raised.append(err)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, read())
    except duckdb.Error as err:
        if raised:
            raise raised[0] from None
        if not isinstance(err, duckdb.OutOfMemoryException | duckdb.IOException):
            raise
        raise PermanentError(
            f"{what} needs more than the {MEMORY_LIMIT} of memory and the temporary files of {tempfile.gettempdir()} "
            f"that it may use: {err}. Make room there, or restore fewer kafka partitions or offsets at once"
        ) from err
