"""Reads, lists and writes objects in one bucket of an S3-compatible store, and never overwrites by accident."""

import base64
import hashlib
import io
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from botocore import xform_name

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import IntegrityError, MissingBucketError, PlatformError, StoreUnavailableError
from kafka_s3_platform.core.model.segment import StoredObject
from kafka_s3_platform.core.store.client import get_s3_client, suggest_bucket
from kafka_s3_platform.core.store.clock import StoreClock
from kafka_s3_platform.core.store.errors import (
    BROKEN_OFF,
    Attempted,
    NotFoundError,
    PreconditionError,
    RefusedRequestError,
    translate_errors,
)
from kafka_s3_platform.core.waits import waiting_for

logger = logging.getLogger(__name__)

READ_AHEAD = 4_194_304
MAX_EMPTY_PAGES = 100
"""The pages without an entry that a listing may have in a row. Stores have some after many objects were deleted."""

HEADS_AT_ONCE = 16
WRITE_ID = "write-id"
NO_ETAG = '"00000000000000000000000000000000"'
"""An ETag that no object has, for false conditions."""

_METADATA_SAFE = "/:+=@,"
_METADATA_PREFIX = "x-amz-meta-"
"""The prefix of a header's name. Some stores count it against the metadata limit, but S3 does not."""

MAX_METADATA_BYTES = 2_048
"""S3's limit for the user metadata of an object, names and values together."""

ThawState = Literal["", "ongoing", "thawed"]

COLD = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""The storage classes whose objects have to be thawed before they are read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as the store describes it. `etag` is as the store returns it.

    `thaw` is for objects in a cold storage class. It is empty if no thaw was requested, else `ongoing` or `thawed`.
    Listings have neither `thaw` nor `metadata`.
    """

    key: str
    size: int
    etag: str
    last_modified: datetime
    storage_class: str = "STANDARD"
    metadata: Mapping[str, str] = field(default_factory=dict)
    thaw: ThawState = ""

    @property
    def is_cold(self) -> bool:
        """True if the object cannot be read now, as far as is known."""
        return self.storage_class in COLD and self.thaw != "thawed"


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One answer to a listing: the objects and, with a delimiter, the folders, whose names end in it."""

    objects: tuple[ObjectInfo, ...]
    folders: tuple[str, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload, neither completed nor aborted."""

    key: str
    upload_id: str
    initiated: datetime


class ObjectStore:
    """Reads and writes objects of the bucket in `settings`. It is pickled as its settings.

    Every method may raise AuthorizationError, MissingBucketError or StoreUnavailableError, which name the attempt, and
    the errors in its docstring. If a server does not answer, a call fails after at most `max_retries` + 1 times 65 s.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._sha256: dict[tuple[str, str], str] = {}
        self.clock = StoreClock()

    def __reduce__(self) -> tuple[type["ObjectStore"], tuple[StoreSettings]]:
        return ObjectStore, (self.settings,)

    @property
    def bucket(self) -> str:
        return self.settings.bucket

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def head(self, key: str) -> ObjectInfo | None:
        """Read the metadata of the object at `key`, or return None if there is no such object."""
        try:
            request = {"Bucket": self.bucket, "Key": key, **self._customer_key}
            answer = self._call("HeadObject", key, lambda: self._client.head_object(**request))
        except NotFoundError:
            return None
        return ObjectInfo(
            key=key,
            size=answer["ContentLength"],
            etag=answer["ETag"],
            last_modified=answer["LastModified"],
            storage_class=answer.get("StorageClass", "STANDARD"),
            metadata={name.lower(): unquote(value) for name, value in answer["Metadata"].items()},
            thaw=_parse_thaw_state(answer.get("Restore", "")),
        )

    def heads(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        """Read the metadata of the object at each key, several at once. It is None if there is no object."""
        with ThreadPoolExecutor(HEADS_AT_ONCE, thread_name_prefix="heads") as pool:
            return list(pool.map(self.head, keys))

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises NotFoundError."""
        return self._read(key, {"ChecksumMode": "ENABLED"})

    def open(self, key: str, etag: str | None = None) -> "ObjectFile":
        """Return the object as a seekable file of range reads.

        Raises:
            NotFoundError: there is no such object.
            IntegrityError: its ETag is not `etag`, now or while it is read.
        """
        info = self.head(key)
        if info is None:
            raise NotFoundError(f"{self.uri(key)} does not exist: it was deleted or never written")
        if etag is not None and info.etag != etag:
            raise IntegrityError(f"{self.uri(key)} has etag {info.etag}, not {etag}: it was replaced or damaged")
        return ObjectFile(self, info)

    def open_stored(self, item: StoredObject) -> "ObjectFile":
        """Open the object in a row of the index as `open` does, but accept a copy with another ETag.

        If the ETag differs, size and SHA-256 decide. The whole object is read once for this.
        """
        file = self.open(item.key)
        if not self.is_stored(item, file.info):
            raise IntegrityError(
                f"{self.uri(item.key)} has etag {file.info.etag}, not {item.etag}, and other bytes: it was replaced "
                f"or damaged"
            )
        return file

    def is_stored(self, item: StoredObject, info: ObjectInfo) -> bool:
        """Return True if `info` is about the object in the index, judged by its ETag, else by its size and SHA-256."""
        if info.etag == item.etag:
            return True
        return bool(item.sha256) and info.size == item.size and self._hash_object(info) == item.sha256

    def _hash_object(self, info: ObjectInfo) -> str:
        """Return the SHA-256 of the object in hex. The object is read once for it, and the digest is remembered."""
        sha256 = self._sha256.get((info.key, info.etag))
        if sha256 is None:
            digest = hashlib.sha256()
            with ObjectFile(self, info) as source:
                while part := source.read(READ_AHEAD):
                    digest.update(part)
            sha256 = self._sha256[info.key, info.etag] = digest.hexdigest()
        return sha256

    def read_range(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Read bytes `[start, end)` of the object with `etag`. Raises IntegrityError if it was replaced or deleted."""
        return self._read(key, {"Range": f"bytes={start}-{end - 1}", "IfMatch": etag})

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List the objects under `prefix` in the store's order. Not every store uses byte order."""
        for item in self._list_items("ListObjectsV2", "Contents", Prefix=prefix):
            yield _read_entry(item)

    def list_from(self, folder: str, begin: str) -> Iterator[ObjectInfo]:
        """List the objects of a folder without subfolders, from the first name after `begin`. The store skips others.

        `folder` ends in `/`. Within one folder, all stores compare names alike.
        """
        for item in self._list_items("ListObjectsV2", "Contents", Prefix=folder, StartAfter=f"{folder}{begin}"):
            yield _read_entry(item)

    def list_pages(self, prefix: str, *, delimiter: str = "", start_after: str = "") -> Iterator[ListedPage]:
        """List objects and folders under `prefix`, one request for each page. With a delimiter, list only that folder.

        `start_after` is a key of the same folder or, without a delimiter, the last key of an earlier listing. Every
        store goes on correctly after such a key. For other keys SeaweedFS leaves out some objects, because it compares
        folder by folder.
        """
        options = {"Prefix": prefix, "Delimiter": delimiter, "StartAfter": start_after}
        request = {name: value for name, value in options.items() if value or name == "Prefix"}
        for page in self._list_pages("ListObjectsV2", ("Contents", "CommonPrefixes"), **request):
            yield ListedPage(
                tuple(map(_read_entry, page.get("Contents", []))),
                tuple(folder["Prefix"] for folder in page.get("CommonPrefixes", [])),
                not page.get("IsTruncated"),
            )

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        """List the folders directly under `prefix`, each with its final `/`. `prefix` ends in `/` or is empty."""
        for item in self._list_items("ListObjectsV2", "CommonPrefixes", Prefix=prefix, Delimiter="/"):
            yield item["Prefix"]

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """List unfinished multipart uploads under `prefix`."""
        for item in self._list_items("ListMultipartUploads", "Uploads", Prefix=prefix):
            yield UnfinishedUpload(item["Key"], item["UploadId"], item["Initiated"])

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> str:
        """Create an object, and return its ETag. Raises PreconditionError if another call has written one."""
        return self._put(key, body, metadata or {}, None)

    def replace(self, key: str, body: bytes, if_match: str, metadata: Mapping[str, str] | None = None) -> str:
        """Replace the object with etag `if_match`. Return the new etag.

        Raises PreconditionError if another object is there, and NotFoundError if there is none.
        """
        return self._put(key, body, metadata or {}, if_match)

    def refuses(self, key: str, control: str) -> str | None:
        """Return the store's reason for refusing an object at `key`, or None if it accepts one. Writes nothing.

        `control` is a key stores accept. If a write there is refused too, `key` is not the reason, and the error is
        raised.
        """
        try:
            self.write_in_vain(key)
        except RefusedRequestError as err:
            self.write_in_vain(control)
            return err.text
        return None

    def write_in_vain(self, key: str) -> None:
        """Make a PUT whose condition is always false. Raises the error, if any, that writes at `key` meet."""
        with suppress(PreconditionError, NotFoundError):
            self.replace(key, b"", NO_ETAG)

    def delete(self, key: str, if_match: str) -> None:
        """Delete the object with etag `if_match`, if it exists. Raises PreconditionError if another object is there."""
        request = {"Bucket": self.bucket, "Key": key, "IfMatch": if_match}
        try:
            self._call("DeleteObject", key, lambda: self._client.delete_object(**request))
        except (PreconditionError, NotFoundError):
            if self.head(key) is not None:
                raise

    def read_bucket_setting(self, request: str) -> Mapping[str, Any]:
        """Return the bucket's answer to one of boto3's requests, or {} if nothing is set. Raises store errors."""
        call = getattr(self._client, request)
        try:
            answer: Mapping[str, Any] = self._call(request, "", lambda: call(Bucket=self.bucket))
        except PlatformError as err:
            code = getattr(err.__cause__, "response", {}).get("Error", {}).get("Code", "")
            if code not in {"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"}:
                raise
            return {}
        return answer

    def tag(self, key: str, tags: Mapping[str, str]) -> None:
        """Replace the object's tags by these."""
        tag_set = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        self._call(
            "PutObjectTagging",
            key,
            lambda: self._client.put_object_tagging(Bucket=self.bucket, Key=key, Tagging=tag_set),
        )

    def request_thaw(self, key: str, days: int, tier: str) -> None:
        """Ask the store for a readable copy of an object in a cold storage class for `days` days. Repeating is fine.

        Source: Amazon S3 API, RestoreObject.
        """
        restore = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
        request = {"Bucket": self.bucket, "Key": key, "RestoreRequest": restore}
        try:
            self._call("RestoreObject", key, lambda: self._client.restore_object(**request))
        except StoreUnavailableError:
            # 409 RestoreAlreadyInProgress is translated to the same error as an overloaded store
            info = self.head(key)
            if info is None or not info.thaw:
                raise

    def create_upload(self, key: str, metadata: Mapping[str, str]) -> str:
        """Begin a multipart upload. Return its id. Nothing is visible at `key` until it is completed."""
        request = {"Bucket": self.bucket, "Key": key, "Metadata": _encode_metadata(metadata), **self._write_options}
        request["ChecksumAlgorithm"] = "CRC32"
        answer = self._call("CreateMultipartUpload", key, lambda: self._client.create_multipart_upload(**request))
        return str(answer["UploadId"])

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes) -> dict[str, Any]:
        """Upload part `number`, counted from 1. Return its entry for `complete_upload`."""
        part = {"Bucket": self.bucket, "Key": key, "UploadId": upload_id, "PartNumber": number}
        part |= _add_checksum(body) | self._customer_key
        answer = self._call("UploadPart", key, lambda: self._client.upload_part(**part))
        identifiers = {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
        return {"PartNumber": number, **identifiers}

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Mapping[str, Any]], write_id: str, if_match: str | None
    ) -> str:
        """Make an object of the parts, if none exists or the existing one has etag `if_match`. Return the new etag.

        `write_id` is the value of `WRITE_ID` in the upload's metadata. Raises PreconditionError or NotFoundError as
        `put_new` and `replace` do, and NotFoundError if the upload itself is gone.
        """
        upload = {"Bucket": self.bucket, "Key": key, "UploadId": upload_id, "MultipartUpload": {"Parts": parts}}
        upload |= _write_condition(if_match) | self._customer_key
        return self._write_once(
            "CompleteMultipartUpload", key, write_id, lambda: self._client.complete_multipart_upload(**upload)
        )

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort a multipart upload. Do nothing if it is gone already."""
        upload = {"Bucket": self.bucket, "Key": key, "UploadId": upload_id}
        try:
            self._call("AbortMultipartUpload", key, lambda: self._client.abort_multipart_upload(**upload))
        except NotFoundError:
            logger.debug("multipart upload %s of %s is gone already", upload_id, self.uri(key))

    def _put(self, key: str, body: bytes, metadata: Mapping[str, str], if_match: str | None) -> str:
        """Write an object in one request: create it, or replace the one with etag `if_match`. Return the new ETag."""
        write_id = new_write_id()
        encoded_metadata = _encode_metadata({**metadata, WRITE_ID: write_id})
        request = {"Bucket": self.bucket, "Key": key, "Metadata": encoded_metadata, **_write_condition(if_match)}
        request |= _add_checksum(body) | self._write_options
        if key.endswith(".html"):
            # else browsers save it instead of showing it
            request["ContentType"] = "text/html; charset=utf-8"
        return self._write_once("PutObject", key, write_id, lambda: self._client.put_object(**request))

    def _write_once(self, operation: str, key: str, write_id: str, write: Callable[[], Mapping[str, Any]]) -> str:
        """Make a conditional write. Return the etag, even if the write succeeded and only its response was lost."""
        try:
            return str(self._call(operation, key, write)["ETag"])
        except (PreconditionError, NotFoundError, StoreUnavailableError):
            # botocore repeats a request whose response was lost. The repetition then fails on the first one's object.
            info = self.head(key)
            if info is None or info.metadata.get(WRITE_ID) != write_id:
                raise
            logger.warning("%s of %s was done, only its response was lost", operation, self.uri(key))
            return info.etag

    def _read(self, key: str, options: Mapping[str, str]) -> bytes:
        """Read a body. A broken or damaged one is read again here, since the client only repeats requests."""
        for attempt in range(self.settings.max_retries + 1):
            try:
                return self._call("GetObject", key, lambda: self._read_body(key, options))
            except PreconditionError as err:
                raise IntegrityError(f"{self.uri(key)} was replaced while it was read; read it again") from err
            except (StoreUnavailableError, IntegrityError) as err:
                if attempt == self.settings.max_retries or not isinstance(err.__cause__, BROKEN_OFF):
                    raise
                logger.warning("%s; repeating", err)
        raise AssertionError("unreachable")

    def _read_body(self, key: str, options: Mapping[str, str]) -> bytes:
        """Get an object, and read its body to the end. Raises botocore's errors, including one for a wrong checksum."""
        answer = self._client.get_object(Bucket=self.bucket, Key=key, **options, **self._customer_key)
        # as a context manager, botocore's body is urllib3's, which compares nothing
        with closing(answer["Body"]) as body:
            return bytes(body.read())

    def _list_items(self, operation: str, items: str, **options: str) -> Iterator[Mapping[str, Any]]:
        for page in self._list_pages(operation, (items,), **options):
            yield from page.get(items, [])

    def _list_pages(self, operation: str, items: Sequence[str], **options: str) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing. `items` names the lists that hold the entries."""
        pages = iter(self._client.get_paginator(xform_name(operation)).paginate(Bucket=self.bucket, **options))
        prefix = options["Prefix"]
        empty_pages = 0
        while (page := self._call(operation, prefix, lambda: next(pages, None))) is not None:
            empty_pages = 0 if any(page.get(name) for name in items) else empty_pages + 1
            if empty_pages > MAX_EMPTY_PAGES:
                raise StoreUnavailableError(
                    f"{operation} of {self.uri(prefix)}: {empty_pages:,} pages in a row without an entry, and the "
                    f"store promises more. Run again; if it happens again, ask who runs the store"
                )
            yield page

    def _call(self, operation: str, key: str, request: Callable[[], T]) -> T:
        """Make a request. Translate its errors, note the time of its answer, and let others see the wait."""
        attempted = Attempted(operation, self.bucket, key, self.settings.endpoint_url or "AWS")
        try:
            with translate_errors(attempted), self.clock.watching(), waiting_for(f"the store at {attempted.endpoint}"):
                return request()
        except MissingBucketError as err:
            raise suggest_bucket(err, self.settings) from err.__cause__

    @cached_property
    def _client(self) -> Any:
        return get_s3_client(self.settings)

    @cached_property
    def _write_options(self) -> dict[str, Any]:
        """Parameters of every new object: access control, encryption and storage class."""
        settings = self.settings
        options = {
            "ACL": settings.canned_acl,
            "SSEKMSKeyId": settings.kms_key_id,
            "StorageClass": settings.storage_class,
        }
        if settings.customer_key is None:
            options["ServerSideEncryption"] = settings.encryption
        return {name: value for name, value in options.items() if value} | self._customer_key

    @cached_property
    def _customer_key(self) -> dict[str, Any]:
        """Parameters of each read and write of objects under a customer's key (SSE-C), as S3 does not keep the key."""
        if self.settings.customer_key is None:
            return {}
        key = base64.b64decode(self.settings.customer_key.get_secret_value())
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


class SizedFile(io.RawIOBase):
    """A seekable file of a known size. Subclasses read from the position `_at` on. `name` is for errors."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset} of {self._name}")
        self._at = base + offset
        return self._at

    def _count_available(self, size: int | None) -> int:
        """Return how many of `size` bytes are available. None and negative numbers mean all remaining ones."""
        remaining = max(0, self._size - self._at)
        return remaining if size is None or size < 0 else min(size, remaining)


class ObjectFile(SizedFile):
    """A seekable, readable file over an object. Small reads fetch `READ_AHEAD` bytes, large ones their size.

    The first read of an object no larger than `READ_AHEAD` fetches all of it, because Parquet is read from its end,
    then from its start. Raises IntegrityError as soon as the object is replaced.
    """

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        super().__init__(info.key, info.size)
        self.info = info
        self._store = store
        self._buffer = b""
        self._buffer_start = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes, or all the rest for None and negative sizes, through the buffer."""
        count = self._count_available(size)
        start = self._at - self._buffer_start
        if start < 0 or start + count > len(self._buffer):
            self._fetch(self._count_available(max(count, READ_AHEAD)))
            start = self._at - self._buffer_start
        self._at += count
        if start == 0 and count == len(self._buffer):
            return self._buffer
        return self._buffer[start : start + count]

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, size: int) -> None:
        """Fill the buffer with `size` bytes from the position on, or with the whole object if it is small."""
        info = self.info
        self._buffer_start, end = (0, info.size) if info.size <= READ_AHEAD else (self._at, self._at + size)
        self._buffer = self._store.read_range(info.key, self._buffer_start, end, info.etag) if size else b""


def _read_entry(item: Mapping[str, Any]) -> ObjectInfo:
    storage_class = item.get("StorageClass", "STANDARD")
    return ObjectInfo(item["Key"], item["Size"], item["ETag"], item["LastModified"], storage_class)


def new_write_id() -> str:
    """Return a value of `WRITE_ID` for a single write."""
    return uuid4().hex


def _parse_thaw_state(header: str) -> ThawState:
    """Parse `x-amz-restore`. Source: Amazon S3 API, HeadObject."""
    if not header:
        return ""
    return "ongoing" if 'ongoing-request="true"' in header else "thawed"


def _write_condition(if_match: str | None) -> dict[str, str]:
    """Return boto3's parameter for a write that creates an object, or replaces the one with etag `if_match`."""
    if if_match is None:
        return {"IfNoneMatch": "*"}
    return {"IfMatch": if_match}


def measure_metadata(metadata: Mapping[str, str]) -> int:
    """Return the size of an object's metadata, to be compared with `MAX_METADATA_BYTES`, as each write sends it."""
    encoded = _encode_metadata({**metadata, WRITE_ID: new_write_id()})
    return sum(len(_METADATA_PREFIX) + len(name) + len(value) for name, value in encoded.items())


def _encode_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Percent-encode all but plain ASCII, because S3 keeps user metadata in headers."""
    return {name: quote(value, safe=_METADATA_SAFE) for name, value in metadata.items()}


def _add_checksum(body: bytes) -> dict[str, Any]:
    """Return a body for boto3 with its checksum, which becomes a signed header. Object Lock demands a checksum."""
    return {"Body": body, "ChecksumCRC32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()}
