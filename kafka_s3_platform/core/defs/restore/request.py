"""Makes the request of a restore from the config of a run."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, cast

from kafka_s3_platform.core.config.folder import find_connectors_folder, find_run_file
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.restore.config import (
    AnyRestoreConfig,
    ArchivedTargetConfig,
    ForeignTargetConfig,
    RestoreConfig,
    WhatConfig,
    find_options,
)
from kafka_s3_platform.core.defs.restore.values import read_time, takes_paths
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.instance.windows import Windows, find_restorable_windows
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, RestoreRequest, Thaw
from kafka_s3_platform.core.restore.target_topic import (
    Regex,
    Rename,
    Template,
    TopicMap,
    apply_routers,
    match_names,
    name_target_topic,
    routes_by_topic,
)
from kafka_s3_platform.core.status.discovery import find_topics_folder, resolve_now

logger = logging.getLogger(__name__)

READ_HERE = frozenset(
    {
        "what.hours",
        "what.days",
        "what.from_time",
        "what.to_time",
        "what.after",
        "to.topic",
        "to.rename_regex",
        "to.topic_map",
        "to.worker",
        "values.outgoing_file",
        "how.restore_id",
    }
)
"""Options that this module reads one by one. Each of the others fills the field of the request that it declares."""


def make_archive_source(
    topics: Sequence[TopicAssets], config: RestoreConfig, restore_id: str, run_id: str
) -> ArchiveSource:
    """Return the run's requests for a connector's topics, or for the topics matched by `what.topics_regex`.

    Raises:
        ConfigError: a value cannot be used, or no option selects records; the message names the field's path.
    """
    check_selection(config.what)
    outgoing = read_outgoing_values(config)
    regex = config.what.topics_regex
    rule = read_rename(config.to)
    archived = [*topics, *chain.from_iterable(_list_topics(name, regex) for name in config.what.connectors)]
    matching = set(match_names(regex, [topic.topic for topic in archived]))
    # One request for each connector, as reading the config and the files for each topic takes longer than planning it.
    requests = {t.config.name: make_request(t, config, outgoing, restore_id, run_id) for t in reversed(archived)}
    first = requests[topics[0].config.name]
    if any(request.target_kafka != first.target_kafka for request in requests.values()):
        raise ConfigError(
            f"connectors {', '.join(requests)} archive several clusters: name the target's (--target-worker, to.worker)"
        )
    if strange := [name for name in first.first_topics if name not in matching]:
        raise ConfigError(
            f"how.first_topics: {', '.join(strange)}: no topic of this restore; name one of "
            f"{', '.join(sorted(matching)[:20])}"
        )
    chosen_requests = [
        replace(requests[topic.config.name], topic=topic.topic, to_topic=_name_target(rule, outgoing, topic.topic))
        for topic in archived
        if topic.topic in matching
    ]
    if len(topics) == 1 and regex is None:
        return ArchiveSource(chosen_requests[0])
    names = regex or ", ".join(sorted(matching))
    if config.what.connectors:
        names += f" of {', '.join([first.config.name, *config.what.connectors])}"
    targets = json.dumps(rule.terms) if rule else "as RegexRouter names them"
    return ArchiveSource(replace(first, topic=names, to_topic=targets), tuple(chosen_requests))


def _list_topics(connector: str, regex: str | None) -> list[TopicAssets]:
    """Return the topics of another connector of the restore, one of `what.connectors`."""
    if regex is None:
        raise ConfigError("what.connectors: topics of several connectors are chosen by what.topics_regex (--topics)")
    config = resolve_now(load_extension("find_connector")(connector, os.environ), find_topics_folder())
    if config.source is not None or not config.layout.is_envelope:
        raise ConfigError(
            f"what.connectors: connector {connector} has no archive of whole records: restore it by itself"
        )
    return [TopicAssets(config, topic) for topic in config.topics]


def check_selection(selection: WhatConfig, *, names_topics: bool = False) -> None:
    """Raise ConfigError if nothing selects records, as in the form of a restore when it opens."""
    if selection.has_times or selection.everything:
        return
    bounds = {*selection.from_offset, *selection.to_offset}
    if not bounds and names_topics:
        return
    if not bounds:
        raise ConfigError(
            "what: nothing says which records to restore: name what.hours, what.days, what.from_time and what.to_time, "
            "or offsets, or set what.everything to true"
        )
    if "all" not in bounds and not selection.kafka_partitions:
        raise ConfigError(
            f"what: the offsets are of kafka partitions {', '.join(sorted(bounds))}, and others would be restored "
            f"whole: name all that are to be restored (--kafka-partitions, what.kafka_partitions)"
        )


def make_request(
    topic: TopicAssets, config: AnyRestoreConfig, outgoing: Outgoing, restore_id: str, run_id: str
) -> RestoreRequest:
    """Return the request of a restore without its target topic. Raises ConfigError if a value cannot be used."""
    zone = topic.config.layout.zone
    selection = config.what
    worker = None if config.to.worker is None else _find_file("to.worker", config.to.worker)
    return RestoreRequest(
        config=topic.config,
        topic=topic.topic,
        to_topic="",
        restore_id=restore_id,
        run_id=run_id,
        target=None if worker is None else load_extension("read_target_cluster")(worker),
        from_time=read_time("what.from_time", selection.from_time, zone) if selection.from_time is not None else None,
        to_time=read_time("what.to_time", selection.to_time, zone) if selection.to_time is not None else None,
        windows=tuple(_find_selected_windows(topic, selection)),
        records=RecordFilter(**_read_request_values(config, "records")),
        outgoing=outgoing,
        thaw=Thaw(**_read_request_values(config, "thaw")),
        connectors=_load_known_connectors(find_connectors_folder(os.environ)),
        **_read_request_values(config),
    )


def _read_request_values(config: AnyRestoreConfig, part: str = "") -> dict[str, Any]:
    """Return the fields of a `RestoreRequest`, or of its field `part`, with values from the config's options."""
    values = {}
    for path, option in find_options(type(config)).items():
        group, _, name = path.partition(".")
        part_of_field, _, field = (option.into or name).rpartition(".")
        if part_of_field == part and path not in READ_HERE:
            values[field] = option.request_value(path, getattr(getattr(config, group), name))
    return values


def _load_known_connectors(folder: Path) -> tuple[ConnectorConfig, ...]:
    """Load the connectors of all sound files, as a broken file of another connector must not stop a restore."""
    if not folder.is_dir():
        return ()
    load_connectors = load_extension("load_connectors")
    files = load_connectors(folder, os.environ)
    for path, problem in files.broken.items():
        logger.warning("whether %s archives the target is not known: %s", path, problem)
    return cast("tuple[ConnectorConfig, ...]", files.connectors)


def _find_selected_windows(topic: TopicAssets, selection: WhatConfig) -> Iterator[tuple[datetime, datetime]]:
    """Yield [start, end) of each hour and day named in the config.

    Raises ConfigError if the connector has no such hour or day.
    """
    hours, days = find_restorable_windows(topic.config)
    for name, windows, texts in (("what.hours", hours, selection.hours), ("what.days", days, selection.days)):
        for text in texts:
            key = text if windows.is_key(text) else _find_chunk(name, windows, topic, text)
            yield windows.start(key), windows.end(key)


def _find_chunk(name: str, windows: Windows, topic: TopicAssets, text: str) -> str:
    """Return the partition key of the hour or day that starts at `text`, or raise ConfigError.

    `text` is a value of the option `name`.
    """
    zone = topic.config.layout.zone
    # a partition key of Dagster's may have minutes at which no hour begins, or be an hour that the clocks skip
    is_key = windows.definition.has_partition_key(text)
    moment = windows.start(text) if is_key else read_time(name, text, zone)
    key = windows.key(moment)
    if not windows.definition.has_partition_key(key):
        raise ConfigError(f"{name} {text!r} is no start of one that has begun since 1970")
    if is_key or windows.start(key) != moment:
        raise ConfigError(
            f"{name} {text!r} is no start of one: it is within {key}. Take that, or what.from_time and what.to_time"
        )
    return key


def read_outgoing_values(config: AnyRestoreConfig) -> Outgoing:
    """Return how records are changed on their way to the target: transforms, converters, kafka partitions."""
    outgoing = Outgoing()
    values = config.values
    if values.outgoing or values.outgoing_file is not None:
        name = values.outgoing_file
        file = None if name is None else _find_file("values.outgoing_file", name)
        read_outgoing = load_extension("read_outgoing")
        outgoing = read_outgoing(file, values.outgoing, os.environ)
    return replace(outgoing, **_read_request_values(config, "outgoing"))


def _name_target(rule: Rename | None, outgoing: Outgoing, topic: str) -> str:
    """Return the name of the topic's target, by the config's rule or a RegexRouter. Raises ConfigError without one."""
    if rule is not None:
        return name_target_topic(rule, topic)
    if not routes_by_topic(outgoing.transforms):
        raise ConfigError("to.topic is empty, and no RegexRouter names the target: name the topic to write to")
    return name_target_topic(Template(apply_routers(outgoing.transforms, topic)), topic)


def read_rename(to: ArchivedTargetConfig | ForeignTargetConfig) -> Rename | None:
    """Return the rule for the targets' names, or None if there is none. Raises ConfigError if there are several."""
    if (to.rename_regex is None) != (to.rename_replacement is None):
        raise ConfigError("to.rename_regex and to.rename_replacement are a pair: set both, or none")
    rules: list[Rename] = []
    # The form of an archived topic always has the field, but it is empty if something else names the target.
    if to.topic or (to.topic is not None and isinstance(to, ForeignTargetConfig)):
        rules.append(Template(to.topic))
    if to.rename_regex is not None:
        rules.append(Regex(to.rename_regex, to.rename_replacement or ""))
    if to.topic_map:
        rules.append(TopicMap(to.topic_map))
    if len(rules) > 1:
        raise ConfigError("to.topic, to.rename_regex and to.topic_map each name the target: keep one")
    return rules[0] if rules else None


def _find_file(key: str, name: str) -> Path:
    """Return the file named by field `key`: any path if a person started the run here, or else one in a safe folder."""
    if takes_paths():
        return Path(name)
    return find_run_file(name, key, os.environ)
