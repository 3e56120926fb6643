"""Resolves a connector file and the worker's settings into one `ConnectorConfig`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from kafka_s3_platform.config.dialects import CONNECT_SOURCE, read_as
from kafka_s3_platform.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.all import CONNECTOR_KEYS
from kafka_s3_platform.config.keys.archive import read_archive
from kafka_s3_platform.config.keys.general import CLASS, TASKS_MAX, read_topics
from kafka_s3_platform.config.keys.kafka import read_kafka
from kafka_s3_platform.config.keys.layout import read_layout
from kafka_s3_platform.config.keys.names import EXTENSION
from kafka_s3_platform.config.keys.records import read_records
from kafka_s3_platform.config.keys.sheet import KeyClass, KeyFinding, Sheet, substitute_variables
from kafka_s3_platform.config.keys.source import needs_topic_key, read_source
from kafka_s3_platform.config.keys.store import read_store
from kafka_s3_platform.config.lenses import EXPANDED, KCQL, expand_lenses
from kafka_s3_platform.config.parse import ConnectorFile
from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.config.worker import Worker


@dataclass(frozen=True)
class Resolution:
    """The result of a connector file. `config` is None if any key is refused."""

    name: str
    findings: tuple[KeyFinding, ...]
    config: ConnectorConfig | None


def resolve_connector(file: ConnectorFile, worker: Worker, env: Mapping[str, str]) -> Resolution:
    """Judge every key of a connector file. Refused keys are findings, not errors."""
    words = expand_lenses(file.entries, env)
    sheet = Sheet(CONNECTOR_KEYS, words.entries, env)
    for reason in words.refusals:
        sheet.refuse(KCQL, reason)
    name = _read_name(sheet, file, env)
    dialect = read_as(sheet.value(CLASS), file.entries)
    if not words.refusals:
        sheet.require("s3.bucket.name", "name the bucket")
    topics, regex = read_topics(sheet, dialect)
    tasks_max = sheet.value(TASKS_MAX)
    kafka = read_kafka(sheet, worker)
    store = read_store(sheet)
    layout = read_layout(sheet, dialect)
    source = read_source(sheet, dialect, layout, worker)
    records = read_records(sheet, worker, layout, dialect, name)
    _require_one_topic(sheet, layout, topics, regex)
    if source is not None and needs_topic_key(sheet, layout) and len(topics) != 1:
        sheet.refuse("topics", "no key tells its topic: name the one that all objects are of")
    folders = {"topics.dir": layout.topics_dir, "the folder of merged days": layout.daily_dir}
    archive = read_archive(sheet, ZoneInfo(layout.timezone), folders)
    findings = tuple(sheet.findings())
    if any(finding.key_class is KeyClass.REFUSED for finding in findings):
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
    if source is None and layout.format != NATIVE_FORMAT:
        found = resolve_connector(_make_source_file(file, words.entries, layout), worker, env)
        refused = tuple(f"{f.key}: {f.effect}" for f in found.findings if f.key_class is KeyClass.REFUSED)
        config = config.model_copy(update={"reader": found.config, "unreadable": refused})
    return Resolution(name, findings, config)


def _make_source_file(file: ConnectorFile, entries: Mapping[str, SecretStr], layout: LayoutSettings) -> ConnectorFile:
    """Make a source's file of a sink's, of which KCQL is replaced in `entries`.

    The sink's transforms are left out: objects hold what became of the records.
    """
    done = ("transforms", "predicates", *EXPANDED)
    kept = {name: value for name, value in entries.items() if not name.startswith(done)}
    if layout.key_layout == "template" and layout.extension is None:
        # the sink takes the format's; a source's template is the whole name
        extension = find_format(layout.format).extension(layout.codec, layout.bytes_extension)
        kept[EXTENSION.name] = SecretStr(extension)
    return replace(file, entries={**kept, CLASS.name: SecretStr(CONNECT_SOURCE.class_name)})


def _require_one_topic(sheet: Sheet, layout: LayoutSettings, topics: tuple[str, ...], regex: str | None) -> None:
    if layout.key_layout == "zooz" and (regex or len(topics) > 1):
        sheet.refuse(
            "topics.regex" if regex else "topics",
            "keys of the layout zooz name no topic: write a file with a folder of its own for each topic",
        )


def _read_name(sheet: Sheet, file: ConnectorFile, env: Mapping[str, str]) -> str:
    try:
        return values.parse_connector_name(substitute_variables(file.name, env).strip())
    except ValueError as err:
        sheet.refuse("name", str(err))
        return file.name
