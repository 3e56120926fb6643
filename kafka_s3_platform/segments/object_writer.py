"""Write one object of an open segment, and the small objects beside it."""

import io
from collections.abc import Iterator, Mapping
from functools import partial

from kafka_s3_platform.formats.kept_offsets import BESIDE, METADATA, REPEATED
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.formats.writers import find_extension, new_writer
from kafka_s3_platform.layouts.segment_key import make_offsets_key
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.segments.target import Bucket, RecordId, SegmentTarget
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import SegmentUpload, UploadedObject


class ObjectWriter:
    """One object of a segment, and the small ones that are added when it is uploaded."""

    def __init__(
        self, target: SegmentTarget, bucket: Bucket, first: RecordId, part: ObjectPart, store: ObjectStore
    ) -> None:
        self._target = target
        self._bucket = bucket
        self._first = first
        self._store = store
        # A multipart upload gets its metadata at its start. The offsets are not known by then, only that they will be
        # kept beside the object.
        keeps_offsets = not target.layout.is_envelope and part == target.parts(bucket)[0]
        begun = {METADATA: BESIDE} if keeps_offsets else None
        self._upload = self._new_upload(self._key(find_extension(target.layout, part)), begun)
        schema = {"value": bucket.schema, "key": bucket.key_schema, "headers": None}[part]
        self._new_writer = partial(new_writer, layout=target.layout, part=part, schema=schema)
        self._writer = self._new_writer(self._upload)

    @property
    def in_flight(self) -> int:
        return self._writer.buffered_bytes + self._upload.buffered_bytes

    def try_out(self, batch: ConnectBatch) -> None:
        """Write records nowhere. Raises UnwritableRecordsError for those that the format cannot hold."""
        self._new_writer(io.BytesIO()).write(batch)

    def write(self, batch: ConnectBatch) -> None:
        self._writer.write(batch)

    def abort(self) -> None:
        self._upload.abort()

    def encode_rest(self, facts: Mapping[str, str]) -> None:
        """Encode the records that are still buffered, and `facts` if the format has a place for them."""
        self._writer.close(facts)

    def upload(self, facts: Mapping[str, str], offsets: str | None) -> Iterator[UploadedObject]:
        """Finish the object, then the small objects beside it. Everything is encoded by then.

        The `offsets` of its records go to its metadata, or to an object beside it if there is no room.
        """
        told = {**facts, **({} if offsets is None else {METADATA: offsets})}
        is_beside = offsets is not None and not self._upload.has_room(told)
        done = self._upload.finish({**told, METADATA: BESIDE} if is_beside else told)
        yield done
        if is_beside and offsets is not None:
            yield from self._beside(done.key, offsets)
        for suffix, body in self._writer.sidecars.items():
            upload = self._new_upload(self._key(suffix))
            upload.write(body)
            yield upload.finish()

    def _beside(self, key: str, offsets: str) -> Iterator[UploadedObject]:
        own = make_offsets_key(key, self._target.layout.directory_delim)
        # If the key for them would be too long, no object is written: readers then know as little about the offsets as
        # in an object of another tool.
        if len(own.encode()) <= MAX_KEY_BYTES and offsets != REPEATED:
            upload = self._new_upload(own)
            upload.write(offsets.encode())
            yield upload.finish()

    def _key(self, suffix: str) -> str:
        return self._target.key(self._bucket, self._first, suffix.removeprefix("."))

    def _new_upload(self, key: str, begun: Mapping[str, str] | None = None) -> SegmentUpload:
        return SegmentUpload(self._store, key, self._target.provenance, begun)
