"""Connector files: one or a folder of them, loaded as `ConnectorConfig`s."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path

from kafka_s3_platform.config.mapping import resolve
from kafka_s3_platform.config.parse import read_connector_file
from kafka_s3_platform.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.config.sheet import Finding, KeyClass
from kafka_s3_platform.config.values import nested
from kafka_s3_platform.config.worker import Worker, load_worker
from kafka_s3_platform.errors import ConfigError

FOLDER_VARIABLE = "KAFKA_S3_CONNECTORS"
WORKER_FILE = "worker.properties"


@dataclass(frozen=True)
class LoadedConnector:
    """A connector file that loads, and what became of each of its keys."""

    config: ConnectorConfig
    findings: tuple[Finding, ...]


def connectors_folder(env: Mapping[str, str]) -> Path:
    """The folder of connector files: `./connectors`, or what `KAFKA_S3_CONNECTORS` names."""
    return Path(env.get(FOLDER_VARIABLE) or "connectors")


def load_connectors(folder: Path, env: Mapping[str, str]) -> tuple[ConnectorConfig, ...]:
    """Loads every connector file of a folder, in the order of their file names.

    Raises:
        ConfigError: the folder is not there, a file does not load, or two files declare the same name or write to the
            same folder of a bucket. One error tells all that is wrong in all files.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or name another in {FOLDER_VARIABLE}")
    worker = folder / WORKER_FILE
    loaded: dict[Path, ConnectorConfig] = {}
    problems: list[str] = []
    for path in connector_files(folder):
        try:
            loaded[path] = load_connector(path, worker, env).config
        except ConfigError as err:
            problems.append(str(err))
    problems += conflicts(loaded)
    if problems:
        # The worker file's errors are the same for each connector file.
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return tuple(loaded.values())


def connector_files(folder: Path) -> tuple[Path, ...]:
    """The connector files of a folder: `*.json` and `*.properties` but worker.properties and hidden files."""
    return tuple(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in {".json", ".properties"} and path.name != WORKER_FILE and not path.name.startswith(".")
    )


def load_connector(path: Path, worker: Path, env: Mapping[str, str]) -> LoadedConnector:
    """Loads one connector file over a worker.properties, `${env:NAME}` replaced from `env`.

    Raises:
        ConfigError: a file cannot be parsed, or refused keys; one error names them all.
    """
    cluster = read_worker(worker, env)
    resolution = resolve(read_connector_file(path), cluster, env)
    if resolution.config is None:
        raise ConfigError(_refusal(path, resolution.findings))
    return LoadedConnector(resolution.config, resolution.findings)


def read_worker(path: Path, env: Mapping[str, str]) -> Worker:
    """Reads worker.properties.

    Raises:
        ConfigError: the file cannot be parsed, or refused keys; one error names them all.
    """
    worker = load_worker(path, env)
    if any(finding.key_class is KeyClass.REFUSED for finding in worker.findings):
        raise ConfigError(_refusal(path, worker.findings))
    return worker


def conflicts(loaded: Mapping[Path, ConnectorConfig]) -> list[str]:
    """What is wrong between files that load each by itself: a name or a folder that two of them have."""
    return [*_shared_names(loaded), *_shared_folders(loaded)]


def _refusal(path: Path, findings: tuple[Finding, ...]) -> str:
    refused = [finding for finding in findings if finding.key_class is KeyClass.REFUSED]
    lines = [f"  {finding.key}: {finding.effect}" for finding in refused]
    return "\n".join([f"{path}: {len(refused)} key{'s' * (len(refused) > 1)} refused:", *lines])


def _shared_names(loaded: Mapping[Path, ConnectorConfig]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for path, config in loaded.items():
        by_name.setdefault(config.name, []).append(str(path))
    return [
        f"{' and '.join(paths)} declare the same connector, {name}; rename one"
        for name, paths in by_name.items()
        if len(paths) > 1
    ]


def _shared_folders(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[str]:
    """Connectors do not know each other's indexes: each would take the other's objects in a shared folder for lost."""
    # A source only reads: it may share the folder of the sink whose objects it restores.
    sinks = {path: config for path, config in loaded.items() if config.source is None}
    for (path, one), (other_path, other) in permutations(sinks.items(), 2):
        both = f"{path} and {other_path} share a folder of bucket {other.store.bucket}"
        # Each pair of folders comes twice, once from either side.
        yield from (f"{both}: {what}" for what in _shared_objects(one, other) if path < other_path)
        yield from (f"{both}: {what}" for what in _shared_documents(one, other))


def _shared_objects(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    for folder, other_folder in product(_folders(one), _folders(other)) if _same_bucket(one.store, other.store) else ():
        if _meet(folder, other_folder):
            where = max(folder, other_folder) or "its root"
            yield f"objects of both go to {where}; change topics.dir or topics of one"


def _shared_documents(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    theirs, archive = other.layout.topics_dir, one.archive
    written = (("index", one.store, archive.index_dir), ("restore", one.restore_store, archive.restore_dir))
    for key, store, folder in written:
        if _same_bucket(store, other.store) and nested(folder, theirs):
            yield f"archive.{key}.dir of the first, {folder}, and topics.dir of the second, {theirs}"


def _same_bucket(one: StoreSettings, other: StoreSettings) -> bool:
    return (one.endpoint_url, one.bucket) == (other.endpoint_url, other.bucket)


def _folders(config: ConnectorConfig) -> list[str]:
    """The folders that a connector has for itself: those of its topics, or, where those are unknown, all of its own."""
    layout = config.layout
    if layout.key_layout != "connect" or config.topics_regex:
        return [layout.topics_dir]
    return [f"{layout.topics_dir}{layout.directory_delim}{topic}" for topic in config.topics]


def _meet(one: str, other: str) -> bool:
    return not one or not other or nested(one, other)
