"""Glacier's requests, recorded by a server that answers as S3 does: SeaweedFS has no cold storage."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import SourceSettings, StoreSettings
from kafka_s3_platform.errors import BusyError, IntegrityError
from kafka_s3_platform.sources.objects import ForeignObject, groups
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.sources.thaw import thaw
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.sources.memory import source


class Glacier(ThreadingHTTPServer):
    """One object, thawed once it was asked for and looked at `looks` times more."""

    daemon_threads = True

    def __init__(self, looks: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.looks = looks
        self.requests: list[tuple[str, str, str]] = []
        self.is_asked = False

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(
            StoreSettings(
                bucket="bucket",
                region="us-east-1",
                endpoint_url=f"http://127.0.0.1:{self.server_address[1]}",
                access_key_id=SecretStr("a"),
                secret_access_key=SecretStr("s"),
                max_retries=0,
            )
        )

    @property
    def restore(self) -> str:
        if not self.is_asked:
            return ""
        self.looks -= 1
        if self.looks >= 0:
            return 'ongoing-request="true"'
        return 'ongoing-request="false", expiry-date="Fri, 21 Dec 2035 00:00:00 GMT"'


class _Handler(BaseHTTPRequestHandler):
    server: Glacier
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
        self.server.requests.append(("POST", self.path, body))
        answer = 409 if self.server.is_asked else 202
        self.server.is_asked = True
        self.send_response(answer)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.server.requests.append(("HEAD", self.path, ""))
        self.send_response(200)
        self.send_header("content-length", "3")
        self.send_header("etag", '"e"')
        self.send_header("x-amz-storage-class", "GLACIER")
        self.send_header("last-modified", "Wed, 12 Oct 2022 17:50:00 GMT")
        if told := self.server.restore:
            self.send_header("x-amz-restore", told)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def glacier() -> Iterator[Glacier]:
    with Glacier(looks=2) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def cold(storage_class: str = "GLACIER") -> ForeignObject:
    return ForeignObject("t", 0, 0, "partition=0", "value", "a/t+0+0.json", 3, '"e"', storage_class)


def test_objects_are_asked_for_once_and_waited_for(glacier: Glacier) -> None:
    left: list[int] = []
    asked = SourceSettings(thaw_days=7, thaw_tier="Bulk")
    thaw([cold(), cold("STANDARD")], asked, glacier.store, wait_seconds=30, poll_seconds=0.01, progress=left.append)
    posts = [(path, body) for method, path, body in glacier.requests if method == "POST"]
    assert len(posts) == 1
    assert posts[0][0].startswith("/bucket/a/t%2B0%2B0.json?restore")
    assert "<Days>7</Days>" in posts[0][1]
    assert "<GlacierJobParameters><Tier>Bulk</Tier></GlacierJobParameters>" in posts[0][1]
    assert left == [1, 1, 1]


def test_a_run_may_end_before_they_are_there_and_be_run_again(glacier: Glacier) -> None:
    asked = SourceSettings(thaw_days=1)
    with pytest.raises(BusyError, match=r"1 objects lie in cold storage, such as a/t\+0\+0.json: they were asked for"):
        thaw([cold()], asked, glacier.store)
    glacier.looks = 0
    thaw([cold()], asked, glacier.store)
    assert sum(method == "POST" for method, _, _ in glacier.requests) == 1


def test_nothing_is_asked_for_unless_the_file_says_so(glacier: Glacier) -> None:
    with pytest.raises(BusyError, match=r"set archive\.source\.thaw\.days"):
        thaw([cold("DEEP_ARCHIVE")], SourceSettings(), glacier.store)
    assert [method for method, _, _ in glacier.requests] == ["HEAD"]


def test_a_second_request_for_the_same_object_is_fine(glacier: Glacier) -> None:
    glacier.store.request_thaw("k", 1, "Standard")
    glacier.store.request_thaw("k", 1, "Standard")
    assert [method for method, _, _ in glacier.requests] == ["POST", "POST", "HEAD"]


def test_an_object_that_is_still_cold_is_named_when_it_is_read(glacier: Glacier) -> None:
    (group,) = groups([cold()])
    with pytest.raises(IntegrityError, match=r"a/t\+0\+0.json lies in GLACIER and was not thawed"):
        list(ForeignStream(source({"format": "json"}), group, glacier.store))
