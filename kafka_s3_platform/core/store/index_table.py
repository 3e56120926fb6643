"""Opens the Delta table of an index with delta-rs's options, and refuses files and log entries foreign to an index.

A table is opened at one version. A commit uses the handle it was planned on (see `store/index.py`).

delta-rs does not report deletion vectors but follows them, to files of any name, even to files of this machine. An
index never has any, so the log files of a version (the newest checkpoint and the commits after it) are checked before
its rows are read. A process reads each of these log files once, as long as the version needs it.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError, IndexDamagedError, MissingBucketError
from kafka_s3_platform.core.store.client import MAX_BACKOFF_SECONDS, find_bucket_url, find_proxy, suggest_bucket
from kafka_s3_platform.core.store.credentials import Credentials, find_credentials
from kafka_s3_platform.core.store.delta_errors import classify_delta_error
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.waits import waiting_for

INDEX_FORMAT = 4
"""The format of this version's indexes."""

READS_AT_ONCE = 16
_VERSION_DIGITS = 20

_COMMIT = ".json"
_CHECKPOINT = ".checkpoint.parquet"
_VECTOR = "deletionVector"

_Marks = frozenset[tuple[str, str]]
"""Key and ETag of each file."""

_checked: dict[str, _Marks] = {}
"""The files of each table in which no flaw was found.

Only the files of the last checked version are kept, because a process may run for years and see every commit of every
index.
"""

_COMMON_OPTIONS = {
    # every commit is a PUT that fails if the version is there: the index's compare-and-swap
    "aws_conditional_put": "etag",
    "aws_copy_if_not_exists": "multipart",
    "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
    "aws_skip_signature": "false",
    "aws_unsigned_payload": "false",
    # a bucket with Object Lock takes no object without one
    "aws_checksum_algorithm": "sha256",
    "aws_s3_express": "false",
    "aws_imdsv1_fallback": "false",
    "aws_request_payer": "false",
    "aws_disable_tagging": "false",
    "aws_disable_bulk_delete": "false",
    "aws_virtual_hosted_style_request": "true",
    "allow_invalid_certificates": "false",
    "disable_system_certificates": "false",
    "connect_timeout": "5s",
    "timeout": "30s",
    "read_timeout": "30s",
    "retry_timeout": "20s",
    "backoff_config.max_backoff": f"{MAX_BACKOFF_SECONDS:.0f}s",
    "pool_idle_timeout": "15s",
    "pool_max_idle_per_host": "64",
    "randomize_addresses": "true",
    "default_content_type": "application/octet-stream",
    "user_agent": "kafka-s3-platform",
    "http1_only": "true",
    "http2_only": "false",
    # without effect in HTTP/1, but a variable with an invalid value would be an error
    "http2_keep_alive_interval": "30s",
    "http2_keep_alive_timeout": "20s",
    "http2_keep_alive_while_idle": "false",
    "http2_max_frame_size": "16384",
    "proxy_ca_certificate": "",
}
"""The options of every connector. Only later versions of delta-rs know `aws_disable_bulk_delete` and `read_timeout`."""

_NO_PROXY = {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
"""A proxy used for no host: it excludes all names, and addresses of both kinds."""

_TOKEN = "aws_session_token"  # noqa: S105 - the name of an option

_UNSETTABLE_OPTIONS = {
    _TOKEN: frozenset({"aws_session_token", "aws_token", "session_token", "token"}),
    "aws_server_side_encryption": frozenset({"aws_server_side_encryption", "server_side_encryption"}),
    "aws_sse_kms_key_id": frozenset({"aws_sse_kms_key_id", "sse_kms_key_id"}),
    "aws_sse_bucket_key_enabled": frozenset({"aws_sse_bucket_key_enabled", "sse_bucket_key_enabled"}),
    # delta-rs would look for credentials itself, and assume a role that another variable names
    "AWS_FORCE_CREDENTIAL_LOAD": frozenset({"aws_force_credential_load"}),
    "AWS_S3_LOCKING_PROVIDER": frozenset({"aws_s3_locking_provider"}),
}
"""The options that no value switches off, each with the names of the environment variables that would set it."""

R = TypeVar("R")

_OWN_FILE = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[A-Za-z0-9_.=+-]+(?:/[A-Za-z0-9_.=+-]+)*")
"""The path of a file below the table's folder, in characters that need no decoding."""


def refuse_deletion_vectors(store: ObjectStore, folder: str, log: Sequence[ObjectInfo]) -> None:
    """Raise IndexDamagedError if a `log` file of the table in `folder` has a flaw, such as a deletion vector."""
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
    """List the log files to read for `version`: the newest checkpoint up to it, and the later commits.

    delta-rs reads the hint (`_last_checkpoint`) by its own rules, and lists the complete log if it does not accept the
    hint. Here the hint is only the first place to search, and the result always begins with a checkpoint or the first
    commit.

    Raises IndexDamagedError if there is neither, or if the log has files foreign to an index.
    """
    log = f"{folder}/_delta_log/"
    first = _read_hint(store, log)
    log_segment = _select_segment(_list_files_from(store, log, first), version)
    if first and not _is_complete(log_segment, log):
        log_segment = _select_segment(_list_files_from(store, log, 0), version)
    if not _is_complete(log_segment, log):
        raise IndexDamagedError(
            f"the log of the index {store.uri(folder)} has no checkpoint up to version {version}, and not the first "
            f"commit, and the index is not read. Put its _delta_log back from the bucket's versions or a backup"
        )
    return log_segment


def list_newer(store: ObjectStore, folder: str, log: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    """List the log's files from `version` on, or none if the last file of `log` is missing (it is another log)."""
    last = log[-1]
    files = _list_files_from(store, f"{folder}/_delta_log/", version)
    return tuple(files) if any((file.key, file.etag) == (last.key, last.etag) for file in files) else ()


def find_newest_version(log: Sequence[ObjectInfo]) -> int:
    """Return the newest version with a commit among the files, or -1 if there is none."""
    return max((_find_version(file) for file in log if file.key.endswith(_COMMIT)), default=-1)


def extend_segment(log: Sequence[ObjectInfo], newer: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    """Build the segment of `version` from an earlier one, `log`, and `newer`, which repeats the last file of `log`."""
    return _select_segment((*log[:-1], *newer), version)


def _list_files_from(store: ObjectStore, log: str, first: int) -> list[ObjectInfo]:
    """List the log's files from version `first` on. Raises IndexDamagedError for a file foreign to an index."""
    files: list[ObjectInfo] = []
    for file in store.list_from(log, f"{first:0{_VERSION_DIGITS}d}"):
        # others, such as the hint, belong to no version
        if file.key.startswith(f"{log}0"):
            if _split_name(file.key.removeprefix(log))[1] not in {_COMMIT, _CHECKPOINT}:
                raise IndexDamagedError(
                    f"{store.uri(file.key)} is a file of an index's log, but foreign to it, and the index is not read. "
                    f"Find out who wrote to that folder, and remove it"
                )
            files.append(file)
    return files


def _select_segment(files: Sequence[ObjectInfo], version: int) -> tuple[ObjectInfo, ...]:
    """Return the newest checkpoint up to `version`, if there is one, and the commits after it up to `version`."""
    ordered = sorted((file for file in files if _find_version(file) <= version), key=_find_version)
    checkpoints = [file for file in ordered if file.key.endswith(_CHECKPOINT)][-1:]
    checkpoint_version = max(map(_find_version, checkpoints), default=-1)
    return (
        *checkpoints,
        *(file for file in ordered if file.key.endswith(_COMMIT) and _find_version(file) > checkpoint_version),
    )


def _find_version(info: ObjectInfo) -> int:
    return _split_name(info.key.rpartition("/")[2])[0]


def _is_complete(log_segment: Sequence[ObjectInfo], log: str) -> bool:
    """Return True if the log files begin with a checkpoint or with the first commit, so nothing before is needed."""
    if not log_segment:
        return False
    key = log_segment[0].key
    return key.endswith(_CHECKPOINT) or key == f"{log}{0:0{_VERSION_DIGITS}d}{_COMMIT}"


def _read_hint(store: ObjectStore, log: str) -> int:
    """Return a version near the newest checkpoint's, or 0 if the hint names none."""
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
    """Yield each log file with its flaw as `_find_flaw` describes it. Several are read at once."""
    if not files:
        return
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="log") as pool:
        yield from zip(files, pool.map(lambda file: _find_flaw(store, file), files), strict=True)


def _find_flaw(store: ObjectStore, info: ObjectInfo) -> str | None:
    """Return what is wrong with a log file (content that no index has), as the end of a sentence, or None."""
    try:
        if info.key.endswith(_CHECKPOINT):
            return _find_checkpoint_flaw(store, info)
        return _find_commit_flaw(store.get(info.key))
    except NotFoundError:
        # deleted meanwhile: delta-rs reports that
        return None


def _find_checkpoint_flaw(store: ObjectStore, info: ObjectInfo) -> str | None:
    """Return a checkpoint's forbidden reference as the end of a sentence, or None if it has none."""
    with store.open(info.key) as source:
        # Read in this thread. The threads of a dataset may outlive Python and abort it (apache/arrow 34314).
        file = pq.ParquetFile(source)
        paths = [file.schema.column(number).path.split(".") for number in range(len(file.schema))]
        columns = [".".join(path) for path in paths if path[0] == "sidecar" or path[:2] == ["add", _VECTOR]]
        for batch in file.iter_batches(columns=columns, use_threads=False) if columns else ():
            rows = batch.to_pylist()
            if any((row.get("add") or {}).get(_VECTOR) is not None for row in rows):
                return "names a deletion vector"
            if any(row.get("sidecar") is not None for row in rows):
                return "names another file of its log"
    return None


def _find_commit_flaw(content: bytes) -> str | None:
    """Return a commit's forbidden content as the end of a sentence, or None if it has none."""
    # JSON may write a name with escapes. It may also have a name twice, and readers use the first or the last, so all
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
    fields = [pair for name, value in _list_pairs(action) if name == "add" for pair in _list_pairs(value)]
    return any(name == _VECTOR and value is not None for name, value in fields)


def _list_pairs(value: Any) -> Sequence[tuple[str, Any]]:
    """Return the pairs of a JSON object, or none for any other value."""
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        return value
    return []


def build_delta_options(store: StoreSettings) -> dict[str, str]:
    """Return the options by which delta-rs reaches the bucket, with the current credentials, secrets included.

    Raises as `find_credentials` does, and ConfigError if an environment variable would change the options.
    """
    url = find_bucket_url(store)
    proxy = find_proxy(store)
    credentials = find_credentials(store)
    options = {
        **_COMMON_OPTIONS,
        "aws_bucket": store.bucket,
        "aws_region": store.region,
        "aws_default_region": store.region,
        # of the bucket, by `aws_virtual_hosted_style_request`
        "aws_endpoint": url,
        "aws_endpoint_url_s3": url,
        "allow_http": str(url.startswith("http:")).lower(),
        "max_retries": str(store.max_retries),
        "backoff_config.init_backoff": f"{store.retry_backoff_ms}ms",
        **({"proxy_url": proxy, "proxy_excludes": ""} if proxy else _NO_PROXY),
        **_build_encryption_options(store),
        "aws_access_key_id": credentials.access_key,
        "aws_secret_access_key": credentials.secret_key,
        **({_TOKEN: credentials.token} if credentials.token else {}),
    }
    _refuse_variables(options)
    return options


def _refuse_variables(options: dict[str, str]) -> None:
    """Raise ConfigError if delta-rs would read an environment variable for an option we do not set."""
    for option, names in _UNSETTABLE_OPTIONS.items():
        variables = [name for name in os.environ if name.lower() in names]
        if variables and option not in options:
            raise ConfigError(
                f"the environment variable {variables[0]} would be taken for the index: {_explain_refusal(option)}. "
                f"Unset it"
            )


def _explain_refusal(option: str) -> str:
    if option == _TOKEN:
        return "it would be sent as the session token of an access key that has none"
    return "the connector file does not set it, and the library that writes the index (delta-rs) reads it by itself"


def _build_encryption_options(store: StoreSettings) -> dict[str, str]:
    """Return delta-rs's options of server-side encryption. They overrule variables of the environment."""
    # without encryption and with a customer's key, delta-rs reads these two and uses neither
    neutral = {"aws_sse_kms_key_id": "", "aws_sse_bucket_key_enabled": "false"}
    if store.customer_key is not None:
        key = store.customer_key.get_secret_value()
        return {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": key, **neutral}
    if store.encryption is None:
        return neutral
    options = {"aws_server_side_encryption": store.encryption, "aws_sse_kms_key_id": store.kms_key_id}
    return {name: value for name, value in options.items() if value}


@dataclass(frozen=True)
class Handle:
    """An open table at one version, and the options it was opened with, whose credentials may expire.

    `log` has the log files checked for `version`. The last one tells the version apart from others with its number. A
    commit brings the table, not the handle, to the next version.
    """

    table: DeltaTable
    options: Mapping[str, str] = dataclasses.field(repr=False)
    version: int
    log: tuple[ObjectInfo, ...]


@dataclass(frozen=True)
class IndexTable:
    """The Delta table in `folder`. It need not exist."""

    store: StoreSettings = dataclasses.field(repr=False)
    folder: str
    _options: dict[Credentials, dict[str, str]] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def uri(self) -> str:
        return f"s3://{self.store.bucket}/{self.folder}"

    @property
    def options(self) -> dict[str, str]:
        """delta-rs's options with the credentials valid now, secrets included."""
        # the environment is read once for each credentials: it is large, and each use of the table asks
        access = find_credentials(self.store)
        if access not in self._options:
            self._options.clear()
            self._options[access] = build_delta_options(self.store)
        return self._options[access]

    @cached_property
    def objects(self) -> ObjectStore:
        """The bucket of the table."""
        return ObjectStore(self.store)

    def open(self, version: int | None = None) -> Handle:
        """Return the table as it is now, or as it was at `version`. Raises TableNotFoundError if there is none."""
        options = self.options
        table = self.run("open", lambda: DeltaTable(self.uri, version=version, storage_options=options))
        log = list_log_segment(self.objects, self.folder, table.version())
        return self._check_files(Handle(table, options, table.version(), log))

    def update(self, handle: Handle) -> Handle | None:
        """Bring the handle's table to the newest version by reading the difference. If there is none, make one request.

        Returns None if the log has lost the handle's version, or has another one in its place, as after the log was put
        back from a backup. In that case the handle must no longer be used.
        """
        first = handle.table.version()
        newer = list_newer(self.objects, self.folder, handle.log, first)
        if find_newest_version(newer) > first:
            self.run("read", handle.table.update_incremental)
            if find_newest_version(newer) < handle.table.version():
                # somebody committed meanwhile
                newer = list_newer(self.objects, self.folder, handle.log, first)
        version = handle.table.version()
        if not newer or find_newest_version(newer) < version:
            return None
        if version == handle.version:
            return handle
        return self._check_files(replace(handle, version=version, log=extend_segment(handle.log, newer, version)))

    def is_newest(self, handle: Handle) -> bool:
        """Return True if the log still ends with the handle's version, not with another one of its number."""
        return find_newest_version(list_newer(self.objects, self.folder, handle.log, handle.version)) == handle.version

    def follow_commit(self, handle: Handle) -> Handle | None:
        """Return the handle at its own commit, read from the store, or None if the log has lost the version before."""
        newer = list_newer(self.objects, self.folder, handle.log, handle.version)
        log = extend_segment(handle.log, newer, handle.table.version())
        return replace(handle, log=log) if newer else None

    def name_log_entry(self, version: int) -> str:
        """Return the key of the log entry of a Delta version."""
        return f"{self.folder}/_delta_log/{version:020d}.json"

    def _check_files(self, handle: Handle) -> Handle:
        """Return the handle. Refuse a version that has files outside its folder, or deletion vectors.

        delta-rs follows both, even to this machine's files (`file:///`).
        """
        files = self.run("read", lambda: pa.table(handle.table.get_add_actions(flatten=True)))
        for path in files.column("path").to_pylist():
            if not _OWN_FILE.fullmatch(path):
                raise IndexDamagedError(
                    f"the index {self.uri} names {path!r} as one of its files, which is none in its folder, and is not "
                    f"read. Nothing of ours writes such a path: find out who wrote to that folder, and put its "
                    f"_delta_log back from the bucket's versions or a backup"
                )
        self.run("read", lambda: refuse_deletion_vectors(self.objects, self.folder, handle.log))
        return handle

    def run(self, verb: str, call: Callable[[], R]) -> R:
        """Return `call()`. Raise errors of delta-rs and Arrow as store errors with the index's name.

        TableNotFoundError is passed on, since it means there is no index yet.
        """
        place = self.store.endpoint_url or "AWS"
        try:
            with waiting_for(f"the store at {place}"):
                return call()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as err:
            attempt = f"could not {verb} the index {self.uri} at {place}"
            failure = classify_delta_error(attempt, err)
            if isinstance(failure, MissingBucketError):
                failure = suggest_bucket(failure, self.store)
            raise failure from err


def describe_index(connector: str) -> str:
    """Return the description in the table of a connector's index."""
    return json.dumps({"format": INDEX_FORMAT, "connector": connector})


def refuse_other_index(uri: str, connector: str, table: DeltaTable) -> None:
    """Refuse a table that is no index, or one of another format or connector (copied or moved here)."""
    try:
        description = json.loads(table.metadata().description or "")
        named = str(description["connector"])
        index_format = description.get("format")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as err:
        raise IndexDamagedError(
            f"{uri} is a Delta table, but no index: its metadata do not name a connector. Find out who wrote to "
            f"that folder, and put it back from the bucket's versions or a backup"
        ) from err
    if index_format != INDEX_FORMAT:
        raise ConfigError(
            f"the index {uri} has {f'format {index_format}' if index_format else 'no format'}, and this version "
            f"reads format {INDEX_FORMAT}: use the version that wrote it, or archive under another archive.index.dir"
        )
    if named != connector:
        raise IndexDamagedError(
            f"{uri} is the index of connector {named}: its folder was copied or moved to the folder "
            f"of {connector}. Put each index back into the folder of its connector"
        )
