"""The documents that a restore keeps in the bucket, read as what somebody may have changed or made up."""

from io import BytesIO
from typing import TypeVar

import msgspec
import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.parquet_batches import RowGroupReader
from kafka_s3_platform.formats.parquet_pages import opened
from kafka_s3_platform.model.limits import NO_KEYS

T = TypeVar("T")

BATCH_RECORDS = 65_536
_MOST_TIMES = 100
"""By how much such a document, which is in memory as a whole, may be larger than it is stored."""

_ADVICE = "Somebody changed it, or something else wrote it: restore under another restore id"


def document(content: bytes, kind: type[T], key: str) -> T:
    """A JSON document as `kind`, every field of the type that it is declared with; what is unknown is left out.

    Raises:
        IntegrityError: it is no such document.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as err:
        raise IntegrityError(f"{key} is no document of a restore ({kind.__name__}): {err}. {_ADVICE}") from err


def table(content: bytes, schema: pa.Schema, key: str) -> pa.Table:
    """A Parquet document with these columns.

    Raises:
        IntegrityError: it is none, is damaged, or asks for more memory than objects may.
    """
    source = BytesIO(content)
    try:
        checked = opened(source, key, NO_KEYS)
        found = checked.file.schema_arrow
        if not found.equals(schema):
            raise IntegrityError(f"{key} is no document of a restore: its columns are {found.names}. {_ADVICE}")
        reader, batches, come = RowGroupReader(source, checked, key, NO_KEYS), list[pa.RecordBatch](), 0
        for number in range(len(checked.row_groups)):
            for batch in reader.batches(number, BATCH_RECORDS):
                come += batch.nbytes
                if come > max(NO_KEYS.block_bytes, _MOST_TIMES * len(content)):
                    raise IntegrityError(f"{key} comes to {come:,} bytes from {len(content):,}. {_ADVICE}")
                batches.append(batch)
        return pa.Table.from_batches(batches, schema).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as err:
        raise IntegrityError(f"{key} cannot be read as Parquet: {err}. {_ADVICE}") from err
