"""DuckDB for work that may exceed memory: its memory is limited, and the rest goes to temporary files."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_s3_platform.core.errors import ErrorCode, PermanentError

if TYPE_CHECKING:
    import duckdb

# Imported when used: loaded with a command's modules, which Python's collector leaves out, DuckDB would print forty
# lines about leaks when the command ends.

MEMORY_LIMIT = "256MB"
"""The memory of each task. An executor may run several tasks at once."""


def open_spilling_database(folder: str) -> "duckdb.DuckDBPyConnection":
    """Open a new database in memory. What does not fit into memory goes to files in `folder`."""
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": folder,
            # A Spark task has one core by default.
            "threads": "1",
            # Keeping the order of insertion takes memory, and no query here needs it.
            "preserve_insertion_order": "false",
        },
    )


@contextmanager
def read_by_duckdb(schema: pa.Schema, batches: Iterable[pa.RecordBatch], what: str) -> Iterator[pa.RecordBatchReader]:
    """Yield a reader of the batches to a query inside the `with` block. `what` names the work, for messages.

    Raises:
        PermanentError: there is not enough memory, or no room for temporary files.
        Exception: the error that reading the batches raised. DuckDB alone would pass on only its text.
    """
    import duckdb

    raised: list[Exception] = []

    def read() -> Iterator[pa.RecordBatch]:
        """Yield the batches, and keep the error of reading them."""
        try:
            yield from batches
        except Exception as err:
            raised.append(err)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, read())
    except duckdb.Error as err:
        if raised:
            # DuckDB passes on only the text of an error, without its type.
            raise raised[0] from None
        if not isinstance(err, duckdb.OutOfMemoryException | duckdb.IOException):
            raise
        raise PermanentError(
            f"{what} needs more than the {MEMORY_LIMIT} of memory and the space for temporary files in "
            f"{tempfile.gettempdir()} that it may use: {err}. Make room there, or restore fewer kafka partitions or "
            "offsets at once",
            code=ErrorCode.DISK,
        ) from err
