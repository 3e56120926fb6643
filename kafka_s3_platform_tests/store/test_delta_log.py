"""What of an index's log is looked at never depends on the log's hint, which delta-rs reads by rules of its own."""

from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from kafka_s3_platform.errors import IndexDamagedError
from kafka_s3_platform.store.index_table import list_log_segment
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, refusal, running
from kafka_s3_platform_tests.store.servers import store_at

LOG = "i/_delta_log/"
COMMITS = [f"{LOG}{version:020d}.json" for version in range(151)]
CHECKPOINT = f"{LOG}{104:020d}.checkpoint.parquet"


class LogStore(HttpServer):
    """A store that holds the files of a log, and its hint."""

    keys: tuple[str, ...] = ()
    hint = ""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        asked = parse_qs(urlsplit(request.url).query)
        if "list-type" not in asked:
            return HttpAnswer(200, (), self.hint.encode()) if self.hint else refusal(404, "NoSuchKey")
        begin = unquote(asked.get("start-after", [""])[0])
        found = (key for key in self.keys if key.startswith(unquote(asked["prefix"][0])) and key > begin)
        when = "2026-01-01T00:00:00.000Z"
        rows = "".join(
            f"<Contents><Key>{key}</Key><ETag>e</ETag><Size>1</Size><LastModified>{when}</LastModified></Contents>"
            for key in sorted(found)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        return HttpAnswer(200, (("Content-Type", "application/xml"),), body.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[LogStore]:
    with running(LogStore()) as server:
        yield server


@pytest.fixture
def store(server: LogStore) -> ObjectStore:
    return store_at(server.endpoint)


@pytest.mark.parametrize(
    "hint",
    [
        "",
        '{"version": 150, "size": 1}',
        '{"version": "150", "size": 1}',
        '{"version": 150.0, "size": 1}',
        '{"version": 3, "version": 150, "size": 1}',
        '{"version": 150}',
        '{"version": 1e99}',
        "no JSON",
    ],
)
def test_a_log_is_looked_at_from_its_checkpoint_or_its_first_commit_on(
    server: LogStore, store: ObjectStore, hint: str
) -> None:
    server.hint, server.keys = hint, tuple(COMMITS)
    assert [info.key for info in list_log_segment(store, "i", 150)] == COMMITS
    server.keys = (*COMMITS, CHECKPOINT)
    assert [info.key for info in list_log_segment(store, "i", 150)] == [CHECKPOINT, *COMMITS[105:]]


@pytest.mark.parametrize("keys", [(), COMMITS[1:]])
def test_a_log_without_its_beginning_is_refused(server: LogStore, store: ObjectStore, keys: list[str]) -> None:
    server.hint, server.keys = "", tuple(keys)
    with pytest.raises(IndexDamagedError, match="no checkpoint up to version 150, and not the first commit"):
        list_log_segment(store, "i", 150)
