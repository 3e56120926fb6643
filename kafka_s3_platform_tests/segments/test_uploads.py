"""Segments are uploaded side by side: the same as one after the other, bounded in memory, and no error is lost."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from kafka_s3_platform.core.config.settings import LayoutSettings, StoreSettings
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.segments import writers as module
from kafka_s3_platform.core.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.core.segments.writers import (
    MAX_CLOSED,
    MAX_CLOSED_BYTES,
    ClosedSegments,
    SegmentUploads,
    SegmentWriter,
    SegmentWriters,
)
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform_tests.faults.proxy import FaultyProxy

EACH = 5
"""Records of a segment."""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith(("segment", "upload"))] == []


def behind(proxy: FaultyProxy, settings: StoreSettings, **changed: int) -> ObjectStore:
    return ObjectStore(
        settings.model_copy(
            update={"endpoint_url": proxy.endpoint, "max_retries": 0, "part_size": 5_242_880, **changed}
        )
    )


def written(store: ObjectStore, segments: int, value_bytes: int = 100, folders: int = 1) -> list[Segment]:
    """Write segments of `EACH` records, whose bytes do not compress. Folders take turns, a segment at a time."""
    target = SegmentTarget(LayoutSettings(flush_size=EACH), "t", 0, Provenance("c", "t", "id", "index", "r", 1, 1))
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(target, store, closed) as out:
            for n in range(segments):
                out.write(part(n, value_bytes, f"folder={n % folders}"))
            out.close()
        return closed.collect()


def part(n: int, value_bytes: int, folder: str) -> BucketPart:
    offsets = range(n * EACH, (n + 1) * EACH)
    columns = {"topic": "t", "partition": 0, "timestamp": 0, "timestampType": 0}
    rows = [{"value": value(o, value_bytes), "offset": o, **columns} for o in offsets]
    batch = ConnectBatch.of(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    return BucketPart(Bucket(None, folder), batch, batch.timestamps, 0)


def value(offset: int, size: int) -> bytes:
    return hashlib.shake_128(b"%d" % offset).digest(size)


def read_offsets(store: ObjectStore, key: str) -> list[int]:
    return [o for b in EnvelopeReader(store.open(key), key).batches() for o in b.column("offset").to_pylist()]


def key_of(number: int) -> str:
    return rf"/t\+0\+{number * EACH:010d}\.parquet"


@pytest.mark.parametrize("segments", [0, 1, 2, 150])
def test_all_comes_out_as_one_after_the_other(
    store_settings: StoreSettings, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(store_settings)
    found = written(store, segments)
    assert [(s.start_offset, s.end_offset) for s in found] == [(n * EACH, (n + 1) * EACH) for n in range(segments)]
    assert sorted(o.key for o in store.list("")) == sorted(s.key for s in found)
    for segment in found[::17]:
        assert hashlib.sha256(store.get(segment.key)).hexdigest() == segment.sha256
        assert read_offsets(store, segment.key) == list(range(segment.start_offset, segment.end_offset))
    monkeypatch.setattr(module, "UPLOAD_THREADS", 1)
    monkeypatch.setattr(module, "MAX_CLOSED", 1)
    # the same bytes at the same keys: each upload finds its own object there
    assert written(store, segments) == found


@dataclass
class Held:
    """What closed segments hold in memory, counted apart from the code that bounds it."""

    most: int = 0
    most_bytes: int = 0
    most_with_open: int = 0
    _now: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_enough: threading.Event = field(default_factory=threading.Event)

    def watch(self, monkeypatch: pytest.MonkeyPatch, until: "Callable[[Held], bool] | None" = None) -> None:
        """Count. No upload begins before `until` is true: on a busy machine, they are quicker than the reader."""
        start, upload = SegmentUploads.start, SegmentWriter.upload

        def starting(uploads: SegmentUploads, segment: SegmentWriter, open_bytes: int) -> Future[Segment]:
            with self._lock:
                self._now[id(segment)] = segment.in_flight
            future = start(uploads, segment, open_bytes)
            # here the next record may be read
            with self._lock:
                held = sum(self._now.values())
                self.most = max(self.most, len(self._now))
                self.most_bytes = max(self.most_bytes, held)
                self.most_with_open = max(self.most_with_open, held + open_bytes)
                if until is None or until(self):
                    self._is_enough.set()
            return future

        def uploading(segment: SegmentWriter) -> Segment:
            self._is_enough.wait(30)
            done = upload(segment)
            with self._lock:
                del self._now[id(segment)]
            return done

        monkeypatch.setattr(SegmentUploads, "start", starting)
        monkeypatch.setattr(SegmentWriter, "upload", uploading)


def test_a_slow_store_holds_up_the_reader_before_memory_fills(
    store_settings: StoreSettings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # long enough to close more segments than may wait
    proxy.seconds_to_answer = 0.5
    held = Held()
    held.watch(monkeypatch, lambda found: found.most > MAX_CLOSED // 2)
    assert len(written(behind(proxy, store_settings), 100)) == 100
    assert MAX_CLOSED // 2 < held.most < MAX_CLOSED


def test_large_segments_do_not_lie_in_memory_side_by_side(
    store_settings: StoreSettings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # long enough to close more segments than may wait
    proxy.seconds_to_answer = 0.5
    held = Held()
    held.watch(monkeypatch, lambda found: found.most_bytes > MAX_CLOSED_BYTES / 2)
    # 4 MB each, in one PUT
    assert len(written(behind(proxy, store_settings), 12, 800_000)) == 12
    assert MAX_CLOSED_BYTES / 2 < held.most_bytes <= MAX_CLOSED_BYTES


def test_open_and_closed_segments_share_one_cap(
    store_settings: StoreSettings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = 400_000
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", cap)
    proxy.seconds_to_answer = 0.05
    held = Held()
    held.watch(monkeypatch)
    target = SegmentTarget(LayoutSettings(), "t", 0, Provenance("c", "t", "id", "index", "r", 1, 1))
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(target, behind(proxy, store_settings), closed) as out:
            for n in range(90):
                out.write(part(n, 800, f"folder={n}"))
            out.close()
        # more than 64 buckets: the oldest are closed while 64 of 4 kB each stay open
        assert len(closed.collect()) == 90
    assert cap / 2 < held.most_with_open <= cap


def test_the_first_error_in_order_is_raised_and_the_rest_is_given_up(
    store_settings: StoreSettings, proxy: FaultyProxy
) -> None:
    proxy.refuse("PUT", key_of(40), 507, "InsufficientStorage")
    proxy.refuse("PUT", key_of(44), 403, "AccessDenied")
    with pytest.raises(StoreUnavailableError, match=rf"t\+0\+{40 * EACH:010d}\.parquet.*InsufficientStorage"):
        written(behind(proxy, store_settings), 300)
    found = [o.key for o in ObjectStore(store_settings).list("")]
    assert 40 <= len(found) < 300
    assert not [key for key in found if f"+{40 * EACH:010d}." in key]


def test_a_lost_answer_and_a_refusal_that_passes_change_nothing(
    store_settings: StoreSettings, proxy: FaultyProxy
) -> None:
    lost = proxy.lose_response("PUT", key_of(7))
    refused = proxy.refuse("PUT", key_of(9), 503, "SlowDown", times=1)
    store = behind(proxy, store_settings, max_retries=3)
    found = written(store, 40)
    assert lost.hit.is_set()
    assert refused.hit.is_set()
    assert [s.start_offset for s in found] == [n * EACH for n in range(40)]
    assert sorted(o.key for o in store.list("")) == sorted(s.key for s in found)


def test_multipart_uploads_that_wait_are_aborted_when_given_up(
    store_settings: StoreSettings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UPLOAD_THREADS", 1)
    held = proxy.hold_response("PUT", key_of(0))
    store = behind(proxy, store_settings)
    target = SegmentTarget(LayoutSettings(flush_size=EACH), "t", 0, Provenance("c", "t", "id", "index", "r", 1, 1))
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(target, store, closed) as out:
            out.write(part(0, 100, "folder"))
            out.write(part(1, 1_500_000, "folder"))
        assert len(list(store.list_uploads(""))) == 1

        def wait_for(futures: Any) -> object:
            """What has not begun is given up by now; what runs may end."""
            held.release()
            return wait(futures)

        monkeypatch.setattr(module, "wait", wait_for)
        closed.give_up()
        assert list(store.list_uploads("")) == []
    assert [key.rpartition("/")[2] for key in (o.key for o in store.list(""))] == ["t+0+0000000000.parquet"]
