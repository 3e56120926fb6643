"""The object store on a real S3: reads, listings, conditional writes, errors that say what to do."""

import io
import logging
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ConfigError,
    IntegrityError,
    MissingBucketError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import READ_AHEAD, ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.faults.proxy import FaultyProxy


@pytest.fixture
def store(store_settings: StoreSettings) -> ObjectStore:
    return ObjectStore(store_settings)


def other(settings: StoreSettings, **changes: object) -> ObjectStore:
    return ObjectStore(settings.model_copy(update=changes))


def test_an_object_comes_back_with_its_metadata(store: ObjectStore) -> None:
    metadata = {"connector": "Flüge 100%", "run-id": "a b+c/d", "epoch": "7"}
    written = store.put_new("a/b c+ü", b"body", metadata)
    found = present(store.head("a/b c+ü"))
    assert (found.key, found.size, found.etag) == ("a/b c+ü", 4, written)
    assert metadata.items() <= found.metadata.items()
    assert store.get("a/b c+ü") == b"body"


def test_an_object_that_is_not_there_has_no_head_and_cannot_be_read(store: ObjectStore) -> None:
    assert store.head("nothing") is None
    for read in (store.get, store.open):
        with pytest.raises(NotFoundError, match="nothing"):
            read("nothing")


def test_what_exists_is_not_created_again(store: ObjectStore) -> None:
    store.put_new("key", b"first")
    with pytest.raises(PreconditionError, match="key"):
        store.put_new("key", b"second")
    assert store.get("key") == b"first"


def test_only_the_object_that_was_seen_is_replaced(store: ObjectStore) -> None:
    first = store.put_new("key", b"first")
    second = store.replace("key", b"second", first)
    with pytest.raises(PreconditionError):
        store.replace("key", b"third", first)
    assert store.get("key") == b"second"
    store.delete("key", second)
    with pytest.raises((PreconditionError, NotFoundError)):
        store.replace("key", b"third", second)
    assert store.head("key") is None


def test_only_the_object_that_was_seen_is_deleted(store: ObjectStore) -> None:
    first = store.put_new("key", b"first")
    second = store.replace("key", b"second", first)
    with pytest.raises(PreconditionError):
        store.delete("key", first)
    assert store.get("key") == b"second"
    store.delete("key", second)
    store.delete("key", second)
    assert store.head("key") is None


@pytest.mark.parametrize("retries", [0, 3])
def test_a_write_whose_response_was_lost_is_known_as_done(
    proxy: FaultyProxy, through: StoreSettings, retries: int
) -> None:
    store = other(through, max_retries=retries)
    proxy.lose_response("PUT", "/key")
    created = store.put_new("key", b"first")
    proxy.lose_response("PUT", "/key")
    replaced = store.replace("key", b"second", created)
    assert store.get("key") == b"second"
    assert present(store.head("key")).etag == replaced


def test_listing_gives_every_object_over_many_pages(store: ObjectStore) -> None:
    # In this order: where `l/a/b` is, SeaweedFS says that `l/a` is too.
    written = [f"l/{name}" for name in ("a", "a/b", "a+1", "a-b", "a.b/c")] + [f"l/n/{n}" for n in range(1_100)]
    for key in [*written, "m"]:
        store.put_new(key, b"")
    keys = set(written)
    assert {o.key for o in store.list("l/")} == keys
    assert sum(1 for _ in store.list("l/")) == len(keys)
    assert sorted(store.list_prefixes("l/")) == ["l/a.b/", "l/a/", "l/n/"]
    assert list(store.list("none/")) == []
    assert list(store.list_prefixes("none/")) == []


def test_unfinished_uploads_are_listed_and_given_up(store: ObjectStore) -> None:
    upload_id = store.create_upload("u/key", {"epoch": "1"})
    store.upload_part("u/key", upload_id, 1, b"part")
    assert [(u.key, u.upload_id) for u in store.list_uploads("u/")] == [("u/key", upload_id)]
    assert list(store.list_uploads("v/")) == []
    store.abort_upload("u/key", upload_id)
    store.abort_upload("u/key", upload_id)
    assert list(store.list_uploads("u/")) == []
    assert store.head("u/key") is None


def test_a_store_travels_as_its_settings(store: ObjectStore) -> None:
    store.put_new("key", b"body")
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own
    assert copy.settings == store.settings
    assert copy.get("key") == b"body"


# Files


@pytest.mark.parametrize("size", [0, 1, READ_AHEAD - 1, READ_AHEAD, 2 * READ_AHEAD + 5])
def test_a_file_reads_as_its_object(store: ObjectStore, size: int) -> None:
    body = bytes(i * 7 % 251 for i in range(1_000)) * (size // 1_000 + 1)
    store.put_new("key", body[:size])
    with store.open("key") as file:
        plain = io.BytesIO(body[:size])
        for offset, whence, length in [(0, 0, 10), (-3, 2, 9), (size // 2, 0, 70_000), (5, 1, 3), (size + 9, 0, 4)]:
            at = max(0, min(offset, size + 9)) if whence == io.SEEK_SET else offset
            if whence == io.SEEK_END and size + at < 0:
                continue
            assert file.seek(at, whence) == plain.seek(at, whence)
            assert file.read(length) == plain.read(length)
            assert file.tell() == plain.tell()
        assert file.seek(0) == 0
        assert file.read() == body[:size]
        assert io.BufferedReader(store.open("key")).read() == body[:size]


def test_parquet_is_read_with_few_requests(proxy: FaultyProxy, through: StoreSettings) -> None:
    sink = io.BytesIO()
    table = pa.table({"n": range(3_000_000), "m": [b"x" * (i % 50) for i in range(3_000_000)]})
    pq.write_table(table, sink, row_group_size=1_000_000, compression="none", use_dictionary=False)
    assert len(sink.getvalue()) > 20 * READ_AHEAD
    store = ObjectStore(through)
    store.put_new("key", sink.getvalue())
    proxy.requests.clear()
    with store.open("key") as source:
        file = pq.ParquetFile(source, pre_buffer=True)
        rows = sum(b.num_rows for g in range(3) for b in file.iter_batches(row_groups=[g]))
    assert rows == table.num_rows
    assert len(proxy.requests) < 20


def test_a_file_of_another_object_than_expected_is_refused(store: ObjectStore) -> None:
    written = store.put_new("key", b"first")
    store.open("key", written).close()
    store.replace("key", b"other", written)
    with pytest.raises(IntegrityError, match=r"key has etag .* was replaced or damaged"):
        store.open("key", written)


def test_an_object_replaced_or_deleted_while_it_is_read_is_an_error(store: ObjectStore) -> None:
    first = store.put_new("key", b"x" * 3 * READ_AHEAD)
    with store.open("key") as file:
        file.read(1)
        second = store.replace("key", b"y" * 3 * READ_AHEAD, first)
        with pytest.raises(IntegrityError, match="key was replaced while it was read"):
            file.read()
    with store.open("key") as file:
        store.delete("key", second)
        with pytest.raises(IntegrityError, match="key"):
            file.read()


# Errors


def test_a_missing_bucket_says_what_to_do(store_settings: StoreSettings) -> None:
    store = other(store_settings, bucket="no-such-bucket")
    for use in (
        partial(check_promises, store),
        store.get,
        lambda k: list(store.list(k)),
        lambda k: store.put_new(k, b""),
    ):
        with pytest.raises(MissingBucketError, match=r"s3://no-such-bucket/.* Create bucket no-such-bucket"):
            use("topics")


def test_the_bucket_that_was_meant_is_named_for_objects_and_index(store_settings: StoreSettings) -> None:
    misspelt = store_settings.model_copy(update={"bucket": f"{store_settings.bucket}x"})
    for use in (partial(ObjectStore(misspelt).get, "key"), ConnectorIndex(misspelt, "_index", "c").peek):
        with pytest.raises(MissingBucketError, match=rf"Did you mean {store_settings.bucket}\?"):
            use()


def test_a_bucket_that_is_created_is_used(lab: Lab) -> None:
    name = f"{lab.store.bucket}-2"
    store = other(lab.store, bucket=name)
    with pytest.raises(MissingBucketError, match=f"Create bucket {name}"):
        store.put_new("topics", b"")
    lab.s3.create_bucket(Bucket=name)
    try:
        store.put_new("topics", b"")
        assert store.get("topics") == b""
    finally:
        lab.s3.delete_bucket(Bucket=name)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"secret_access_key": SecretStr("wrong-secret")}, r"correct aws\.secret\.access\.key"),
        ({"access_key_id": SecretStr("nobody")}, r"correct aws\.access\.key\.id"),
    ],
)
def test_wrong_credentials_are_named_but_never_shown(
    store_settings: StoreSettings, changes: dict[str, Any], wrong: str
) -> None:
    store = other(store_settings, **changes)
    # the answer to a HEAD has no body, and so does not say which of them is wrong
    unsure = r"Check aws\.access\.key\.id, its secret"
    uses: list[tuple[Callable[[str], object], str]] = [
        (partial(check_promises, store), wrong),
        (store.get, wrong),
        (lambda key: store.put_new(key, b""), wrong),
        (store.head, unsure),
        (store.open, unsure),
    ]
    for use, advice in uses:
        with pytest.raises(AuthorizationError, match=advice) as caught:
            use("topics/key")
        assert "topics/key" in str(caught.value)
        for secret in (store.settings.secret_access_key, store.settings.access_key_id):
            assert secret
            assert secret.get_secret_value() not in str(caught.value)


@pytest.mark.usefixtures("no_credentials")
def test_no_credentials_at_all_are_an_error_of_theirs(store_settings: StoreSettings) -> None:
    store = other(store_settings, access_key_id=None, secret_access_key=None)
    with pytest.raises(AuthorizationError, match=r"Set aws.access.key.id"):
        check_promises(store, "topics")


def test_a_server_that_is_down_fails_soon_and_says_where(store_settings: StoreSettings) -> None:
    store = other(store_settings, endpoint_url="http://127.0.0.1:1", max_retries=1)
    with pytest.raises(StoreUnavailableError, match=r"topics/\.write-check|bucket.* at http://127.0.0.1:1"):
        check_promises(store, "topics")


def test_a_server_that_is_no_s3_is_told_from_a_damaged_index(
    store_settings: StoreSettings, stack_settings: StackSettings
) -> None:
    filer = store_settings.model_copy(
        update={"endpoint_url": f"http://127.0.0.1:{stack_settings.seaweedfs_filer_port}"}
    )
    index = ConnectorIndex(filer, "_index", "c")
    for ask in (lambda: next(ObjectStore(filer).list("a/"), None), index.peek):
        with pytest.raises(ConfigError, match=r"404.* No S3 server answers so: correct store\.url"):
            ask()


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (507, "InsufficientStorage"), (500, "InternalError")])
def test_a_full_or_overloaded_store_is_unavailable(
    proxy: FaultyProxy, through: StoreSettings, status: int, code: str
) -> None:
    proxy.refuse("PUT", "/topics/", status, code)
    with pytest.raises(StoreUnavailableError, match=f"PutObject of s3://.*/topics/key at .* answered {status} {code}"):
        ObjectStore(through).put_new("topics/key", b"")


def test_a_short_outage_is_waited_out(proxy: FaultyProxy, through: StoreSettings) -> None:
    store = other(through, max_retries=3)
    proxy.refuse("PUT", "/key", 503, "SlowDown", times=2)
    store.put_new("key", b"body")
    proxy.lose_response("GET", "/key", times=2)
    assert store.get("key") == b"body"


@pytest.mark.parametrize("changes", [{"bucket": "Not A Bucket"}, {"endpoint_url": "not a url"}])
def test_settings_that_cannot_work_are_a_configuration_error(
    store_settings: StoreSettings, changes: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=re.escape(next(iter(changes.values())))):
        check_promises(other(store_settings, **changes), "topics")


def test_a_request_that_the_store_refuses_itself_keeps_its_words(store: ObjectStore) -> None:
    with pytest.raises(PlatformError, match=r"UploadPart of .* answered 4\d\d .*refused the request itself"):
        store.upload_part("key", store.create_upload("key", {}), 100_000, b"")


@pytest.mark.usefixtures("untried_bucket")
def test_no_secret_is_logged(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    secret = store.settings.secret_access_key
    assert secret
    with caplog.at_level(logging.DEBUG, "kafka_s3_platform"):
        check_promises(store, "topics")
        assert secret.get_secret_value() not in repr(store.settings) + caplog.text
