"""What requests carry and how they travel: encryption, ACLs, tags, addresses, proxies, retries."""

import base64
import hashlib
import time
from contextlib import suppress
from secrets import token_hex
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import AuthorizationError, PlatformError, StoreUnavailableError, TransientError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.client import Backoff, find_bucket_url, new_s3_client
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus
from kafka_s3_platform_tests.conftest import own_stack, present
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.store.http_proxy import HttpRequest, running
from kafka_s3_platform_tests.store.servers import Recorder
from kafka_s3_platform_tests.store.written import CUSTOMER_KEY, FACTS, KEY, LARGE, PART, SMALL, changed, written

both_sizes = pytest.mark.parametrize("body", [SMALL, LARGE], ids=["one PUT", "multipart"])


@pytest.fixture
def recorded(recorder: Recorder, store_settings: StoreSettings) -> StoreSettings:
    return changed(store_settings, endpoint_url=recorder.endpoint, part_size=PART)


def creations(requests: list[HttpRequest]) -> list[HttpRequest]:
    """What begins an object: a PUT of all of it, or the start of a multipart upload."""
    return [
        r
        for r in requests
        if (r.method == "PUT" and "partNumber" not in r.target and "tagging" not in r.target)
        or (r.method == "POST" and "uploads" in r.target)
    ]


# Encryption and ACLs


@pytest.fixture(scope="module")
def encrypting(stack: StackStatus, stack_settings: StackSettings) -> Any:
    """A second S3 server, which has a key to encrypt with, and its client."""
    with own_stack(stack_settings) as own, pytest.MonkeyPatch.context() as patch:
        server = SeaweedFS(own)
        patch.setenv("WEED_S3_SSE_KEK", bytes(range(32)).hex())
        server.start()
        for _ in range(120):
            try:
                server.check()
                break
            except TransientError:
                server.daemon.refuse_dead()
                time.sleep(0.5)
        server.create_bucket()
        yield own


@pytest.fixture
def encrypted(encrypting: StackSettings, recorded: StoreSettings, recorder: Recorder) -> StoreSettings:
    recorder.upstream = encrypting.s3_endpoint.partition("://")[2]
    return changed(recorded, bucket=encrypting.bucket, encryption="AES256")


@both_sizes
def test_an_object_is_encrypted_by_the_store(encrypted: StoreSettings, recorder: Recorder, body: bytes) -> None:
    store = written(encrypted, body)
    found = new_s3_client(encrypted).head_object(Bucket=encrypted.bucket, Key=KEY)
    assert found["ServerSideEncryption"] == "AES256"
    assert store.get(KEY) == body
    assert [r.headers["x-amz-server-side-encryption"] for r in creations(recorder.requests)] == ["AES256"]
    store.delete(KEY, found["ETag"])


@both_sizes
def test_a_kms_key_an_acl_and_a_storage_class_are_asked_for(
    recorded: StoreSettings, recorder: Recorder, body: bytes
) -> None:
    settings = changed(
        recorded,
        encryption="aws:kms",
        kms_key_id="key-1",
        canned_acl="bucket-owner-full-control",
        storage_class="STANDARD_IA",
        max_retries=0,
    )
    # This S3 server has no KMS: what matters is what was asked of it.
    with suppress(PlatformError):
        written(settings, body)
    [begun] = creations(recorder.requests)
    assert begun.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert begun.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
    assert begun.headers["x-amz-acl"] == "bucket-owner-full-control"
    assert begun.headers["x-amz-storage-class"] == "STANDARD_IA"


@both_sizes
def test_an_object_under_a_customers_key_is_read_with_it_only(recorded: StoreSettings, body: bytes) -> None:
    settings = changed(recorded, encryption="AES256", customer_key=SecretStr(CUSTOMER_KEY))
    store = written(settings, body)
    found = present(store.head(KEY))
    assert store.get(KEY) == body
    with store.open(KEY, found.etag) as file:
        file.seek(2)
        assert file.read(2) == body[2:4]
    with pytest.raises(PlatformError):
        ObjectStore(recorded).get(KEY)


def test_a_customers_key_is_sent_with_every_part(recorded: StoreSettings, recorder: Recorder) -> None:
    written(changed(recorded, encryption="AES256", customer_key=SecretStr(CUSTOMER_KEY)), LARGE)
    digest = base64.b64encode(hashlib.md5(bytes(range(32)), usedforsecurity=False).digest()).decode()
    sent = [r.headers.get("x-amz-server-side-encryption-customer-key-md5") for r in recorder.requests]
    assert sent == [digest] * len(recorder.requests)
    assert len(sent) == 4


@pytest.mark.parametrize("customer_key", [None, SecretStr(CUSTOMER_KEY)], ids=["by the store", "by a customer's key"])
def test_the_index_is_encrypted_as_its_objects_are(
    encrypted: StoreSettings, recorder: Recorder, customer_key: SecretStr | None
) -> None:
    index = TopicIndex(ConnectorIndex(changed(encrypted, customer_key=customer_key), "_index", "c"), token_hex(4))
    index.open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    assert len(index.open().state.scans) == 1
    puts = creations(recorder.requests)
    name = "x-amz-server-side-encryption" + ("-customer-algorithm" if customer_key else "")
    assert len(puts) > 2
    assert {r.headers.get(name) for r in puts} == {"AES256"}


def test_the_index_asks_for_the_kms_key(recorded: StoreSettings, recorder: Recorder) -> None:
    settings = changed(recorded, encryption="aws:kms", kms_key_id="key-1", max_retries=0)
    with suppress(PlatformError):
        TopicIndex(ConnectorIndex(settings, "_index", "c"), "t").open()
    put = creations(recorder.requests)[0]
    assert put.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert put.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"


# Tags


@both_sizes
def test_an_object_is_tagged_with_its_offsets_its_count_and_what_is_set(recorded: StoreSettings, body: bytes) -> None:
    written(changed(recorded, tagging=True, tags=(("team", "data"), ("cost", "a:b"))), body)
    tags = new_s3_client(recorded).get_object_tagging(Bucket=recorded.bucket, Key=KEY)["TagSet"]
    assert {t["Key"]: t["Value"] for t in tags} == {
        "startOffset": "0",
        "endOffset": "9",
        "recordCount": "10",
        "team": "data",
        "cost": "a:b",
    }


def test_without_tagging_nothing_is_tagged(recorded: StoreSettings, recorder: Recorder) -> None:
    written(recorded, SMALL)
    written(changed(recorded, tagging=True), SMALL, {})
    assert [r for r in recorder.requests if "tagging" in r.target] == []


def test_tags_change_neither_the_object_nor_its_etag(recorded: StoreSettings) -> None:
    store = ObjectStore(changed(recorded, tagging=True))
    upload = SegmentUpload(store, KEY, Provenance("c", "t", "id", "index", "run", 1))
    upload.write(SMALL)
    done = upload.finish(FACTS)
    assert present(store.head(KEY)).etag == done.etag


@pytest.mark.parametrize("ignored", [True, False])
def test_a_right_to_tag_that_lacks_fails_the_run_only_where_asked(
    proxy: FaultyProxy, through: StoreSettings, caplog: pytest.LogCaptureFixture, ignored: bool
) -> None:
    proxy.refuse("PUT", "tagging", 403, "AccessDenied")
    settings = changed(through, tagging=True, ignore_tagging_errors=ignored)
    if ignored:
        written(settings, SMALL)
        assert "left without its tags: [KS-STORE-RIGHTS] PutObjectTagging" in caplog.text
    else:
        with pytest.raises(AuthorizationError, match="PutObjectTagging"):
            written(settings, SMALL)
    assert ObjectStore(through).get(KEY) == SMALL


# Ways there


def test_a_proxy_is_passed_by_objects_and_index(store_settings: StoreSettings, recorder: Recorder) -> None:
    proxy = recorder.endpoint.replace("//", "//us%2Fer:pass%20word@")
    settings = changed(store_settings, proxy_url=SecretStr(proxy), part_size=PART)
    assert written(settings, LARGE).get(KEY) == LARGE
    by_boto3 = len(recorder.requests)
    index = TopicIndex(ConnectorIndex(settings, "_index", "c"), "t")
    index.open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    assert len(recorder.requests) > by_boto3 > 0
    assert all(r.url.startswith(store_settings.endpoint_url or "") for r in recorder.requests)
    login = f"Basic {base64.b64encode(b'us/er:pass word').decode()}"
    assert {r.headers.get("proxy-authorization") for r in recorder.requests} == {login}


def test_the_bucket_is_in_the_host_name_where_that_is_asked_for(store_settings: StoreSettings) -> None:
    """A proxy that answers itself sees the addresses, so that no such name has to exist."""
    with running(Recorder("http://127.0.0.1:1", status=404)) as proxy:
        settings = changed(
            store_settings,
            endpoint_url="http://s3.example.com:9000",
            path_style=False,
            proxy_url=SecretStr(proxy.endpoint),
        )
        with pytest.raises(PlatformError):
            ObjectStore(settings).get("folder/key")
        with pytest.raises(PlatformError):
            TopicIndex(ConnectorIndex(settings, "_index", "c"), "t").peek()
        hosts = {r.url.partition("://")[2].partition("/")[0] for r in proxy.requests}
        assert hosts == {f"{settings.bucket}.s3.example.com:9000"}
        assert any("_index/connector=c" in unquote(r.target) for r in proxy.requests)


def test_the_accelerated_endpoint_is_asked_by_both_clients(store_settings: StoreSettings) -> None:
    settings = changed(store_settings, endpoint_url=None, accelerate=True, path_style=False)
    client = new_s3_client(settings)
    url = client.generate_presigned_url("get_object", Params={"Bucket": settings.bucket, "Key": "key"})
    assert url.startswith(f"https://{settings.bucket}.s3-accelerate.amazonaws.com/key?")
    assert find_bucket_url(settings) == f"https://{settings.bucket}.s3-accelerate.amazonaws.com"
    assert TopicIndex(ConnectorIndex(settings, "i", "c"), "t").options["aws_virtual_hosted_style_request"] == "true"


# Retries


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_is_repeated_as_often_as_asked(
    store_settings: StoreSettings, proxy: FaultyProxy, status: int
) -> None:
    settings = changed(store_settings, endpoint_url=proxy.endpoint, max_retries=2, retry_backoff_ms=1)
    proxy.refuse("PUT", "/key", status, "X", times=2)
    ObjectStore(settings).put_new("key", b"body")
    assert len(proxy.requests) == 3
    proxy.refuse("PUT", "/other", status, "X")
    with pytest.raises(StoreUnavailableError):
        ObjectStore(settings).put_new("other", b"body")
    assert [m for m, target in proxy.requests if "/other" in target] == ["PUT", "PUT", "PUT", "HEAD"]


def test_a_listing_is_whole_when_a_page_of_it_was_repeated(store_settings: StoreSettings, proxy: FaultyProxy) -> None:
    for n in range(3):
        ObjectStore(store_settings).put_new(f"l/{n}", b"")
    proxy.refuse("GET", "list-type", 503, "SlowDown", times=2)
    settings = changed(store_settings, endpoint_url=proxy.endpoint, retry_backoff_ms=1)
    assert len(list(ObjectStore(settings).list("l/"))) == 3


def test_refused_requests_are_not_repeated(store_settings: StoreSettings, proxy: FaultyProxy) -> None:
    settings = changed(store_settings, endpoint_url=proxy.endpoint, retry_backoff_ms=1)
    proxy.refuse("GET", "/key", 403, "AccessDenied")
    with pytest.raises(AuthorizationError):
        ObjectStore(settings).get("key")
    with pytest.raises(NotFoundError):
        ObjectStore(settings).get("none")
    assert len(proxy.requests) == 2


def test_waits_double_up_to_twenty_seconds() -> None:
    backoff = Backoff(max_retries=12, backoff_ms=200)

    class Slow:
        status_code = 503

    waits = [backoff((Slow(), {}), n, None) for n in range(1, 14)]
    assert waits[-1] is None
    for wait, longest in zip(waits[:-1], [min(0.2 * 2**n, 20) for n in range(12)], strict=True):
        assert wait is not None
        assert longest / 2 <= wait <= longest


def test_the_index_waits_as_long_as_the_objects_do(store_settings: StoreSettings) -> None:
    with running(Recorder("http://127.0.0.1:1", status=503)) as server:
        took = []
        for backoff in (1, 1500):
            settings = changed(store_settings, endpoint_url=server.endpoint, max_retries=1, retry_backoff_ms=backoff)
            start = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                TopicIndex(ConnectorIndex(settings, "_index", "c"), "t").open()
            took.append(time.monotonic() - start)
        assert took[1] - took[0] > 0.7
