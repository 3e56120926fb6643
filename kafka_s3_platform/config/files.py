"""Connector files: one or a folder of them, loaded as `ConnectorConfig`s."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path

from kafka_s3_platform.config.mapping import resolve
from kafka_s3_platform.config.parse import property_lines, read_connector_file
from kafka_s3_platform.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.config.sheet import Finding, KeyClass
from kafka_s3_platform.config.values import nested
from kafka_s3_platform.config.worker import Worker, load_worker
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.text import printable

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "KAFKA_S3_CONNECTORS"
WORKER_FILE = "worker.properties"
FOLDER_OF_RUNS = "restore"
"""In the folder of connector files: worker files and outgoing keys that the config of a run may name."""


@dataclass(frozen=True)
class LoadedConnector:
    """A connector file that loads, and what became of each of its keys."""

    config: ConnectorConfig
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class ConnectorFiles:
    """The connector files of a folder, in the order of their names: those that load, and what is wrong with others."""

    loaded: Mapping[Path, ConnectorConfig]
    broken: Mapping[Path, str]

    @property
    def connectors(self) -> tuple[ConnectorConfig, ...]:
        """What the files that load declare."""
        return tuple(self.loaded.values())

    @property
    def reservation(self) -> str:
        """What a sentence that something is declared nowhere has to end with."""
        if not self.broken:
            return ""
        files = ", ".join(str(path) for path in self.broken)
        return f" (what is in {files} is not known, since that does not load: `kafka-s3 list` and `check` say why)"


@dataclass(frozen=True)
class Conflict:
    """What is wrong between two files, or more, that load each by itself."""

    paths: tuple[Path, ...]
    message: str


def connectors_folder(env: Mapping[str, str]) -> Path:
    """The folder of connector files: `./connectors`, or what `KAFKA_S3_CONNECTORS` names."""
    return Path(env.get(FOLDER_VARIABLE) or "connectors")


def load_connectors(folder: Path, env: Mapping[str, str]) -> ConnectorFiles:
    """Loads every connector file of a folder, each by itself: what is wrong with one is no matter of the others.

    Only of files that declare the same name, or write to the same folder of a bucket, none loads.

    Raises:
        ConfigError: the folder is not there.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or name another in {FOLDER_VARIABLE}")
    worker = folder / WORKER_FILE
    loaded: dict[Path, ConnectorConfig] = {}
    broken: dict[Path, list[str]] = {}
    for path in connector_files(folder):
        try:
            loaded[path] = load_connector(path, worker, env).config
        except ConfigError as err:
            broken[path] = [str(err)]
        except Exception as err:
            # a defect, or what a class of the user's own raises
            logger.exception("%s", path)
            broken[path] = [f"{path}: {type(err).__name__}: {err}"]
    for conflict in conflicts(loaded):
        for path in conflict.paths:
            broken.setdefault(path, []).append(conflict.message)
    return ConnectorFiles(
        {path: config for path, config in loaded.items() if path not in broken},
        {path: printable("\n".join(problems)) for path, problems in sorted(broken.items())},
    )


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
        # The file may be another than was meant: what is no key of a worker is a line of it.
        lines = property_lines(path)
        told = [f if f.is_known else replace(f, key=f"line {lines[f.key]}") for f in worker.findings]
        raise ConfigError(_refusal(path, told))
    return worker


def file_of_runs(name: str, key: str, env: Mapping[str, str]) -> Path:
    """The file that the config of a run names by `key`: a properties file in the folder `restore` of connector files.

    Whoever launches runs in the UI may choose among the files that somebody put there, and read no others.

    Raises:
        ConfigError: it is a path, not there, no file, or a link that leads out of the folder.
    """
    folder = connectors_folder(env) / FOLDER_OF_RUNS
    names = sorted(path.name for path in folder.glob("*.properties") if _is_of_runs(path, folder))
    if name not in names:
        raise ConfigError(
            f"{key} {name!r} is no file of {folder}: a run may name one of its *.properties files, without a path "
            f"(there are: {', '.join(names) or 'none'}). Put the file there, or run `kafka-s3 restore` on the machine, "
            f"which takes paths"
        )
    return folder / name


def _is_of_runs(path: Path, folder: Path) -> bool:
    """Also where it is a link, as in a mounted ConfigMap, but none that leads out."""
    return path.is_file() and not path.name.startswith(".") and path.resolve().is_relative_to(folder.resolve())


def conflicts(loaded: Mapping[Path, ConnectorConfig]) -> list[Conflict]:
    """What is wrong between files that load each by itself: a name or a folder that two of them have."""
    return [*_shared_names(loaded), *_shared_folders(loaded)]


def _refusal(path: Path, findings: Sequence[Finding]) -> str:
    refused = [finding for finding in findings if finding.key_class is KeyClass.REFUSED]
    lines = [f"  {finding.key}: {finding.effect}" for finding in refused]
    return "\n".join([f"{path}: {len(refused)} key{'s' * (len(refused) > 1)} refused:", *lines])


def _shared_names(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[Conflict]:
    by_name: dict[str, list[Path]] = {}
    for path, config in loaded.items():
        by_name.setdefault(config.name, []).append(path)
    for name, paths in by_name.items():
        if len(paths) > 1:
            files = " and ".join(map(str, paths))
            yield Conflict(tuple(paths), f"{files} declare the same connector, {name}; rename one")


def _shared_folders(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[Conflict]:
    """Connectors do not know each other's indexes: each would take the other's objects in a shared folder for lost."""
    # A source only reads: it may share the folder of the sink whose objects it restores.
    sinks = {path: config for path, config in loaded.items() if config.source is None}
    for (path, one), (other_path, other) in permutations(sinks.items(), 2):
        both = f"{path} and {other_path} share a folder of bucket {other.store.bucket}"
        # Each pair of folders comes twice, once from either side.
        objects = _shared_objects(one, other) if path < other_path else ()
        for what in (*objects, *_shared_documents(one, other)):
            yield Conflict((path, other_path), f"{both}: {what}")


def _shared_objects(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    pairs = product(_folders(one), _folders(other)) if _same_bucket(one.store, other.store) else ()
    met = [max(pair) or "its root" for pair in pairs if _meet(*pair)]
    # Where folders of hours meet, those of their days mostly do, too: that is told once.
    for where in [folder for folder in met if not _is_of_days(folder, one, other)] or met:
        yield f"objects of both go to {where}; change topics.dir or topics of one"


def _shared_documents(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    archive = one.archive
    written = (("index", one.store, archive.index_dir), ("restore", one.restore_store, archive.restore_dir))
    for key, store, folder in written:
        met = [root for root in _roots(other) if _same_bucket(store, other.store) and nested(folder, root)]
        yield from (f"archive.{key}.dir of the first, {folder}, and topics.dir of the second, {r}" for r in met[:1])


def _same_bucket(one: StoreSettings, other: StoreSettings) -> bool:
    return (one.endpoint_url, one.bucket) == (other.endpoint_url, other.bucket)


def _folders(config: ConnectorConfig) -> list[str]:
    """The folders that a connector has for itself: those of its topics, or, where those are unknown, all of its own."""
    layout = config.layout
    if layout.key_layout != "connect" or config.topics_regex:
        return _roots(config)
    return [f"{root}{layout.directory_delim}{topic}" for root in _roots(config) for topic in config.topics]


def _roots(config: ConnectorConfig) -> list[str]:
    """The folder of a connector's hours, and that of its merged days where it has any."""
    layout = config.layout
    return [layout.topics_dir, layout.daily_dir] if layout.is_envelope else [layout.topics_dir]


def _is_of_days(folder: str, *configs: ConnectorConfig) -> bool:
    return any(nested(folder, config.layout.daily_dir) for config in configs)


def _meet(one: str, other: str) -> bool:
    return not one or not other or nested(one, other)
