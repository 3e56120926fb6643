"""What delta-rs does not tell of a table's log, and follows: deletion vectors, files of any name, also this machine's.

An index never has any. So the files of its log that a version is made of are looked at before its rows are read: the
newest checkpoint, and the commits behind it. Each is read once in a process, as long as a version is made of it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq

from kafka_s3_platform.errors import IndexDamagedError
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore

READS_AT_ONCE = 16
_VERSION_DIGITS = 20
_LISTED_DIGITS = 2
"""Versions are listed a hundred at once: an index gets a checkpoint about that often."""

_COMMIT, _CHECKPOINT = ".json", ".checkpoint.parquet"
_VECTOR = "deletionVector"

_Marks = frozenset[tuple[str, str]]
"""Key and ETag of files."""

_looked_at: dict[str, _Marks] = {}
"""By table, what this process has found to have none. Only of the version that it looked at last: a process may run for
years, and see each commit of each index."""


def refuse_deletion_vectors(store: ObjectStore, folder: str, version: int) -> None:
    """That no file of the table in `folder`, as it is at `version`, has a deletion vector.

    Raises:
        IndexDamagedError: one has, or the log has files that no index has.
    """
    table = f"{store.settings.endpoint_url} {store.uri(folder)}"
    files = log_segment(store, folder, version)
    known = _looked_at.get(table, _Marks())
    for info, flaw in _flaws(store, [each for each in files if (each.key, each.etag) not in known]):
        if flaw:
            raise IndexDamagedError(
                f"{store.uri(info.key)}, of an index's log, {flaw}, and the index is not read. Nothing of "
                f"ours writes that: find out who wrote to that folder, and put it back from the bucket's versions or a "
                f"backup"
            )
    _looked_at[table] = _Marks((each.key, each.etag) for each in files)


def log_segment(store: ObjectStore, folder: str, version: int) -> list[ObjectInfo]:
    """The newest checkpoint up to `version`, and the commits after it."""
    log = f"{folder}/_delta_log/"
    found: dict[int, list[ObjectInfo]] = {}
    for each in _listed(store, log, _hint(store, log), version):
        number, name = _parsed(each.key.removeprefix(log))
        if number <= version:
            found.setdefault(number, []).append(each)
            if name not in {_COMMIT, _CHECKPOINT}:
                raise IndexDamagedError(
                    f"{store.uri(each.key)} is a file of an index's log that no index has, and the index is not read. "
                    f"Find out who wrote to that folder, and remove it"
                )
    checkpoint = max((n for n, files in found.items() if any(f.key.endswith(_CHECKPOINT) for f in files)), default=-1)
    return [
        each
        for number, files in sorted(found.items())
        for each in files
        if number > checkpoint or (number == checkpoint and each.key.endswith(_CHECKPOINT))
    ]


def _hint(store: ObjectStore, log: str) -> int:
    """Where delta-rs begins to look for a checkpoint."""
    try:
        found = json.loads(store.get(f"{log}_last_checkpoint"))
        return max(0, int(found["version"]))
    except NotFoundError:
        return 0
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return 0


def _listed(store: ObjectStore, log: str, first: int, last: int) -> Iterator[ObjectInfo]:
    step = 10**_LISTED_DIGITS
    for hundred in range(min(first, last) // step, last // step + 1):
        yield from store.list(f"{log}{hundred:0{_VERSION_DIGITS - _LISTED_DIGITS}d}")


def _parsed(name: str) -> tuple[int, str]:
    """The version in a name of a file of the log, and the rest."""
    found = re.match(rf"[0-9]{{{_VERSION_DIGITS}}}", name)
    return (int(found[0]), name[_VERSION_DIGITS:]) if found else (0, name)


def _flaws(store: ObjectStore, files: Sequence[ObjectInfo]) -> Iterator[tuple[ObjectInfo, str | None]]:
    if not files:
        return
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="log") as pool:
        yield from zip(files, pool.map(lambda each: _flaw(store, each), files), strict=True)


def _flaw(store: ObjectStore, info: ObjectInfo) -> str | None:
    try:
        if info.key.endswith(_CHECKPOINT):
            return _flaw_of_checkpoint(store, info)
        return _flaw_of_commit(store.get(info.key))
    except NotFoundError:
        return None  # deleted since: delta-rs tells of it


def _flaw_of_checkpoint(store: ObjectStore, info: ObjectInfo) -> str | None:
    with store.open(info.key) as source:
        # in this thread: those of a dataset may outlive Python, and abort it (apache/arrow 34314)
        file = pq.ParquetFile(source)
        paths = [file.schema.column(at).path.split(".") for at in range(len(file.schema))]
        wanted = [".".join(path) for path in paths if path[0] == "sidecar" or path[:2] == ["add", _VECTOR]]
        for batch in file.iter_batches(columns=wanted, use_threads=False) if wanted else ():
            rows = batch.to_pylist()
            if any((row.get("add") or {}).get(_VECTOR) is not None for row in rows):
                return "names a deletion vector"
            if any(row.get("sidecar") is not None for row in rows):
                return "names another file of its log"
    return None


def _flaw_of_commit(content: bytes) -> str | None:
    # Names may be written with escapes; a name may be there twice, and readers differ in which one counts.
    if _VECTOR.encode() not in content and b"\\u" not in content:
        return None
    try:
        is_vector = any(_has_vector(json.loads(line, object_pairs_hook=list)) for line in content.split(b"\n") if line)
    except (ValueError, RecursionError) as err:
        return f"is no commit: {err}"
    return "names a deletion vector" if is_vector else None


def _has_vector(action: Any) -> bool:
    """Whether it adds a file that has one. Objects are lists of pairs."""
    fields = [pair for name, value in _pairs(action) if name == "add" for pair in _pairs(value)]
    return any(name == _VECTOR and value is not None for name, value in fields)


def _pairs(value: Any) -> Sequence[tuple[str, Any]]:
    return value if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value) else []
