"""What of an index's log is looked at never depends on the log's hint, which delta-rs reads by rules of its own.

Why the records are no Delta table (ADR 16): what other engines do to one deletes what the index holds.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from kafka_s3_platform.core.errors import IndexDamagedError
from kafka_s3_platform.core.store.index_table import list_log_segment
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, refusal, running
from kafka_s3_platform_tests.store.servers import store_at

LOG = "i/_delta_log/"


COMMITS = [f"{LOG}{version:020d}.json" for version in range(151)]


CHECKPOINT = f"{LOG}{104:020d}.checkpoint.parquet"

SCHEMA = pa.schema([("offset", pa.int64())])


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


def objects(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for n, name in enumerate(names):
        pq.write_table(pa.table({"offset": [n]}, schema=SCHEMA), folder / name)


def table_of(folder: Path, paths: list[str]) -> DeltaTable:
    """A table in `folder` whose files are said to be at these paths."""
    size = next(folder.parent.glob("topics/*.parquet")).stat().st_size
    adds = [AddAction(path, size, {}, 0, True, "{}") for path in paths]
    folder.mkdir(parents=True, exist_ok=True)
    create_table_with_add_actions(str(folder), Schema.from_arrow(SCHEMA), adds, "append", [])
    return DeltaTable(str(folder))


def swept(folder: Path) -> None:
    DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def test_a_foreign_vacuum_deletes_hours_that_a_table_of_the_records_does_not_name(tmp_path: Path) -> None:
    root = tmp_path / "topics"
    objects(root, ["merged-hour.parquet", "live.parquet"])
    table_of(root, ["live.parquet"])
    swept(root)
    assert [p.name for p in root.glob("*.parquet")] == ["live.parquet"]


def test_a_foreign_optimize_and_vacuum_delete_what_is_live(tmp_path: Path) -> None:
    root = tmp_path / "topics"
    live = ["one.parquet", "two.parquet"]
    objects(root, live)
    table_of(root, live).optimize.compact()
    swept(root)
    assert not any((root / name).exists() for name in live)


@pytest.mark.parametrize("where", ["../topics/", "{root}/"])
def test_a_table_beside_the_objects_cannot_be_read(tmp_path: Path, where: str) -> None:
    root = tmp_path / "topics"
    objects(root, ["one.parquet"])
    path = f"{where.format(root=root.as_uri())}one.parquet"
    with pytest.raises(FileNotFoundError):
        table_of(tmp_path / "table", [path]).to_pyarrow_table()
