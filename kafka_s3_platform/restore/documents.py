"""The documents that a restore stores in the bucket. They are read with care: somebody may have changed them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.parquet.batches import RowGroupReader
from kafka_s3_platform.formats.parquet.pages import open_checked
from kafka_s3_platform.model.limits import NO_KEYS

T = TypeVar("T")

PLAN_FORMAT = 1
"""The format of plans that this version writes and reads."""

REPORT_FORMAT = 1
"""The format of reports that this version writes and reads."""

BATCH_RECORDS = 65_536
_MOST_TIMES = 100
"""A document is in memory as a whole, and may be so many times larger there than it is stored."""

_ADVICE = "Somebody changed it, or something else wrote it: restore under another restore id"


@dataclass(frozen=True)
class Said:
    """The fields of a plan or a report that say what it is, and the digest that was stored with it.

    A plan of our own archive has a `source`. A plan of objects that another sink wrote has a `kind`.
    """

    format: int | None = None
    digest: str | None = None
    source: object = None
    kind: object = None


@dataclass(frozen=True, slots=True)
class StreamDocuments:
    """The object keys of the documents of one stream."""

    prefix: str

    @property
    def checkpoint(self) -> str:
        """How far the stream has come."""
        return f"{self.prefix}.json"

    @property
    def mapping(self) -> str:
        """Which offset of the target each source offset became."""
        return f"{self.prefix}.mapping.parquet"

    @property
    def left_out(self) -> str:
        """The bad objects that the restore does without."""
        return f"{self.prefix}.left-out.json"


@dataclass(frozen=True, slots=True)
class RestoreDocuments:
    """The object keys of the documents of a restore in `folder`. No other code makes such a key."""

    folder: str
    restore_id: str

    @staticmethod
    def of_plan(key: str) -> "RestoreDocuments":
        """Return the documents of the restore whose plan lies at `key`."""
        folder, _, name = key.rpartition("/")
        return RestoreDocuments(folder, name.removesuffix(".json"))

    @property
    def plan(self) -> str:
        """What is sent, and to where."""
        return f"{self.folder}/{self.restore_id}.json"

    @property
    def report(self) -> str:
        """What was sent and verified. The restore is finished once this object exists."""
        return f"{self.folder}/{self.restore_id}.report.json"

    @property
    def page(self) -> str:
        """The report for people."""
        return f"{self.folder}/{self.restore_id}.report.html"

    @property
    def known(self) -> str:
        """What the restores before this one have sent."""
        return f"{self.folder}/{self.restore_id}.known.parquet"

    @property
    def successor(self) -> str:
        """Which restore comes after this one."""
        return f"{self.folder}/{self.restore_id}.next"

    @property
    def streams(self) -> str:
        """The folder of the documents of streams."""
        return f"{self.folder}/{self.restore_id}/"

    def stream(self, kafka_partition: int, topic: str = "") -> StreamDocuments:
        """Return the documents of one stream. `topic` is empty if the restore has only one."""
        name = f"{topic}/{kafka_partition}" if topic else str(kafka_partition)
        return StreamDocuments(f"{self.streams}{name}")


def hash_document(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document. Equal documents have equal digests, in whatever order their fields are."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_digest(key: str, found: str, said: str | None) -> None:
    """Check that a plan has the digest that was stored with it. IntegrityError if it has another one, or said none."""
    if found != said:
        raise IntegrityError(
            f"restore plan {key}: its digest is {found}, it says {said}: somebody changed it. Restore to another "
            f"topic, under another restore id"
        )


def read_said(content: bytes, key: str, what: str, wanted: int) -> Said:
    """Read what a plan or a report says of itself. `what` names it for errors.

    Raises:
        IntegrityError: it is no document, or has another format than `wanted`, or none.
    """
    said = parse_document(content, Said, key)
    if said.format != wanted:
        found = "no format" if said.format is None else f"format {said.format}"
        raise IntegrityError(
            f"{what} {key} has {found}, and this version reads format {wanted}: use the version that wrote it, or "
            f"restore under another restore id"
        )
    return said


def parse_document(content: bytes, kind: type[T], key: str) -> T:
    """Parse a JSON document as `kind`, and check the type of every field. Unknown fields are ignored.

    Raises:
        IntegrityError: it is no such document.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as err:
        raise IntegrityError(f"{key} is no document of a restore ({kind.__name__}): {err}. {_ADVICE}") from err


def parse_table(content: bytes, schema: pa.Schema, key: str) -> pa.Table:
    """Parse a Parquet document that has these columns.

    Raises:
        IntegrityError: it is no such document, is damaged, or needs more memory than objects may.
    """
    source = BytesIO(content)
    try:
        checked = open_checked(source, key, NO_KEYS)
        found = checked.file.schema_arrow
        if not found.equals(schema):
            raise IntegrityError(f"{key} is no document of a restore: its columns are {found.names}. {_ADVICE}")
        reader = RowGroupReader(source, checked, key, NO_KEYS)
        batches: list[pa.RecordBatch] = []
        come = 0
        for number in range(len(checked.row_groups)):
            for batch in reader.batches(number, BATCH_RECORDS):
                come += batch.nbytes
                # Counted while reading: a small document may hold more than the memory of the process.
                if come > max(NO_KEYS.block_bytes, _MOST_TIMES * len(content)):
                    raise IntegrityError(f"{key} comes to {come:,} bytes from {len(content):,}. {_ADVICE}")
                batches.append(batch)
        return pa.Table.from_batches(batches, schema).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as err:
        raise IntegrityError(f"{key} cannot be read as Parquet: {err}. {_ADVICE}") from err
