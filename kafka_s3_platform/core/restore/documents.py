"""The documents of a restore in the bucket. They are read with care: somebody may have changed them.

One of them holds the bad objects left out of a stream. This is decided once for a restore id, so sending, resuming and
verifying leave out the same objects, even if somebody mends one of them in between.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.parquet.batches import RowGroupReader
from kafka_s3_platform.core.formats.parquet.pages import open_checked
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS
from kafka_s3_platform.core.model.segment import BadObject
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore

T = TypeVar("T")

PLAN_FORMAT = 1
"""The format of this version's plans."""

REPORT_FORMAT = 1
"""The format of this version's reports."""

BATCH_RECORDS = 65_536
_MOST_TIMES = 100
"""A document is in memory as a whole, and may be at most this many times larger there than in the bucket."""

_ADVICE = "Somebody changed it, or something else wrote it: restore under another restore id"

DECIDED = (
    "The restore decided before its first record which objects it leaves out, and this is not one of them. Put it "
    "back as it was and run again under the same restore id, or restore to another topic under another restore id"
)

MENDED = "Once it is repaired, a new restore under another restore id sends it. This one does not"


@dataclass(frozen=True)
class DocumentHeader:
    """The identity of a plan or a report, and the digest stored with it. Only plans have a kind."""

    format: int | None = None
    digest: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class StreamDocuments:
    """The object keys of the documents of one stream."""

    prefix: str

    @property
    def checkpoint(self) -> str:
        """The document with the progress of the stream."""
        return f"{self.prefix}.json"

    @property
    def mapping(self) -> str:
        """The document with the pairs of source and target offsets."""
        return f"{self.prefix}.mapping.parquet"

    @property
    def left_out(self) -> str:
        """The document with the bad objects left out by the restore."""
        return f"{self.prefix}.left-out.json"


@dataclass(frozen=True, slots=True)
class RestoreDocuments:
    """The object keys of a restore's documents, all in `folder`. No other code makes such a key."""

    folder: str
    restore_id: str

    @staticmethod
    def of_plan(key: str) -> "RestoreDocuments":
        """Return the documents of the restore whose plan is at `key`."""
        folder, _, name = key.rpartition("/")
        return RestoreDocuments(folder, name.removesuffix(".json"))

    @property
    def plan(self) -> str:
        """The objects to send, and their targets."""
        return f"{self.folder}/{self.restore_id}.json"

    @property
    def report(self) -> str:
        """The result of sending and verifying. The restore is finished once this object exists."""
        return f"{self.folder}/{self.restore_id}.report.json"

    @property
    def page(self) -> str:
        """The report as a page for people to read."""
        return f"{self.folder}/{self.restore_id}.report.html"

    @property
    def sent_before(self) -> str:
        """The objects sent by earlier restores."""
        return f"{self.folder}/{self.restore_id}.known.parquet"

    @property
    def successor(self) -> str:
        """The document that names the one restore which follows this one."""
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
    """Return the SHA-256 of a document. Equal documents have equal digests, whatever the order of their fields is."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_header(content: bytes, key: str, what: str, expected: int) -> DocumentHeader:
    """Read the identity of a plan or a report. `what` names it for errors.

    Raises:
        IntegrityError: the content is no such document, or has another format than `expected`, or none.
    """
    header = parse_document(content, DocumentHeader, key)
    if header.format != expected:
        actual = "no format" if header.format is None else f"format {header.format}"
        raise IntegrityError(
            f"{what} {key} has {actual}, and this version reads format {expected}: use the version that wrote it, or "
            f"restore under another restore id"
        )
    return header


def parse_document(content: bytes, kind: type[T], key: str) -> T:
    """Parse a JSON document as `kind`, and check the type of every field. Unknown fields are ignored.

    Raises:
        IntegrityError: the content is no such document.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as err:
        raise IntegrityError(f"{key} is not a valid restore document ({kind.__name__}): {err}. {_ADVICE}") from err


def parse_table(content: bytes, schema: pa.Schema, key: str) -> pa.Table:
    """Parse a Parquet document with these columns.

    Raises:
        IntegrityError: the content is no such document, is damaged, or needs more memory than is allowed.
    """
    source = BytesIO(content)
    try:
        checked = open_checked(source, key, DEFAULT_LIMITS)
        schema_found = checked.file.schema_arrow
        if not schema_found.equals(schema):
            raise IntegrityError(
                f"{key} is not a valid restore document: its columns are {schema_found.names}. {_ADVICE}"
            )
        reader = RowGroupReader(source, checked, key, DEFAULT_LIMITS)
        batches: list[pa.RecordBatch] = []
        total_bytes = 0
        for number in range(len(checked.row_groups)):
            for batch in reader.batches(number, BATCH_RECORDS):
                total_bytes += batch.nbytes
                # Counted while reading: a small document may hold more than the memory of the process.
                if total_bytes > max(DEFAULT_LIMITS.block_bytes, _MOST_TIMES * len(content)):
                    raise IntegrityError(f"{key} expands to {total_bytes:,} bytes from {len(content):,}. {_ADVICE}")
                batches.append(batch)
        return pa.Table.from_batches(batches, schema).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as err:
        raise IntegrityError(f"{key} cannot be read as Parquet: {err}. {_ADVICE}") from err


@dataclass(frozen=True)
class LeftOutObjects:
    """The reason for each object left out, by its key, and the digest of the plan with these objects."""

    plan: str
    objects: Mapping[str, str]


def read_left_out(store: ObjectStore, key: str, plan_digest: str) -> Mapping[str, str] | None:
    """Return the objects to leave out, or None if this is not decided yet.

    Raises IntegrityError if the document belongs to another plan, or somebody changed it.
    """
    try:
        document = parse_document(store.get(key), LeftOutObjects, key)
    except NotFoundError:
        return None
    if document.plan != plan_digest:
        raise IntegrityError(
            f"{key} belongs to a restore with plan {document.plan}, but the plan of this restore is {plan_digest}: "
            "the restore id was used before. Use another restore id"
        )
    return document.objects


def save_left_out(
    store: ObjectStore, key: str, plan_digest: str, bad_objects: Iterable[BadObject], sent_below: int
) -> None:
    """Store the objects to leave out. If another run has stored its decision first, that decision counts.

    Raises:
        IntegrityError: records of a bad object may be in the target, as earlier runs have sent all below `sent_below`.
    """
    objects = list(bad_objects)
    if sent_objects := [item for item in objects if item.start_offset < sent_below]:
        raise IntegrityError(
            f"{sent_objects[0].why}. An earlier run may have sent a part of it, so it cannot be left out as a whole. "
            "Put it back as it was, or restore to another topic under another restore id"
        )
    try:
        document = {"plan": plan_digest, "objects": {item.key: item.why for item in objects}}
        store.put_new(key, json.dumps(document, indent=1).encode())
    except PreconditionError:
        return
