"""What requests carry and how they travel: tags, addresses, proxies, retries."""

import base64
import time
from urllib.parse import unquote

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import AuthorizationError, PlatformError, StoreUnavailableError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.client import Backoff, find_bucket_url, new_s3_client
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.store.servers import Recorder
from kafka_s3_platform_tests.store.written import FACTS, KEY, LARGE, PART, SMALL, both_sizes, changed, written

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
    assert ConnectorIndex(settings, "i", "c").table.options["aws_virtual_hosted_style_request"] == "true"


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
