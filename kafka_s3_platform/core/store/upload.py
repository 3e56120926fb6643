"""Writes the objects of a segment. An existing object is not overwritten, unless it is a leftover of the same work.

A *leftover* is an object this archive wrote at this key, in an earlier try or in a run that can no longer commit.
"""

import hashlib
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka_s3_platform.core.errors import ForeignObjectError, PlatformError, StoreUnavailableError, SupersededError
from kafka_s3_platform.core.model.segment import StoredObject
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import (
    MAX_METADATA_BYTES,
    WRITE_ID,
    ObjectInfo,
    ObjectStore,
    measure_metadata,
    new_write_id,
)

logger = logging.getLogger(__name__)

_MAX_ROUNDS = 20
_SHA256 = "sha256"
_SHA256_DIGITS = 64
_PLACE = "place"
_TAGS = {"startOffset": "first-offset", "endOffset": "last-offset", "recordCount": "record-count"}
"""The fact in the value of each of Confluent's tags. The end offset is the offset of the last record."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The writer of an object. It is in the object's metadata and decides between two writers of a key.

    `index_dir` is the folder of the writer's index. The metadata has only a hash of it, for `is_in_place`, so
    `index_dir` is empty after reading back.
    """

    connector: str
    topic: str
    topic_id: str
    index_id: str
    run_id: str
    epoch: int
    attempt: int = 0
    index_dir: str = ""

    def metadata(self, key: str) -> dict[str, str]:
        """Return the user metadata of the object at `key`."""
        return {
            "connector": self.connector,
            "topic": self.topic,
            "topic-id": self.topic_id,
            "index-id": self.index_id,
            "run-id": self.run_id,
            "epoch": str(self.epoch),
            "attempt": str(self.attempt),
            _PLACE: _mark_place(self.index_dir, key),
        }

    @classmethod
    def of(cls, info: ObjectInfo) -> "Provenance | None":
        """Return the writer of the object, or None if its metadata does not name one, because another tool wrote it."""
        metadata = info.metadata
        try:
            numbers = int(metadata["epoch"]), int(metadata["attempt"])
            archive = metadata["connector"], metadata["topic"], metadata["topic-id"], metadata["index-id"]
            return cls(*archive, metadata["run-id"], *numbers)
        except (KeyError, ValueError):
            return None

    @staticmethod
    def is_in_place(info: ObjectInfo, index_dir: str) -> bool:
        """Return True if the object was written at its key for the index in this folder, and is not a copy."""
        return info.metadata.get(_PLACE) == _mark_place(index_dir, info.key)

    def has_same_archive(self, other: "Provenance") -> bool:
        """Return True if both archive the same topic (by its id, too) for the same connector and index.

        Epochs are versions of one index. They cannot be compared with the epochs of another index, be it lost or
        elsewhere.
        """
        own_ids = (self.connector, self.topic, self.topic_id, self.index_id)
        return own_ids == (other.connector, other.topic, other.topic_id, other.index_id)


def _mark_place(index_dir: str, key: str) -> str:
    """Return a hash of an object's place. The key itself may be too long, since all metadata together may have 2 KB."""
    return hashlib.sha256(f"{index_dir}\n{key}".encode()).hexdigest()[:32]


def _explain_writer(writer: Provenance | None, own_writer: Provenance, is_in_place: bool) -> str:
    """Explain who wrote the object in the way, and advise how `own_writer` can write its own."""
    move = "To take the place over, move that object elsewhere"
    if writer is None:
        return f"Its metadata do not name its writer (no provenance). {move}"
    if writer.connector != own_writer.connector:
        return (
            f"Connector {writer.connector} wrote it. If {own_writer.connector} is its new name, give it back its old "
            f"one; if "
            f"both exist, they must not share a folder. Else, to take the place over, move that object elsewhere"
        )
    if is_in_place and writer.topic != own_writer.topic:
        return f"It is of the same archive: transforms gave {writer.topic} the same name. Keep the names apart"
    if not is_in_place:
        return (
            f"This connector wrote it at another key, or with another index.dir: it is a copy, or index.dir was "
            f"changed. If it was, set it back. {move}"
        )
    if writer.topic_id != own_writer.topic_id:
        return (
            f"It is of an earlier topic of this name, with id {writer.topic_id}: this topic was created again. {move}"
        )
    return f"This connector wrote it with an index that is gone: it was deleted, or made anew. {move}"


@contextmanager
def abort_on_error(abort: Callable[[], None]) -> Iterator[None]:
    """Call `abort` if the block raises anything, and raise it again."""
    try:
        yield
    except BaseException:
        abort()
        raise


class SegmentUpload:
    """A binary sink that becomes the object `key` when it is finished. Before that, nothing is visible at the key.

    Up to `part_size` bytes go in one PUT. More bytes go in a multipart upload, with one part in flight while the next
    one fills. The caller ends with `finish` or with `abort`. Writes after `abort` are dropped, so a format's writer can
    still close itself. `begun` is metadata only for a multipart upload, set at its start.
    """

    def __init__(
        self, store: ObjectStore, key: str, provenance: Provenance, begun: Mapping[str, str] | None = None
    ) -> None:
        self._store = store
        self._part_size = store.settings.part_size
        self._key = key
        self._provenance = provenance
        self._begun = begun or {}
        self._write_id = new_write_id()
        self._hash = hashlib.sha256()
        self._size = 0
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._in_flight = 0
        self._uploader: ThreadPoolExecutor | None = None
        self._aborted = False

    @property
    def closed(self) -> bool:
        return False

    @property
    def buffered_bytes(self) -> int:
        """The most bytes ever in memory, however fast the store is. The ends of segments depend on this number."""
        return len(self._buffer) + self._in_flight

    def write(self, data: bytes, /) -> int:
        """Append bytes. Raises the error of an earlier part's upload; the whole upload is then aborted."""
        view = memoryview(data).cast("B")
        if not self._aborted:
            self._size += len(view)
            self._buffer += view
            if len(self._buffer) > self._part_size:
                with abort_on_error(self.abort):
                    while len(self._buffer) > self._part_size:
                        self._send_part(self._part_size)
        return len(view)

    def flush(self) -> None:
        """Do nothing: a part is sent when it is full."""

    def tell(self) -> int:
        return self._size

    def has_room(self, metadata: Mapping[str, str]) -> bool:
        """Return True if the object has room for this metadata besides its own. Call it after all writes."""
        object_metadata = self._describe_object(metadata, "0" * _SHA256_DIGITS)
        return self._upload_id is None and measure_metadata(object_metadata) <= MAX_METADATA_BYTES

    def finish(self, metadata: Mapping[str, str] | None = None) -> StoredObject:
        """Make the object visible. `metadata` is added to a PUT only: a multipart upload has its own since its start.

        Tags the object if `tagging` is set.

        Raises:
            SupersededError: a later reservation, or a later attempt of this one, has written the key.
            ForeignObjectError: the object at the key does not belong to this archive.
        """
        if self._aborted:
            raise ValueError(f"{self._store.uri(self._key)}: the upload was aborted and cannot be finished")
        with abort_on_error(self.abort):
            etag = self._create_or_replace(
                self._prepare_completion() if self._upload_id else self._prepare_put(metadata or {})
            )
            self._tag(metadata or {})
        self._release()
        return StoredObject(self._key, self._size, etag, self._hash.hexdigest())

    def abort(self) -> None:
        """Abort the upload. Never raises: if the store cannot abort it now, it is left for the vacuum."""
        self._aborted = True
        upload_id = self._upload_id
        self._upload_id = None
        self._release()
        if upload_id is not None:
            try:
                self._store.abort_upload(self._key, upload_id)
            except PlatformError as err:
                logger.warning("multipart upload %s is left for the vacuum: %s", upload_id, err)

    def _send_part(self, size: int) -> None:
        """Upload `size` bytes of the buffer as the next part, in the background, after the last one has arrived."""
        if self._parts:
            self._parts[-1].result()
        if self._uploader is None:
            metadata = {**self._begun, **self._provenance.metadata(self._key), WRITE_ID: self._write_id}
            self._upload_id = self._store.create_upload(self._key, metadata)
            self._uploader = ThreadPoolExecutor(1, thread_name_prefix="upload")
        body = self._take_bytes(size)
        self._in_flight = size
        number = len(self._parts) + 1
        self._parts.append(
            self._uploader.submit(self._store.upload_part, self._key, str(self._upload_id), number, body)
        )

    def _prepare_completion(self) -> Callable[[str | None], str]:
        """Send the last part. Return a function that ends the upload, under a condition, and returns the ETag."""
        if self._buffer:
            self._send_part(len(self._buffer))
        parts = [part.result() for part in self._parts]
        upload_id = str(self._upload_id)
        return lambda if_match: self._store.complete_upload(self._key, upload_id, parts, self._write_id, if_match)

    def _prepare_put(self, metadata: Mapping[str, str]) -> Callable[[str | None], str]:
        """Return a function that writes the object in one request, under a condition, and returns the ETag."""
        body = self._take_bytes(len(self._buffer))
        object_metadata = self._describe_object(metadata, self._hash.hexdigest())

        def put(if_match: str | None) -> str:
            if if_match is None:
                return self._store.put_new(self._key, body, object_metadata)
            return self._store.replace(self._key, body, if_match, object_metadata)

        return put

    def _take_bytes(self, size: int) -> bytes:
        """Take bytes out of the buffer, so memory has them only once, and hash them. One long hash is the cheapest."""
        body = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._hash.update(body)
        return body

    def _describe_object(self, metadata: Mapping[str, str], sha256: str) -> dict[str, str]:
        return {**metadata, **self._provenance.metadata(self._key), _SHA256: sha256}

    def _tag(self, facts: Mapping[str, str]) -> None:
        """Tag the object as Confluent's sink does: with a separate request, after the object exists.

        The tags are the first and last offset and the number of records, if known, and the tags of the settings.
        Raises PlatformError unless `ignore_tagging_errors`.
        """
        settings = self._store.settings
        tags = {tag: facts[fact] for tag, fact in _TAGS.items() if fact in facts} | dict(settings.tags)
        if not settings.tagging or not tags:
            return
        try:
            self._store.tag(self._key, tags)
        except PlatformError as err:
            if not settings.ignore_tagging_errors:
                raise
            logger.warning("the object is left without its tags: %s", err)

    def _create_or_replace(self, write: Callable[[str | None], str]) -> str:
        """Create the object, or replace the existing one if it is a leftover. Return the ETag."""
        if_match: str | None = None
        for _ in range(_MAX_ROUNDS):
            try:
                return write(if_match)
            except PreconditionError:
                info = self._store.head(self._key)
            except NotFoundError:
                if if_match is None:
                    raise
                info = None
            if info and self._is_same(info):
                return info.etag
            if_match = self._require_replaceable(info).etag if info else None
        raise StoreUnavailableError(
            f"{self._store.uri(self._key)}: the object there changed {_MAX_ROUNDS} times meanwhile; run again"
        )

    def _is_same(self, info: ObjectInfo) -> bool:
        """Return True if this same epoch and attempt has written exactly these bytes."""
        writer = Provenance.of(info)
        own_writer = self._provenance
        return (
            writer is not None
            and own_writer.has_same_archive(writer)
            and (writer.epoch, writer.attempt) == (own_writer.epoch, own_writer.attempt)
            and info.size == self._size
            and info.metadata.get(_SHA256) == self._hash.hexdigest()
        )

    def _require_replaceable(self, info: ObjectInfo) -> ObjectInfo:
        """Return `info` if a superseded run, or an earlier attempt of this one, left the object. Else raise."""
        uri = self._store.uri(self._key)
        own_writer = self._provenance
        writer = Provenance.of(info)
        is_in_place = Provenance.is_in_place(info, own_writer.index_dir)
        if writer is None or not own_writer.has_same_archive(writer) or not is_in_place:
            raise ForeignObjectError(
                f"{uri} exists, and connector {own_writer.connector} did not write it for topic {own_writer.topic} as "
                f"it is now. "
                f"{_explain_writer(writer, own_writer, is_in_place)}, or give the connector another topics.dir; then "
                f"run again. "
                f"The object stays as it is"
            )
        if (writer.epoch, writer.attempt) >= (own_writer.epoch, own_writer.attempt):
            raise SupersededError(
                f"{uri} was written by epoch {writer.epoch}, attempt {writer.attempt} (run {writer.run_id}); this is "
                f"epoch {own_writer.epoch}, attempt {own_writer.attempt} (run {own_writer.run_id}), which may not "
                f"write it any more. Run "
                f"again for what is still missing; if the index was put back from a copy, first run "
                f"`kafka-s3 vacuum {shlex.quote(own_writer.connector)} --index-put-back`"
            )
        logger.info("replacing the leftover of epoch %d, attempt %d at %s", writer.epoch, writer.attempt, uri)
        return info

    def _release(self) -> None:
        """Wait for the parts in flight, end their thread, and free the buffer."""
        if self._uploader is not None:
            self._uploader.shutdown(wait=True, cancel_futures=True)
        self._buffer.clear()
