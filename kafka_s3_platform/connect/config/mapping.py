"""Resolves a connector file and the worker's settings into one `ConnectorConfig`, using the table of all keys.

The check report and `docs/connector-files.md` are made from the same table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from kafka_s3_platform.connect.config.dialects import Dialect, read_as
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.archive import ARCHIVE_KEYS, LIMIT_KEYS, read_archive
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile, KeyFinding
from kafka_s3_platform.connect.config.keys.general import CLASS, GENERAL_KEYS, TASKS_MAX, read_kafka, read_topics
from kafka_s3_platform.connect.config.keys.layout import LAYOUT_KEYS, SEGMENT_BYTES, read_layout
from kafka_s3_platform.connect.config.keys.records import RECORD_KEYS, read_records
from kafka_s3_platform.connect.config.keys.source import (
    OF_HEADERS,
    SOURCE_KEYS,
    ignore_unused_keys,
    needs_topic_key,
    read_source,
)
from kafka_s3_platform.connect.config.keys.store import STORE_KEYS, read_store
from kafka_s3_platform.connect.config.keys.table import KeyTable, Support, keys_by_field
from kafka_s3_platform.connect.config.keys.transforms import route_topic
from kafka_s3_platform.connect.config.lenses import KCQL, LENSES_KEYS, expand_lenses
from kafka_s3_platform.connect.config.worker import Worker
from kafka_s3_platform.core.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.core.config.parse import ConnectorFile
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings, RetentionSettings, routes_records
from kafka_s3_platform.core.java.regex import compile_java_regex

OWN_KEYS = (*ARCHIVE_KEYS, SEGMENT_BYTES, *LIMIT_KEYS)
ALL_KEYS = (*GENERAL_KEYS, *RECORD_KEYS, *LAYOUT_KEYS, *STORE_KEYS, *SOURCE_KEYS, *LENSES_KEYS, *OWN_KEYS)
CONNECTOR_KEYS = KeyTable(ALL_KEYS)


@dataclass(frozen=True)
class Resolution:
    """The result of resolving a connector file. `config` is None if any key is refused."""

    name: str
    findings: tuple[KeyFinding, ...]
    config: ConnectorConfig | None


def resolve_connector(file: ConnectorFile, worker: Worker) -> Resolution:
    """Judge every key of a connector file. Refused keys are findings, not errors.

    If a sink writes a format other than the native one, its config also has the `reader` of its objects.
    """
    expansion = expand_lenses(file.entries, worker.providers)
    config_file = ConfigFile(CONNECTOR_KEYS, expansion.entries, worker.providers)
    for reason in expansion.refusals:
        config_file.refuse(KCQL, reason)
    dialect = read_as(config_file.value(CLASS), file.entries)
    if not expansion.refusals:
        config_file.require("s3.bucket.name", "name the bucket", dialect.required_there)
    resolution = _resolve(config_file, dialect, file.name, worker)
    config = resolution.config
    if config is None or config.source is not None or config.layout.format == NATIVE_FORMAT:
        return resolution
    reader = _resolve_reader(config, dialect, expansion.entries, file.name, worker)
    refused = tuple(f"{f.key}: {f.effect}" for f in reader.findings if f.support is Support.REFUSED)
    return replace(resolution, config=config.model_copy(update={"reader": reader.config, "unreadable": refused}))


def _explain_topics(config: ConnectorConfig) -> str:
    """Explain why the topics in objects' names are unknown, if a transform makes them so. Return "" otherwise."""
    for step in config.records.transforms:
        by_record = routes_records(step.type, step.predicate.type if step.predicate else None)
        if by_record or (config.topics_regex and step.type == "RegexRouter"):
            return (
                f"connector {config.name}: transforms.{step.alias} renames topics, and its file does not tell by which "
                f"topics objects are named: name them, as they are in the objects' names (--topic, what.topics)"
            )
    return ""


def _resolve_reader(
    config: ConnectorConfig, dialect: Dialect, entries: Mapping[str, SecretStr], name: str, worker: Worker
) -> Resolution:
    """Resolve the file of a sink as if it were a source's, for reading the sink's objects and nothing else.

    The sink's transforms are left out, since the objects hold their results, under the topics they chose. Keys of
    sources are left out as well, because they have no meaning in the file of a sink.
    """
    done = ("transforms", "predicates")
    source_names = {key.name for key in SOURCE_KEYS}.union(OF_HEADERS)
    entries = {n: value for n, value in entries.items() if not n.startswith(done) and n not in source_names}
    source = replace(dialect, is_source=True, has_dead_letters=False)
    resolution = _resolve(ConfigFile(CONNECTOR_KEYS, entries, worker.providers), source, name, worker)
    if resolution.config is None or resolution.config.source is None:
        return resolution
    # A source only takes the codec of lines from its file: objects of other formats name theirs.
    codec = resolution.config.layout.codec
    changes = {
        "topics": tuple(route_topic(config.records.transforms, topic) for topic in config.topics),
        "unnamed_topics": _explain_topics(config),
        "layout": _name_whole(config.layout).model_copy(update={"codec": codec}),
        "source": resolution.config.source.model_copy(update={"cluster": config.kafka.bootstrap_servers}),
    }
    return replace(resolution, config=resolution.config.model_copy(update=changes))


def _name_whole(layout: LayoutSettings) -> LayoutSettings:
    """Return the layout for a source that reads objects of this one. Its template is the whole name."""
    if layout.key_layout != "template" or layout.extension is not None:
        return layout
    extension = find_format(layout.format).extension(layout.codec, layout.bytes_extension)
    return layout.model_copy(update={"extension": extension})


def _resolve(file: ConfigFile, dialect: Dialect, unparsed_name: str, worker: Worker) -> Resolution:
    """Read all settings of a connector file, judging each key. The result has a config if no key is refused."""
    name = _read_name(file, unparsed_name, worker)
    ignore_unused_keys(file, dialect)
    topics, regex = read_topics(file, dialect)
    tasks_max = file.value(TASKS_MAX)
    kafka = read_kafka(file, worker)
    store = read_store(file)
    layout = read_layout(file, dialect)
    source = read_source(file, dialect, layout, worker)
    records = read_records(file, worker, layout, dialect, name)
    if layout.key_layout == "zooz" and (regex or len(topics) > 1):
        reason = "keys of the layout zooz name no topic: write a file with a folder of its own for each topic"
        file.refuse("topics.regex" if regex else "topics", reason)
    if source is not None and needs_topic_key(file, layout) and len(topics) != 1:
        file.refuse("topics", "no key tells its topic: name the one that all objects are of")
    folders = {"topics.dir": layout.topics_dir, "the folder of merged days": layout.daily_dir}
    archive = read_archive(file, ZoneInfo(layout.timezone), folders)
    _judge_retention(file, archive.retention, topics, regex)
    findings = tuple(file.findings())
    if any(finding.support is Support.REFUSED for finding in findings):
        return Resolution(name, findings, None)
    config = ConnectorConfig(
        name=name,
        topics=topics,
        topics_regex=regex,
        tasks_max=tasks_max,
        kafka=kafka,
        store=store,
        layout=layout,
        records=records,
        archive=archive,
        source=source,
    )
    return Resolution(name, findings, config)


def _judge_retention(
    file: ConfigFile, retention: RetentionSettings, topics: tuple[str, ...], regex: str | None
) -> None:
    """Refuse rules and holds for topics that are not the connector's, since a misspelt hold would hold nothing."""
    pattern = compile_java_regex(regex) if regex else None
    for field, key in keys_by_field(RetentionSettings).items():
        items = getattr(retention, field)
        names = {item[0] for item in items} - {"", "*"} if isinstance(items, tuple) else set()
        strange = sorted(name for name in names if name not in topics and not (pattern and pattern.fullmatch(name)))
        if strange:
            file.refuse(
                key.name, f"{', '.join(strange)}: no topic of this connector; correct the name, or leave it out"
            )


def _read_name(file: ConfigFile, text: str, worker: Worker) -> str:
    """Return the connector's name, with variables replaced. Refuse the key `name` if the name cannot be used."""
    try:
        return values.parse_connector_name(worker.providers.replace(text).strip())
    except ValueError as err:
        file.refuse("name", str(err))
        return text
