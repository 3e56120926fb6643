"""Refuses parts of Delta's logs foreign to an index: deletion vectors, and log files of other names.

delta-rs does not report deletion vectors but follows them, to files of any name, even to files of this machine. An
index never has any. So the log files of a version are checked before its rows are read: the newest checkpoint and the
commits after it. A process reads each of them once, as long as the version needs it.
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

_COMMIT = ".json"
_CHECKPOINT = ".checkpoint.parquet"
_VECTOR = "deletionVector"

_Marks = frozenset[tuple[str, str]]
"""The keys and ETags of files."""

_checked: dict[str, _Marks] = {}
"""Table -> the files without a flaw.

Only the files of the last checked version: a process may run for years, and see each commit of each index.
"""


def refuse_deletion_vectors(store: ObjectStore, folder: str, log: Sequence[ObjectInfo]) -> None:
    """Refuse the table in `folder` if a file of its `log` has a deletion vector. Raises IndexDamagedError then."""
    table = f"{store.settings.endpoint_url} {store.uri(folder)}"
    checked = _checked.get(table, _Marks())
    for info, flaw in _find_flaws(store, [file for file in log if (file.key, file.etag) not in checked]):
        if flaw:
            raise IndexDamagedError(
                f"{store.uri(info.key)}, of an index's log, {flaw}, and the index is not read. Nothing of "
                f"ours writes that: find out who wrote to that folder, and put it back from the bucket's versions or a "
                f"backup"
            )
    _checked[table] = _Marks((file.key, file.etag) for file in log)


def list_log_segment(store: ObjectStore, folder: str, version: int) -> tuple[ObjectInfo, ...]:
    """List the newest checkpoint up to `version`, and the commits after it.

    delta-rs reads the hint by rules of its own, and lists the complete log if it takes it for none. So the hint is only
    the first place to search: the result always begins with a checkpoint, or with the first commit.

    Raises IndexDamagedError if there is neither, or if the log has files foreign to an index.
    """
    log = f"{folder}/_delta_log/"
    first = _read_hint(store, log)
    log_segment = _cut_segment(_list_from(store, log, first), version)
    if first and not _is_complete(log_segment, log):
        log_segment = _cut_segment(_list_from(store, log, 0), version)
    if not _is_complete(log_segment, log):
        raise IndexDamagedError(
            f"the log of the index {store.uri(folder)} has no checkpoint up to version {version}, and not the first "
            f"commit, and the index is not read. Put its _delta_log back from the bucket's versions or a backup"
        )
    return log_segment


def list_newer(store: ObjectStore, folder: str, log: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    """List the files of the log from `version` on. `log` is the segment of the version.

    Return none if the last file of `log` has gone or changed: it is another log by now.
    """
    last = log[-1]
    files = _list_from(store, f"{folder}/_delta_log/", version)
    return tuple(files) if any((file.key, file.etag) == (last.key, last.etag) for file in files) else ()


def find_newest_version(log: Sequence[ObjectInfo]) -> int:
    """Return the newest version with a commit among the files, -1 without any."""
    return max((_find_version(file) for file in log if file.key.endswith(_COMMIT)), default=-1)


def extend_segment(log: Sequence[ObjectInfo], newer: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    """Build the segment of `version` from an earlier one, `log`, and `newer`, which repeats the last file of `log`."""
    return _cut_segment((*log[:-1], *newer), version)


def _list_from(store: ObjectStore, log: str, first: int) -> list[ObjectInfo]:
    files: list[ObjectInfo] = []
    for file in store.list_from(log, f"{first:0{_VERSION_DIGITS}d}"):
        # others are of no version, as the hint
        if file.key.startswith(f"{log}0"):
            if _split_name(file.key.removeprefix(log))[1] not in {_COMMIT, _CHECKPOINT}:
                raise IndexDamagedError(
                    f"{store.uri(file.key)} is a file of an index's log, but foreign to it, and the index is not read. "
                    f"Find out who wrote to that folder, and remove it"
                )
            files.append(file)
    return files


def _cut_segment(files: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    in_order = sorted((file for file in files if _find_version(file) <= version), key=_find_version)
    checkpoints = [file for file in in_order if file.key.endswith(_CHECKPOINT)][-1:]
    begin = max(map(_find_version, checkpoints), default=-1)
    return (*checkpoints, *(file for file in in_order if file.key.endswith(_COMMIT) and _find_version(file) > begin))


def _find_version(info: ObjectInfo) -> int:
    return _split_name(info.key.rpartition("/")[2])[0]


def _is_complete(log_segment: Sequence[ObjectInfo], log: str) -> bool:
    if not log_segment:
        return False
    key = log_segment[0].key
    return key.endswith(_CHECKPOINT) or key == f"{log}{0:0{_VERSION_DIGITS}d}{_COMMIT}"


def _read_hint(store: ObjectStore, log: str) -> int:
    """Return a version near the newest checkpoint's, 0 if none is named."""
    try:
        hint = json.loads(store.get(f"{log}_last_checkpoint"))
        return max(0, int(hint["version"]))
    except NotFoundError:
        return 0
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return 0


def _split_name(name: str) -> tuple[int, str]:
    """Split the name of a log file into its version and the rest."""
    match = re.match(rf"[0-9]{{{_VERSION_DIGITS}}}", name)
    if match:
        return (int(match[0]), name[_VERSION_DIGITS:])
    return (0, name)


def _find_flaws(store: ObjectStore, files: Sequence[ObjectInfo]) -> Iterator[tuple[ObjectInfo, str | None]]:
    if not files:
        return
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="log") as pool:
        yield from zip(files, pool.map(lambda file: _find_flaw(store, file), files), strict=True)


def _find_flaw(store: ObjectStore, info: ObjectInfo) -> str | None:
    try:
        if info.key.endswith(_CHECKPOINT):
            return _find_checkpoint_flaw(store, info)
        return _find_commit_flaw(store.get(info.key))
    except NotFoundError:
        # deleted meanwhile: delta-rs reports that
        return None


def _find_checkpoint_flaw(store: ObjectStore, info: ObjectInfo) -> str | None:
    with store.open(info.key) as source:
        # Read in this thread. The threads of a dataset may outlive Python and abort it (apache/arrow 34314).
        file = pq.ParquetFile(source)
        paths = [file.schema.column(at).path.split(".") for at in range(len(file.schema))]
        columns = [".".join(path) for path in paths if path[0] == "sidecar" or path[:2] == ["add", _VECTOR]]
        for batch in file.iter_batches(columns=columns, use_threads=False) if columns else ():
            rows = batch.to_pylist()
            if any((row.get("add") or {}).get(_VECTOR) is not None for row in rows):
                return "names a deletion vector"
            if any(row.get("sidecar") is not None for row in rows):
                return "names another file of its log"
    return None


def _find_commit_flaw(content: bytes) -> str | None:
    # JSON may write a name with escapes. It may also have a name twice, and readers use the first or the last: all
    # pairs are checked.
    if _VECTOR.encode() not in content and b"\\u" not in content:
        return None
    try:
        is_vector = any(
            _has_deletion_vector(json.loads(line, object_pairs_hook=list)) for line in content.split(b"\n") if line
        )
    except (ValueError, RecursionError) as err:
        return f"is no commit: {err}"
    return "names a deletion vector" if is_vector else None


def _has_deletion_vector(action: Any) -> bool:
    """Return True if the action adds a file with a deletion vector. Objects of JSON are lists of pairs here."""
    fields = [pair for name, value in _pairs(action) if name == "add" for pair in _pairs(value)]
    return any(name == _VECTOR and value is not None for name, value in fields)


def _pairs(value: Any) -> Sequence[tuple[str, Any]]:
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        return value
    return []
