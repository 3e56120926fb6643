"""Makes the request of a restore from the config of a run."""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.files import find_connectors_folder, find_run_file, load_connectors
from kafka_s3_platform.config.keys.converters import is_registry_option
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.defs.restore.config import ForeignRestoreConfig, RestoreConfig
from kafka_s3_platform.defs.restore.option import find_options
from kafka_s3_platform.defs.restore.paths import takes_paths
from kafka_s3_platform.defs.restore.values import read_target_cluster, read_time
from kafka_s3_platform.defs.topic import ArchivedTopic, Windows, find_restorable_windows
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.outgoing.keys import find_step, parse_outgoing, read_outgoing_file
from kafka_s3_platform.restore.request import Outgoing, RecordFilter, RestoreRequest, Thaw
from kafka_s3_platform.restore.target_topic import (
    Regex,
    Rename,
    Template,
    TopicMap,
    apply_routers,
    name_target_topic,
    routes_by_topic,
)

logger = logging.getLogger(__name__)

Moments = tuple[datetime | None, datetime | None]

READ_HERE = frozenset(
    {
        "to_topic",
        "rename_regex",
        "topic_map",
        "target_worker",
        "from_time",
        "to_time",
        "hours",
        "days",
        "restore_id",
        "outgoing_file",
        "after",
    }
)
"""Options that this module reads one by one. Each of the others fills the field of the request that it declares."""


def make_restore_request(
    topic: ArchivedTopic, config: RestoreConfig, restore_id: str, run_id: str, window: Moments
) -> RestoreRequest:
    """Return the request that a config makes, for a run that picked the hours of `window`.

    Raises:
        ConfigError: a value cannot be used; the message names the field.
    """
    sent = _read_sent(config)
    request = _make_request(topic, config, sent, restore_id, run_id, window)
    return replace(request, to_topic=_name_target(config, sent, topic.topic))


def make_foreign_request(
    topics: ArchivedTopic, config: ForeignRestoreConfig, restore_id: str, run_id: str, window: Moments
) -> ForeignSource:
    """Return the request that a config makes for a source connector; `topics` stands for all of its topics.

    Raises:
        ConfigError: a value cannot be used; the message names the field.
    """
    request = _make_request(topics, config, _read_sent(config), restore_id, run_id, window)
    return ForeignSource(request, tuple(config.topics), _read_rename(config), config.after)


def _make_request(
    topic: ArchivedTopic, config: RestoreConfig, sent: Outgoing, restore_id: str, run_id: str, window: Moments
) -> RestoreRequest:
    from_time, to_time = window
    return RestoreRequest(
        config=topic.config,
        topic=topic.topic,
        to_topic="",
        restore_id=restore_id,
        run_id=run_id,
        target=_read_target(config.target_worker),
        from_time=from_time,
        to_time=to_time,
        windows=tuple(_find_picked_windows(topic, config)),
        records=RecordFilter(**_read_request_values(config, "records")),
        outgoing=sent,
        thaw=Thaw(**_read_request_values(config, "thaw")),
        connectors=_load_known_connectors(find_connectors_folder(os.environ)),
        **_read_request_values(config),
    )


def _read_request_values(config: RestoreConfig, part: str = "") -> dict[str, Any]:
    """Return the fields of the request that options fill, or those of its field `part`."""
    values = {}
    for name, option in find_options(type(config)).items():
        where, _, field = (option.into or name).rpartition(".")
        if where == part and name not in READ_HERE:
            values[field] = option.request_value(name, getattr(config, name))
    return values


def read_window(config: RestoreConfig, zone: ZoneInfo) -> Moments | None:
    """Return the window that the config gives, (None, None) for all; None where the hours picked are the window."""
    if config.from_time or config.to_time:
        start = read_time("from_time", config.from_time, zone) if config.from_time is not None else None
        end = read_time("to_time", config.to_time, zone) if config.to_time is not None else None
        return start, end
    if config.everything or config.hours or config.days:
        return (None, None)
    return None


def _load_known_connectors(folder: Path) -> tuple[ConnectorConfig, ...]:
    """Load the connectors whose files load: a broken file of another connector does not stop a restore."""
    if not folder.is_dir():
        return ()
    files = load_connectors(folder, os.environ)
    for path, problem in files.broken.items():
        logger.warning("whether %s archives the target is not known: %s", path, problem)
    return files.connectors


def _find_picked_windows(topic: ArchivedTopic, config: RestoreConfig) -> Iterator[tuple[datetime, datetime]]:
    """Yield the windows of single hours and days. ConfigError where the connector has no such hour or day."""
    hours, days = find_restorable_windows(topic.config)
    for name, windows, given in (("hours", hours, config.hours), ("days", days, config.days)):
        for text in given:
            key = text if windows.names(text) else _find_chunk(name, windows, topic, text)
            yield windows.start(key), windows.end(key)


def _find_chunk(name: str, windows: Windows, topic: ArchivedTopic, text: str) -> str:
    zone = ZoneInfo(topic.config.layout.timezone)
    # a partition key of Dagster's may have minutes, which no hour begins with
    moment = windows.start(text) if windows.definition.has_partition_key(text) else read_time(name, text, zone)
    key = windows.key(moment)
    if not windows.definition.has_partition_key(key):
        raise ConfigError(f"{name} {text!r} is no start of one that has begun since 1970")
    if windows.start(key) != moment:
        raise ConfigError(
            f"{name} {text!r} is no start of one: it is within {key}. Take that, or from_time and to_time (--from, "
            f"--to)"
        )
    return key


def _read_sent(config: RestoreConfig) -> Outgoing:
    """Return what becomes of records on their way to the target."""
    entries: Mapping[str, str] = {}
    if config.outgoing_file is not None:
        entries = read_outgoing_file(_find_file("outgoing_file", config.outgoing_file), os.environ)
    _refuse_trusted(config.outgoing, entries)
    sent = parse_outgoing({**entries, **config.outgoing})
    return replace(sent, **_read_request_values(config, "outgoing"))


def _refuse_trusted(given: Mapping[str, str], entries: Mapping[str, str]) -> None:
    """Refuse keys that only the file may set, so that a run cannot send the file's secrets to another place."""
    steps = {find_step(name) for name in entries} - {None}
    for name in given:
        if name.endswith(".location"):
            raise ConfigError(f"outgoing {name}: names a file of the machine; set it in a file for outgoing_file")
    for name in given:
        if is_registry_option(name):
            raise ConfigError(
                f"outgoing {name}: which registry is asked, and how one gets in there, is not for the config of a run "
                f"to say; set it in a file for outgoing_file"
            )
        if find_step(name) in steps:
            raise ConfigError(
                f"outgoing {name}: {find_step(name)} is of outgoing_file, which may give it secrets: take it as it is, "
                f"or name one of your own"
            )


def _name_target(config: RestoreConfig, sent: Outgoing, topic: str) -> str:
    """Return the one name that the config gives. ConfigError where it gives none, or several."""
    rule = _read_rename(config)
    if rule is not None:
        return name_target_topic(rule, topic)
    if not routes_by_topic(sent.transforms):
        raise ConfigError("nothing names the target: set to_topic, rename_regex, topic_map, or a RegexRouter")
    return name_target_topic(Template(apply_routers(sent.transforms, topic)), topic)


def _read_rename(config: RestoreConfig) -> Rename | None:
    """Return the rule that the config gives, or None. ConfigError where it gives several."""
    if (config.rename_regex is None) != (config.rename_replacement is None):
        raise ConfigError("rename_regex and rename_replacement are a pair: set both, or none")
    given: list[Rename] = []
    if config.to_topic is not None:
        given.append(Template(config.to_topic))
    if config.rename_regex is not None:
        given.append(Regex(config.rename_regex, config.rename_replacement or ""))
    if config.topic_map:
        given.append(TopicMap(config.topic_map))
    if len(given) > 1:
        raise ConfigError("to_topic, rename_regex and topic_map each name the target: keep one")
    return given[0] if given else None


def _read_target(worker: str | None) -> KafkaSettings | None:
    if worker is None:
        return None
    return read_target_cluster(_find_file("target_worker", worker))


def _find_file(key: str, name: str) -> Path:
    if takes_paths():
        return Path(name)
    return find_run_file(name, key, os.environ)
