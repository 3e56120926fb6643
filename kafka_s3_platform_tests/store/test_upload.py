"""Segments on a real S3: one object whatever fails or races, and never another's object touched."""

import hashlib
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ForeignObjectError, StoreUnavailableError, SupersededError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.faults.proxy import FaultyProxy

PART = 5_242_880
KEY = "topics/t/hour=01/t+0+0000000000.parquet"
ME = Provenance("flüge", "t", "id-1", "index-1", "run-5", epoch=5, attempt=20)
EARLIER_ATTEMPT = replace(ME, attempt=19)
SUPERSEDED = replace(ME, run_id="run-4", epoch=4, attempt=99)
LATER_ATTEMPT = replace(ME, attempt=21)
LATER_EPOCH = replace(ME, run_id="run-6", epoch=6, attempt=0)
RECREATED_TOPIC = replace(SUPERSEDED, topic_id="id-0")
ANOTHER_INDEX = replace(SUPERSEDED, index_id="index-0")
OTHER_CONNECTOR = replace(SUPERSEDED, connector="other")

SMALL = b"a small segment"
LARGE = bytes(range(256)) * (2 * PART // 256) + b"the rest"
both_sizes = pytest.mark.parametrize("body", [SMALL, LARGE], ids=["one PUT", "multipart"])


@pytest.fixture
def settings(store_settings: StoreSettings) -> StoreSettings:
    return store_settings.model_copy(update={"part_size": PART})


@pytest.fixture
def store(settings: StoreSettings) -> ObjectStore:
    return ObjectStore(settings)


def behind(proxy: FaultyProxy, settings: StoreSettings, max_retries: int = 3) -> ObjectStore:
    return ObjectStore(settings.model_copy(update={"endpoint_url": proxy.endpoint, "max_retries": max_retries}))


def filled(store: ObjectStore, body: bytes, provenance: Provenance = ME) -> SegmentUpload:
    upload = SegmentUpload(store, KEY, provenance)
    for start in range(0, len(body), 1_000_000):
        upload.write(body[start : start + 1_000_000])
    return upload


def assert_only(store: ObjectStore, body: bytes) -> None:
    assert [o.key for o in store.list("")] == [KEY]
    assert store.get(KEY) == body
    assert list(store.list_uploads("")) == []


@both_sizes
def test_a_finished_segment_is_one_object_with_its_provenance(store: ObjectStore, body: bytes) -> None:
    done = filled(store, body).finish()
    found = present(store.head(KEY))
    assert (done.key, done.size, done.etag) == (KEY, len(body), found.etag)
    assert done.sha256 == hashlib.sha256(body).hexdigest()
    assert Provenance.of(found) == ME
    assert_only(store, body)


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 1])
def test_every_size_comes_back(store: ObjectStore, size: int) -> None:
    body = b"x" * size
    assert filled(store, body).finish().size == size
    assert_only(store, body)


def test_facts_known_at_the_end_are_kept_with_a_small_object(store: ObjectStore) -> None:
    filled(store, SMALL).finish({"record-count": "3", "record-digest": "00ff"})
    found = present(store.head(KEY))
    assert found.metadata["record-count"] == "3"
    assert found.metadata["record-digest"] == "00ff"
    assert found.metadata["sha256"] == hashlib.sha256(SMALL).hexdigest()


def test_nothing_is_to_be_seen_before_the_end(store: ObjectStore) -> None:
    upload = filled(store, LARGE)
    assert store.head(KEY) is None
    upload.finish()
    assert_only(store, LARGE)


def test_memory_is_bounded_by_two_parts(store: ObjectStore) -> None:
    upload = SegmentUpload(store, KEY, ME)
    held = []
    for _ in range(30):
        upload.write(b"x" * 1_000_000)
        held.append(upload.buffered_bytes)
    upload.abort()
    assert max(held) <= 2 * PART + 1_000_000


@both_sizes
def test_an_aborted_segment_leaves_nothing(store: ObjectStore, body: bytes) -> None:
    upload = filled(store, body)
    upload.abort()
    upload.abort()
    upload.write(b"a writer's footer")
    with pytest.raises(ValueError, match="aborted and cannot be finished"):
        upload.finish()
    assert list(store.list("")) == []
    assert list(store.list_uploads("")) == []


# What is there already


@both_sizes
@pytest.mark.parametrize("leftover", [EARLIER_ATTEMPT, SUPERSEDED], ids=["earlier attempt", "superseded epoch"])
@pytest.mark.parametrize("was", [b"left over", LARGE + b"longer"], ids=["of one PUT", "of multipart"])
def test_a_leftover_is_replaced(store: ObjectStore, leftover: Provenance, body: bytes, was: bytes) -> None:
    filled(store, was, leftover).finish()
    done = filled(store, body).finish()
    found = present(store.head(KEY))
    assert found.etag == done.etag
    assert Provenance.of(found) == ME
    assert_only(store, body)


@both_sizes
@pytest.mark.parametrize("winner", [LATER_ATTEMPT, LATER_EPOCH], ids=["later attempt", "later epoch"])
def test_what_a_later_one_has_written_stays(store: ObjectStore, winner: Provenance, body: bytes) -> None:
    filled(store, b"the winner's", winner).finish()
    with pytest.raises(SupersededError, match=f"{KEY.replace('+', '.')} was written by epoch {winner.epoch}"):
        filled(store, body).finish()
    assert_only(store, b"the winner's")


@both_sizes
@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (RECREATED_TOPIC, "this topic was created again"),
        (OTHER_CONNECTOR, "If flüge is its new name, give it back its old one"),
        (ANOTHER_INDEX, "an index that is gone"),
    ],
    ids=["recreated topic", "other connector", "another index"],
)
def test_the_object_of_another_archive_stays(store: ObjectStore, foreign: Provenance, why: str, body: bytes) -> None:
    filled(store, b"theirs", foreign).finish()
    with pytest.raises(ForeignObjectError, match=r"t\+0\+0000000000.parquet exists, .* [Tt]o take the place") as caught:
        filled(store, body).finish()
    assert why in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "Provenance(" not in str(caught.value)
    assert_only(store, b"theirs")


@both_sizes
def test_the_object_of_another_topic_of_the_same_connector_is_not_to_be_moved(store: ObjectStore, body: bytes) -> None:
    filled(store, b"theirs", replace(ME, topic="shard-2", topic_id="c")).finish()
    with pytest.raises(ForeignObjectError, match="transforms gave shard-2 the same name") as caught:
        filled(store, body).finish()
    assert "move that object" not in str(caught.value)
    assert_only(store, b"theirs")


@both_sizes
def test_the_object_of_another_tool_stays(store: ObjectStore, s3_client: Any, body: bytes) -> None:
    s3_client.put_object(Bucket=store.bucket, Key=KEY, Body=b"theirs", Metadata={"epoch": "1", "attempt": "x"})
    with pytest.raises(ForeignObjectError, match=r"no provenance.* To take the place over"):
        filled(store, body).finish()
    assert_only(store, b"theirs")


def test_the_same_bytes_by_the_same_attempt_are_the_same_object(store: ObjectStore) -> None:
    first = filled(store, SMALL).finish()
    assert filled(store, SMALL).finish() == first


def test_other_bytes_by_the_same_attempt_are_refused(store: ObjectStore) -> None:
    filled(store, SMALL).finish()
    with pytest.raises(SupersededError):
        filled(store, SMALL + b"!").finish()
    assert_only(store, SMALL)


# Faults


@both_sizes
@pytest.mark.parametrize("max_retries", [0, 3])
@pytest.mark.parametrize("leftover", [None, SUPERSEDED], ids=["new", "replacing"])
def test_a_lost_response_of_the_last_request_is_success(
    proxy: FaultyProxy, settings: StoreSettings, body: bytes, max_retries: int, leftover: Provenance | None
) -> None:
    store = ObjectStore(settings)
    if leftover:
        filled(store, b"left over", leftover).finish()
    method, target = (
        ("PUT", KEY.replace("+", r"\+") + r"(\?x-id=PutObject)?$") if body is SMALL else ("POST", "uploadId=")
    )
    lost = proxy.lose_response(method, target, nth=2 if leftover else 1)
    done = filled(behind(proxy, settings, max_retries), body).finish()
    assert lost.hit.is_set()
    found = present(store.head(KEY))
    assert (found.etag, found.size) == (done.etag, done.size)
    assert_only(store, body)


def test_a_lost_response_of_a_part_is_made_up_for(proxy: FaultyProxy, settings: StoreSettings) -> None:
    proxy.lose_response("PUT", "partNumber=2")
    filled(behind(proxy, settings), LARGE).finish()
    assert_only(ObjectStore(settings), LARGE)


@both_sizes
def test_a_full_disk_fails_the_segment_and_leaves_nothing(
    proxy: FaultyProxy, settings: StoreSettings, body: bytes
) -> None:
    proxy.refuse("PUT", KEY.replace("+", r"\+"), 507, "InsufficientStorage")
    with pytest.raises(StoreUnavailableError, match=r"t\+0\+0000000000.parquet at .* answered 507"):
        filled(behind(proxy, settings), body).finish()
    store = ObjectStore(settings)
    assert list(store.list("")) == []
    assert list(store.list_uploads("")) == []


def test_a_store_that_went_away_fails_the_segment_and_abort_does_not_hide_why(
    proxy: FaultyProxy, settings: StoreSettings
) -> None:
    upload = filled(behind(proxy, settings, max_retries=0), LARGE)
    for method in ("PUT", "POST", "DELETE", "HEAD"):
        proxy.refuse(method, "/", 503, "SlowDown")
    with pytest.raises(StoreUnavailableError, match="UploadPart"):
        upload.finish()
    store = ObjectStore(settings)
    assert [u.key for u in store.list_uploads("")] == [KEY]  # the vacuum's work
    assert list(store.list("")) == []


# Races


@both_sizes
def test_a_zombie_that_finishes_late_changes_nothing(store: ObjectStore, body: bytes) -> None:
    zombie = filled(store, body, EARLIER_ATTEMPT)
    filled(store, body, ME).finish()
    with pytest.raises(SupersededError):
        zombie.finish()
    found = present(store.head(KEY))
    assert Provenance.of(found) == ME
    assert_only(store, body)


def test_a_leftover_replaced_by_a_later_one_meanwhile_is_left_to_it(
    proxy: FaultyProxy, settings: StoreSettings
) -> None:
    store = ObjectStore(settings)
    filled(store, b"left over", SUPERSEDED).finish()
    held = proxy.hold_response("HEAD", KEY.replace("+", r"\+"))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(filled(behind(proxy, settings), SMALL).finish)
        assert held.hit.wait(30)
        filled(store, b"the winner's", LATER_EPOCH).finish()
        held.release()
        with pytest.raises(SupersededError):
            slow.result()
    assert_only(store, b"the winner's")


def test_of_attempts_that_race_the_last_one_holds_the_key(store: ObjectStore) -> None:
    """Of single PUTs: that multipart uploads end one at a time is what SeaweedFS does not keep (docs/limits.md)."""
    uploads = attempts(store, SMALL, 6)
    ready = threading.Barrier(len(uploads))

    def finish(upload: SegmentUpload) -> str:
        ready.wait()
        return etag_or_superseded(upload)

    with ThreadPoolExecutor(len(uploads)) as pool:
        results = list(pool.map(finish, uploads))
    assert_last_one_holds(store, SMALL, results)


@both_sizes
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_attempts_that_end_in_any_order_the_last_one_holds_the_key(
    store: ObjectStore, body: bytes, order: tuple[int, ...]
) -> None:
    uploads = attempts(store, body, len(order))
    results = {n: etag_or_superseded(uploads[n]) for n in order}
    assert_last_one_holds(store, body, [results[n] for n in sorted(order)])


def attempts(store: ObjectStore, body: bytes, count: int) -> list[SegmentUpload]:
    return [filled(store, body + bytes([n]), replace(ME, attempt=n)) for n in range(count)]


def etag_or_superseded(upload: SegmentUpload) -> str:
    try:
        return upload.finish().etag
    except SupersededError:
        return "superseded"


def assert_last_one_holds(store: ObjectStore, body: bytes, results: Sequence[str]) -> None:
    assert results[-1] == present(store.head(KEY)).etag
    assert_only(store, body + bytes([len(results) - 1]))
