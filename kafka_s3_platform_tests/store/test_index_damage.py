"""An index whose files are missing or broken is told as damage, never as an outage; what the error advises heals it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import (
    ConfigError,
    IndexConflictError,
    IndexDamagedError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store import index_table
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_reads import forget_rows
from kafka_s3_platform.core.store.index_rows import TABLE_SCHEMA
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.store.conftest import flights_of
from kafka_s3_platform_tests.store.rows import WRITTEN, changed, encode

COMMITS = 4


class Files:
    """The files of an index in a bucket that keeps versions, and how to damage them."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    def named(self, part: str) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix="_index/")["Contents"]
        return sorted(o["Key"] for o in found if part in o["Key"])

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=key)

    def cut(self, key: str) -> None:
        body = self._body(key)
        self._client.put_object(Bucket=self._bucket, Key=key, Body=body[: len(body) // 2])

    def spoil(self, key: str) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=b"\x01" * len(self._body(key)))

    def put_back(self) -> None:
        """Undo what was done last to each file, as the error advises."""
        found = self._client.list_object_versions(Bucket=self._bucket, Prefix="_index/")
        for marker in found.get("DeleteMarkers", []):
            self._client.delete_object(Bucket=self._bucket, Key=marker["Key"], VersionId=marker["VersionId"])
        for key in {v["Key"] for v in found["Versions"]}:
            versions = [v for v in found["Versions"] if v["Key"] == key]
            if len(versions) > 1 and "_last_checkpoint" not in key:
                latest = next(v for v in versions if v["IsLatest"])
                self._client.delete_object(Bucket=self._bucket, Key=key, VersionId=latest["VersionId"])

    def actions(self, entry: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._body(entry).splitlines()]

    def _body(self, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())


Damage = Callable[[Files, str], None]


@pytest.fixture
def files(s3_client: Any, bucket: str) -> Files:
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return Files(s3_client, bucket)


@pytest.fixture
def index(files: Files, store_settings: StoreSettings) -> TopicIndex:
    """An index of some commits, as a process sees it that has not looked yet."""
    writer = flights_of(store_settings)
    for n in range(COMMITS):
        writer.open().commit(Change((Scan(0, n * 10, n * 10 + 10, 10, None, 1),)))
    return flights_of(store_settings)


@pytest.mark.parametrize("damage", [Files.delete, Files.cut, Files.spoil])
@pytest.mark.parametrize("part", ["/part-", "_delta_log/00000000000000000002.json"])
def test_a_missing_or_broken_file_is_damage_that_putting_it_back_heals(
    index: TopicIndex, files: Files, damage: Damage, part: str
) -> None:
    damage(files, files.named(part)[0])
    forget_rows()  # as a new process, which has read none of the files
    with pytest.raises(IndexDamagedError, match=r"_index/connector=flights .*where the bucket keeps versions"):
        _ = index.open().state
    files.put_back()
    assert index.open().state.coverage(0) == make_span(0, COMMITS * 10)


@pytest.mark.parametrize("read", [False, True], ids=["before it was read", "before its commit"])
def test_a_version_that_another_one_took_the_place_of_is_to_be_read_again(
    index: TopicIndex, files: Files, read: bool
) -> None:
    """An index was put back from a copy, and has a version of that number again: whose files are gone is no damage."""
    snapshot = index.open()
    scan = Scan(0, 0, 5, 5, None, 1)
    if read:
        assert snapshot.state.coverage(0)
    newest = f"{snapshot.version:020d}.json"
    [entry] = files.named(newest)
    [added] = [action["add"]["path"] for action in files.actions(entry) if "add" in action]
    files.delete(entry)
    files.delete(f"{entry.partition('/_delta_log')[0]}/{added}")
    forget_rows()
    flights_of(index.within_connector.store).open().commit(Change((scan,)))
    with pytest.raises(IndexConflictError, match=r"so late|Read the index again"):
        snapshot.commit(Change((scan,))) if read else snapshot.state
    assert index.open().state.coverage(0) == make_span(0, (COMMITS - 1) * 10)


@pytest.mark.parametrize("damage", [Files.delete, Files.cut, Files.spoil])
def test_a_missing_or_broken_checkpoint_is_damage_too(index: TopicIndex, files: Files, damage: Damage) -> None:
    DeltaTable(index.uri, storage_options=index.within_connector.table.options).create_checkpoint()
    damage(files, files.named(".checkpoint.parquet")[0])
    with pytest.raises(IndexDamagedError):
        _ = index.open().state
    files.put_back()
    assert index.open().state.coverage(0) == make_span(0, COMMITS * 10)


def test_an_index_whose_first_entry_is_gone_is_not_created_again(index: TopicIndex, files: Files) -> None:
    files.delete(files.named("_delta_log/00000000000000000000.json")[0])
    with pytest.raises(IndexDamagedError):
        index.open()


@pytest.mark.parametrize(
    ("method", "target"), [("GET", r"\.parquet"), ("GET", r"_delta_log/.*\.json"), ("GET", "list")]
)
@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (503, "SlowDown")])
def test_a_store_that_fails_is_an_outage_and_no_damage(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings, method: str, target: str, status: int, code: str
) -> None:
    proxy.refuse(method, target, status, code)
    with pytest.raises(PlatformError) as caught:
        _ = flights_of(through).open().state
    assert isinstance(caught.value, StoreUnavailableError)
    assert index.open().state.coverage(0) == make_span(0, COMMITS * 10)


def test_an_answer_that_breaks_off_is_an_outage_and_no_damage(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings
) -> None:
    proxy.lose_response("GET", r"\.parquet", times=100)
    with pytest.raises(StoreUnavailableError):
        _ = flights_of(through).open().state
    assert index.open().state.coverage(0) == make_span(0, COMMITS * 10)


@pytest.mark.parametrize(
    "encoded", ["{uri}", "{path}", "../outside.parquet", "%2e%2e/outside.parquet", "a/../../outside.parquet"]
)
def test_a_file_out_of_the_index_s_folder_is_refused_by_name_and_not_read(
    index: TopicIndex, files: Files, bucket: str, s3_client: Any, tmp_path: Path, encoded: str
) -> None:
    """Followed, it would be read with the rights of this machine's user, and its rows would be believed."""
    source = files.named("/part-")[0]
    body = s3_client.get_object(Bucket=bucket, Key=source)["Body"].read()
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(body)
    s3_client.put_object(Bucket=bucket, Key="_index/connector=flights/outside.parquet", Body=body)
    path = encoded.format(uri=outside.as_uri(), path=outside)
    add = {"path": path, "partitionValues": {"period": "state"}, "size": len(body), "modificationTime": 0}
    add |= {"dataChange": True}
    log = f"_index/connector=flights/_delta_log/{COMMITS + 1:020d}.json"
    s3_client.put_object(Bucket=bucket, Key=log, Body=json.dumps({"add": add}).encode())
    for read in (index.open, index.peek, lambda: index.within_connector.table.open(COMMITS + 1)):
        with pytest.raises(IndexDamagedError, match=rf"_index/connector=flights names {re.escape(repr(path))}"):
            read()
    files.delete(log)
    assert index.open().state.coverage(0) == make_span(0, COMMITS * 10)


def test_it_is_refused_in_a_checkpoint_too(index: TopicIndex, files: Files, bucket: str, s3_client: Any) -> None:
    table = DeltaTable(index.uri, storage_options=index.within_connector.table.options)
    add = AddAction("../outside.parquet", 1, {"period": "state"}, 0, True, "{}")
    table.create_write_transaction([add], "append", table.schema(), ["period"])
    DeltaTable(index.uri, storage_options=index.within_connector.table.options).create_checkpoint()
    with pytest.raises(IndexDamagedError, match=r"names '\.\./outside\.parquet'"):
        index.open()


VECTOR = {"storageType": "p", "pathOrInlineDv": "file:///etc/passwd", "offset": 1, "sizeInBytes": 40, "cardinality": 1}
"""Followed, delta-rs reads that file of this machine, and tells of what it begins with."""


@pytest.mark.parametrize(
    ("name", "in_checkpoint"),
    [("deletionVector", False), ("deletionVector", True), ("deletionVe\\u0063tor", False), ("twice", False)],
)
@pytest.mark.parametrize("protocol", [False, True])
def test_a_deletion_vector_is_refused_by_name_and_not_read(
    index: TopicIndex, files: Files, bucket: str, s3_client: Any, name: str, *, in_checkpoint: bool, protocol: bool
) -> None:
    log = "_index/connector=flights/_delta_log/"
    commit = s3_client.get_object(Bucket=bucket, Key=f"{log}{COMMITS:020d}.json")["Body"].read()
    add = next(json.loads(line)["add"] for line in commit.splitlines() if b'"add"' in line)
    named = json.dumps(VECTOR)
    inside = f'"deletionVector": {named}, "deletionVector": null' if name == "twice" else f'"{name}": {named}'
    lines = [
        json.dumps({"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}),
        '{"add": ' + json.dumps(add)[:-1] + ", " + inside + "}}",
    ]
    if protocol:
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        lines.insert(0, json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}))
    key = f"{log}{COMMITS + 1:020d}.json"
    s3_client.put_object(Bucket=bucket, Key=key, Body="\n".join(lines).encode())
    if in_checkpoint:
        DeltaTable(index.uri, storage_options=index.within_connector.table.options).create_checkpoint()
    for read in (index.open, index.peek, lambda: index.within_connector.table.open(COMMITS + 1)):
        with pytest.raises(PlatformError, match=r"names a deletion vector|could not open") as caught:
            read()
        assert "passwd" not in str(caught.value)
        assert name == "twice" or isinstance(caught.value, IndexDamagedError)


@pytest.mark.parametrize(
    "name", ["VERSION.checkpoint.0000000001.0000000001.parquet", "VERSION.VERSION.compacted.json", "VERSION.crc"]
)
def test_files_of_the_log_that_no_index_has_are_refused(
    index: TopicIndex, bucket: str, s3_client: Any, name: str
) -> None:
    key = f"_index/connector=flights/_delta_log/{name.replace('VERSION', f'{2:020d}')}"
    source = {"Bucket": bucket, "Key": f"_index/connector=flights/_delta_log/{2:020d}.json"}
    s3_client.copy_object(Bucket=bucket, Key=key, CopySource=source)
    with pytest.raises(IndexDamagedError):
        _ = index.open().state


def test_an_index_of_many_versions_is_looked_at_from_its_last_checkpoint_on_and_once(
    store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = TopicIndex(ConnectorIndex(store_settings, "_index", "flights"), "topic.b")
    for n in range(104):
        index.open().commit(Change((Scan(0, n * 10, n * 10 + 10, 10, None, 1),)))
    DeltaTable(index.uri, storage_options=index.within_connector.table.options).create_checkpoint()
    for n in range(104, 107):
        index.open().commit(Change((Scan(0, n * 10, n * 10 + 10, 10, None, 1),)))
    version, store = index.open().version, ObjectStore(store_settings)
    folder = "_index/connector=flights"
    names = [item.key.rpartition("/")[2].lstrip("0") for item in index_table.list_log_segment(store, folder, version)]
    assert names == ["104.checkpoint.parquet", "105.json", "106.json", "107.json"]
    assert [i.key for i in index_table.list_log_segment(store, folder, 50)][-1].endswith("50.json")
    monkeypatch.delattr(index_table, "_find_flaw")
    assert index.open().state.coverage(0) == make_span(0, 1070)


def test_a_process_that_runs_for_years_remembers_only_what_the_index_is_made_of_now(index: TopicIndex) -> None:
    """A daemon sees each commit of each index; it remembered all of them for as long as it ran."""

    def remembered() -> set[str]:
        marks = next(found for table, found in index_table._checked.items() if index.uri in table)  # noqa: SLF001
        return {key.rpartition("/")[2].lstrip("0") for key, _ in marks}

    index.open()
    assert remembered() == {".json", *(f"{n}.json" for n in range(1, COMMITS + 1))}
    DeltaTable(index.uri, storage_options=index.within_connector.table.options).create_checkpoint()
    index.open().commit(Change((Scan(0, 100, 110, 10, None, 1),)))
    index.open()
    assert remembered() == {f"{COMMITS}.checkpoint.parquet", f"{COMMITS + 1}.json"}


def test_rows_that_nothing_of_ours_writes_are_damage(index: TopicIndex) -> None:
    """Whoever writes to that folder chooses them. `test_index_rows` has what no row may hold."""
    [(segment, _, _)] = [each for each in WRITTEN if each[1] == "segment"]
    table = changed(changed(encode(segment), "siblings", "{"), "topic", "topic.a")
    write_deltalake(index.uri, table, mode="append", storage_options=index.within_connector.table.options)
    with pytest.raises(IndexDamagedError, match=r"has rows of topic topic\.a that nothing of ours writes"):
        _ = index.open().segments


@pytest.mark.parametrize(("said", "found"), [({"format": 1}, "format 1"), ({}, "no format")])
def test_an_index_of_another_format_is_refused_and_says_what_to_do(
    store_settings: StoreSettings, said: dict[str, int], found: str
) -> None:
    index = TopicIndex(ConnectorIndex(store_settings, "_index", "other"), "t")
    description = json.dumps({"connector": "other", **said})
    DeltaTable.create(
        index.uri, TABLE_SCHEMA, description=description, storage_options=index.within_connector.table.options
    )
    advice = f"the index {index.uri} has {found}, and this version reads format 4: use the version that wrote it, or"
    for read in (index.open, index.peek):
        with pytest.raises(ConfigError, match=rf"\] {advice} archive under another archive.index.dir$"):
            read()


@pytest.mark.parametrize("description", [None, "{", "[]", "5", '{"format": 1}'])
def test_a_table_that_is_no_index_is_damage(store_settings: StoreSettings, description: str | None) -> None:
    index = TopicIndex(ConnectorIndex(store_settings, "_index", "other"), "t")
    DeltaTable.create(
        index.uri, TABLE_SCHEMA, description=description, storage_options=index.within_connector.table.options
    )
    with pytest.raises(IndexDamagedError, match="is a Delta table, but no index"):
        index.open()
