"""Uploads over TLS: each body comes whole, with a signed checksum that the store compares."""

import base64
import re
import zlib
from collections.abc import Iterator

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.store.http_proxy import HttpRequest, running
from kafka_s3_platform_tests.store.servers import PlainStore, forget_clients
from kafka_s3_platform_tests.store.written import CUSTOMER_KEY, KEY, LARGE, PART, SMALL, changed, written
from kafka_s3_platform_tests.tls.authority import Authority, tls_before


@pytest.fixture
def plain(lab: Lab) -> Iterator[PlainStore]:
    with running(PlainStore(lab.store.endpoint_url or "")) as server:
        yield server


@pytest.fixture
def store(
    plain: PlainStore, lab: Lab, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreSettings]:
    """The settings of a store that takes bodies only whole, over TLS."""
    for variable in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(variable, str(authority.ca))
    with tls_before(plain.server_port, authority.server) as port:
        yield changed(lab.store, endpoint_url=f"https://127.0.0.1:{port}", part_size=PART, max_retries=0)


def bodies(server: PlainStore) -> list[HttpRequest]:
    return [request for request in server.requests if request.method == "PUT" and request.body]


@pytest.mark.parametrize("body", [SMALL, b"", LARGE], ids=["one PUT", "empty", "multipart"])
@pytest.mark.parametrize("calculation", ["when_supported", "when_required"])
def test_each_body_has_a_signed_checksum_whatever_the_environment_says(
    store: StoreSettings, plain: PlainStore, monkeypatch: pytest.MonkeyPatch, calculation: str, body: bytes
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", calculation)
    forget_clients()
    assert written(store, body).get(KEY) == body
    for sent in bodies(plain):
        assert base64.b64decode(sent.headers["x-amz-checksum-crc32"]) == zlib.crc32(sent.body).to_bytes(4, "big")
        assert "x-amz-checksum-crc32" in sent.headers["authorization"]
        assert len(sent.headers["x-amz-content-sha256"]) == 64
    assert b"".join(sent.body for sent in bodies(plain)) == body


def test_a_customer_s_key_and_tags_go_the_same_way(store: StoreSettings) -> None:
    settings = changed(store, encryption="AES256", customer_key=CUSTOMER_KEY, tagging=True)
    for body in (SMALL, LARGE):
        stored = written(settings, body)
        found = stored.head(KEY)
        assert found is not None
        assert stored.get(KEY) == body
        stored.delete(KEY, found.etag)


@pytest.mark.usefixtures("untried_bucket")
def test_the_promises_are_tried_and_the_index_is_written_without_chunks(
    store: StoreSettings, plain: PlainStore
) -> None:
    check_promises(ObjectStore(store), "topics", uploads=True)
    TopicIndex(ConnectorIndex(store, "_index", "c"), "t").open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    checksums = [re.findall(r"x-amz-checksum-\w+", sent.headers["authorization"]) for sent in bodies(plain)]
    assert {name for [name] in checksums} == {"x-amz-checksum-crc32", "x-amz-checksum-sha256"}


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["one PUT", "multipart"])
def test_a_body_damaged_on_its_way_is_refused_and_sent_again(
    store: StoreSettings, plain: PlainStore, body: bytes
) -> None:
    key, secret = store.access_key_id, store.secret_access_key
    assert key
    assert secret
    plain.signer = key.get_secret_value(), secret.get_secret_value()
    with pytest.raises(StoreUnavailableError, match=r"BadDigest.*damaged on its way.*run again"):
        written(changed(store, max_retries=1, retry_backoff_ms=1), body)
    first, second = bodies(plain)
    assert first.headers["x-amz-checksum-crc32"] == second.headers["x-amz-checksum-crc32"]
    assert ObjectStore(store).head(KEY) is None
