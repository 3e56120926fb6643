"""Loads connector files, one or a folder of them, as `ConnectorConfig`s."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.connect.config.dialects import CONNECT_SOURCE, CONNECTOR_CLASS, DIALECTS
from kafka_s3_platform.connect.config.keys.config_file import KeyFinding
from kafka_s3_platform.connect.config.keys.general import CLASS, find_cluster
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.keys.transforms import route_topic
from kafka_s3_platform.connect.config.keys.values import is_nested
from kafka_s3_platform.connect.config.mapping import resolve_connector
from kafka_s3_platform.connect.config.worker import Worker, load_worker
from kafka_s3_platform.core.config.folder import (
    FOLDER_VARIABLE,
    WORKER_FILE,
    find_connectors_folder,
    list_connector_files,
)
from kafka_s3_platform.core.config.parse import ConnectorFile, find_property_lines, read_connector_file
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.text import escape_unprintable, find_nearest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectorFiles:
    """The connector files of a folder, ordered by name: the loaded ones, and the problems of the others."""

    loaded: Mapping[Path, ConnectorConfig]
    broken: Mapping[Path, str]

    @property
    def connectors(self) -> tuple[ConnectorConfig, ...]:
        """The connectors of the loaded files."""
        return tuple(self.loaded.values())

    @property
    def reservation(self) -> str:
        """The end of a message about something no file declares: it may be declared in a file that does not load."""
        if not self.broken:
            return ""
        files = ", ".join(str(path) for path in self.broken)
        return f" (what is in {files} is not known, since that does not load: `kafka-s3 list` and `check` say why)"


@dataclass(frozen=True)
class Conflict:
    """A problem between files, each of which is valid by itself."""

    paths: tuple[Path, ...]
    message: str


def load_connectors(folder: Path, env: Mapping[str, str]) -> ConnectorFiles:
    """Load every connector file of a folder, each by itself, so a fault in one does not stop the others.

    If files declare the same connector in different ways, or write to the same folder of a bucket, none of them loads.

    Raises:
        ConfigError: the folder does not exist.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or name another in {FOLDER_VARIABLE}")
    worker = folder / WORKER_FILE
    loaded: dict[Path, ConnectorConfig] = {}
    broken: dict[Path, list[str]] = {}
    for path in list_connector_files(folder):
        try:
            loaded[path] = load_connector(path, worker, env)
        except ConfigError as err:
            broken[path] = [str(err)]
        except Exception as err:
            # a defect of ours, or an error of a user's own class
            logger.exception("%s", path)
            broken[path] = [f"{path}: {type(err).__name__}: {err}"]
    for conflict in find_conflicts(loaded):
        for path in conflict.paths:
            broken.setdefault(path, []).append(conflict.message)
    return ConnectorFiles(
        {path: _add_dead_letters(config, loaded.values()) for path, config in loaded.items() if path not in broken},
        {path: escape_unprintable("\n".join(problems)) for path, problems in sorted(broken.items())},
    )


def find_connector(name: str, env: Mapping[str, str]) -> ConnectorConfig:
    """Find the sink or source connector with this name. Files of other connectors may be broken.

    Raises:
        ConfigError: the connector's file does not load, or there is no such connector.
    """
    files = load_connectors(find_connectors_folder(env), env)
    configs = {config.name: config for config in files.connectors}
    if name in configs:
        return configs[name]
    if broken := [problem for path, problem in files.broken.items() if name == guess_name(path)]:
        raise ConfigError("\n".join(dict.fromkeys(broken)))
    raise ConfigError(suggest_name(f"no connector file declares {name}", name, list(configs)) + files.reservation)


def suggest_name(what: str, name: str, names: Sequence[str]) -> str:
    """Return the sentence `what`, followed by the nearest known name, or by all names if none is near."""
    near = find_nearest(name, names)
    return f"{what}; " + (f"did you mean {near}?" if near else f"there are: {', '.join(names) or 'none'}")


def guess_name(path: Path) -> str:
    """Return the connector name declared in a file, or the file's own name if the file cannot be parsed."""
    try:
        return read_connector_file(path).name
    except ConfigError:
        return path.stem


def load_connector(path: Path, worker: Path, env: Mapping[str, str]) -> ConnectorConfig:
    """Load one connector file together with a worker.properties, whose config providers replace variables.

    Raises:
        ConfigError: a file cannot be parsed, or some of its keys are refused. One error names them all.
    """
    cluster = read_worker(worker, env)
    file = read_connector_file(path)
    resolution = resolve_connector(file, cluster)
    if resolution.config is None:
        advice = _advise_restoring(file, cluster)
        raise ConfigError("\n".join([_explain_refused_keys(path, resolution.findings), *advice]))
    return resolution.config


def read_worker(path: Path, env: Mapping[str, str]) -> Worker:
    """Read worker.properties, which names the cluster and holds the settings of its clients.

    Raises:
        ConfigError: the file cannot be parsed, or some of its keys are refused. One error names them all.
    """
    worker = load_worker(path, env)
    if any(finding.support is Support.REFUSED for finding in worker.findings):
        # The path may lead to a wrong file with secret lines: name an unknown key by its line only.
        lines = find_property_lines(path)
        shown = [f if f.is_known else replace(f, key=f"line {lines[f.key]}") for f in worker.findings]
        raise ConfigError(_explain_refused_keys(path, shown))
    return worker


def read_target_cluster(worker: Path) -> KafkaSettings:
    """Return the cluster declared in a worker.properties file. Raise ConfigError if it declares none."""
    cluster = find_cluster(read_worker(worker, os.environ))
    if not cluster.bootstrap_servers:
        raise ConfigError(f"{worker}: required: name the cluster's brokers in bootstrap.servers")
    return cluster


def find_conflicts(loaded: Mapping[Path, ConnectorConfig]) -> list[Conflict]:
    """Return the problems between files, each valid by itself: a name or a folder used twice.

    If a file is a copy of another, only the copy is kept from loading.
    """
    copies = dict(_find_copies(loaded))
    others = {path: config for path, config in loaded.items() if path not in copies}
    return [
        *(
            Conflict((copy,), f"{copy} says the same as {path}, which is read; remove {copy}")
            for copy, path in copies.items()
        ),
        *_find_shared_names(others),
        *_find_shared_folders(others),
    ]


def _add_dead_letters(config: ConnectorConfig, others: Iterable[ConnectorConfig]) -> ConnectorConfig:
    """Tell a connector with a topic pattern the dead letter topics of all connectors, since they share a cluster."""
    if config.topics_regex is None:
        return config
    topics = {other.records.errors.dead_letter_topic for other in others}
    return config.model_copy(update={"others_dead_letters": frozenset(topics - {None})})


def _explain_refused_keys(path: Path, findings: Sequence[KeyFinding]) -> str:
    """Return the text of a file's error, with a list of its refused keys and the reasons."""
    refused = [finding for finding in findings if finding.support is Support.REFUSED]
    lines = [f"  {finding.key}: {finding.effect}" for finding in refused]
    return "\n".join([f"{path}: {len(refused)} key{'s' * (len(refused) > 1)} refused:", *lines])


def _advise_restoring(file: ConnectorFile, cluster: Worker) -> Iterator[str]:
    """Name the class that restores a sink's objects by the sink's own file, if only archiving is refused."""
    try:
        sink = CONNECTOR_CLASS(file.entries[CLASS.name].get_secret_value().strip())
    except (KeyError, ValueError):
        return
    source = next((dialect for dialect in DIALECTS if dialect.is_source and dialect.name == sink.name), CONNECT_SOURCE)
    entries = {name: value for name, value in file.entries.items() if not name.startswith(("transforms", "predicates"))}
    changed = replace(file, entries={**entries, CLASS.name: SecretStr(source.class_name)})
    if not sink.is_source and resolve_connector(changed, cluster).config is not None:
        without = ", and leave its transforms out" if len(entries) < len(file.entries) else ""
        yield f"To restore what another tool wrote by this file, change {CLASS.name} to {source.class_name}{without}"


def _find_copies(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[tuple[Path, Path]]:
    """Find copies of another file of the same connector. Yield each copy with its original."""
    first: dict[str, Path] = {}
    for path in sorted(loaded, key=lambda path: (path.stem != loaded[path].name, path)):
        config = loaded[path]
        same = first.setdefault(config.name, path)
        if same != path and loaded[same] == config:
            yield path, same


def _find_shared_names(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[Conflict]:
    """Find connectors declared in several files, each in a different way."""
    by_name: dict[str, list[Path]] = {}
    for path, config in loaded.items():
        by_name.setdefault(config.name, []).append(path)
    for name, paths in by_name.items():
        if len(paths) > 1:
            files = " and ".join(map(str, paths))
            strays = [str(path) for path in paths if path.stem != name]
            which = " and ".join(strays) if len(strays) == len(paths) - 1 else "all but one"
            yield Conflict(
                tuple(paths),
                f"{files} declare the same connector, {name}, each in another way, so none of them is read; remove "
                f"{which}, or declare another name there",
            )


def _find_shared_folders(loaded: Mapping[Path, ConnectorConfig]) -> Iterator[Conflict]:
    """Find folders to which two connectors write.

    They do not know each other's indexes. Each would take the other's objects for objects its own index has lost.
    """
    # A source only reads: it may share the folder of the sink whose objects it restores.
    sinks = {path: config for path, config in loaded.items() if config.source is None}
    folders = {path: _name_folders(config.store, _list_folders(config)) for path, config in sinks.items()}
    roots = {path: _name_folders(config.store, _list_roots(config)) for path, config in sinks.items()}
    documents = {path: _name_document_folders(config) for path, config in sinks.items()}
    # Hundreds of connectors make tens of thousands of pairs, few of which have anything to do with each other.
    related = {*_pair_nested(folders, folders), *_pair_nested(documents, roots), *_pair_nested(roots, documents)}
    for path, other_path in sorted({*related, *((other, one) for one, other in related)}):
        if path == other_path:
            continue
        one, other = sinks[path], sinks[other_path]
        both = f"{path} and {other_path} share a folder of bucket {other.store.bucket}"
        # Each pair of connectors occurs twice, in both orders. Their objects are compared in one of them.
        objects = _find_shared_objects(one, other) if path < other_path else ()
        for what in (*objects, *_find_shared_documents(one, other)):
            yield Conflict((path, other_path), f"{both}: {what}")


def _pair_nested(one: Mapping[Path, list[str]], other: Mapping[Path, list[str]]) -> Iterator[tuple[Path, Path]]:
    """Yield each pair of a path of the first and one of the second if their folders are equal or nested."""
    owners: dict[str, list[Path]] = {}
    for path, folders in other.items():
        for folder in folders:
            owners.setdefault(folder, []).append(path)
    for path, folders in one.items():
        for folder in folders:
            above = folder
            yield from ((path, owner) for owner in owners.get(above, ()))
            while "/" in above:
                above = above.rpartition("/")[0]
                yield from ((path, owner) for owner in owners.get(above, ()))


def _name_folders(store: StoreSettings, folders: Iterable[str]) -> list[str]:
    """Name folders together with their bucket, which is above all of them."""
    bucket = f"{store.endpoint_url} {store.bucket}"
    return [f"{bucket}/{folder}" if folder else bucket for folder in folders]


def _name_document_folders(config: ConnectorConfig) -> list[str]:
    return [name for _, store, folder in _list_documents(config) for name in _name_folders(store, [folder])]


def _list_documents(config: ConnectorConfig) -> tuple[tuple[str, StoreSettings, str], ...]:
    """Return the name, store and folder of the documents beside a connector's objects: its index and its restores."""
    archive = config.archive
    return ("index", config.store, archive.index_dir), ("restore", config.restore_store, archive.restore_dir)


def _find_shared_objects(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    """Yield a sentence for each folder to which both connectors write objects."""
    pairs = product(_list_folders(one), _list_folders(other)) if _have_same_bucket(one.store, other.store) else ()
    met = [max(pair) or "its root" for pair in pairs if "" in pair or is_nested(*pair)]
    # If folders of hours meet, those of merged days mostly meet too. This is reported once.
    for where in [folder for folder in met if not _is_daily_folder(folder, one, other)] or met:
        yield f"objects of both go to {where}; change topics.dir or topics of one"


def _find_shared_documents(one: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    """Yield a sentence if the index or the restores of the first lie among objects of the second."""
    for key, store, folder in _list_documents(one):
        met = [root for root in _list_roots(other) if _have_same_bucket(store, other.store) and is_nested(folder, root)]
        yield from (f"archive.{key}.dir of the first, {folder}, and topics.dir of the second, {r}" for r in met[:1])


def _have_same_bucket(one: StoreSettings, other: StoreSettings) -> bool:
    return (one.endpoint_url, one.bucket) == (other.endpoint_url, other.bucket)


def _list_folders(config: ConnectorConfig) -> list[str]:
    """Return the folders of a connector: one for each topic, or the folders above these if its topics are not known."""
    layout = config.layout
    if layout.key_layout != "connect" or config.topics_regex:
        return _list_roots(config)
    topics = [route_topic(config.records.transforms, topic) for topic in config.topics]
    return [f"{root}{layout.directory_delim}{topic}" for root in _list_roots(config) for topic in topics]


def _list_roots(config: ConnectorConfig) -> list[str]:
    """Return the folder of a connector's hours, and the folder of its merged days if it can have any."""
    layout = config.layout
    if layout.is_envelope:
        return [layout.topics_dir, layout.daily_dir]
    return [layout.topics_dir]


def _is_daily_folder(folder: str, *configs: ConnectorConfig) -> bool:
    """Return True if a folder lies among the merged days of one of these connectors, or holds them."""
    return any(is_nested(folder, config.layout.daily_dir) for config in configs)
