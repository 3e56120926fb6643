"""What a run's config says of a restore, and what that asks for."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import Field

from kafka_s3_platform.config.converter_options import is_of_registry
from kafka_s3_platform.config.files import connectors_folder, file_of_runs, load_connectors, read_worker
from kafka_s3_platform.config.settings import THAW_TIERS, ConnectorConfig, KafkaSettings
from kafka_s3_platform.config.values import in_zone
from kafka_s3_platform.config.worker import cluster_of
from kafka_s3_platform.defs.topic import ArchivedTopic, Windows
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.restore.foreign import ForeignRequest
from kafka_s3_platform.restore.outgoing_keys import outgoing, read_outgoing_file, step_of
from kafka_s3_platform.restore.renaming import Regex, Rename, Template, TopicMap, routed_topic, routes, target_topic
from kafka_s3_platform.restore.request import Outgoing, RecordFilter, RestoreRequest, Thaw

logger = logging.getLogger(__name__)

L = TypeVar("L")

HEX = "hex:"
DELIVERIES: tuple[Literal["exactly_once", "at_least_once"], ...] = ("exactly_once", "at_least_once")
BEHAVIOURS: tuple[Literal["fail", "ignore", "log"], ...] = ("fail", "ignore", "log")

Moments = tuple[datetime | None, datetime | None]


_takes_paths: ContextVar[bool] = ContextVar("takes_paths", default=False)


@contextmanager
def taking_paths() -> Iterator[None]:
    """Runs in this block, of a person at the machine, may name any file. Others name those of one folder."""
    token = _takes_paths.set(True)
    try:
        yield
    finally:
        _takes_paths.reset(token)


def _file(key: str, name: str) -> Path:
    return Path(name) if _takes_paths.get() else file_of_runs(name, key, os.environ)


class RestoreConfig(dg.Config):
    """What is restored, and where to. Times, or `everything`, win over the hours picked."""

    to_topic: str | None = Field(
        default=None,
        description="The topic to write to; `{topic}` in it stands for the source's name, as in `copy_of_{topic}`. "
        "None: `rename_regex` and `rename_replacement`, `topic_map`, or a RegexRouter of `outgoing` name it.",
    )
    rename_regex: str | None = Field(
        default=None, description="Java's, as RegexRouter has it: what the whole name of the source has to match."
    )
    rename_replacement: str | None = Field(
        default=None,
        description="The name of the target then; `$1` and `${name}` are groups of the regex, `$0` is all.",
    )
    topic_map: Mapping[str, str] = Field(default_factory=dict, description="The target of each source topic.")
    target_worker: str | None = Field(
        default=None,
        description="A worker.properties of the target's cluster: the name of a properties file in the folder "
        "`restore` of the connector files. None: the connector's own cluster.",
    )
    create_topic: bool = Field(
        default=False, description="Create the topic, with as many kafka partitions as the source has, if it is absent."
    )
    target_kafka_partitions: int | None = Field(
        default=None, ge=1, description="Kafka partitions of a topic that is created, if not as many as the source has."
    )
    replication_factor: int | None = Field(
        default=None, ge=1, description="Replication factor of a topic that is created. None: the brokers' default."
    )
    restore_acls: bool = Field(
        default=False, description="Give the target the ACLs that were archived with the topic, under its own name."
    )
    dry_run: bool = Field(default=False, description="Plan and check, and say what would be done; write nothing.")
    exact: bool = Field(
        default=False, description="On a dry run, read everything to count exactly what filters let pass."
    )
    everything: bool = Field(
        default=False,
        description="Restore all that is archived, timestamps before and after any hour included. Dagster still wants "
        "an hour to be picked: the newest is as good as any.",
    )
    from_time: str | None = Field(
        default=None,
        description="Restore records with this timestamp or a later one: ISO 8601; without an offset, in the "
        "connector's timezone.",
    )
    to_time: str | None = Field(default=None, description="Restore records with an earlier timestamp than this.")
    hours: list[str] = Field(
        default_factory=list,
        description="Any hours, by their start as the hourly chunks name them (2013-01-31-15:00) or ISO 8601: records "
        "of one of them, or of one of `days`.",
    )
    days: list[str] = Field(
        default_factory=list, description="Any days, such as 2013-01-31, in the connector's timezone."
    )
    from_offset: Mapping[str, int] = Field(
        default_factory=dict, description="First offset to restore, by kafka partition; `all` stands for every one."
    )
    to_offset: Mapping[str, int] = Field(
        default_factory=dict, description="Offset to stop before, by kafka partition; `all` stands for every one."
    )
    kafka_partitions: list[int] = Field(default_factory=list, description="Only these kafka partitions; none: all.")
    restore_id: str | None = Field(
        default=None,
        description="Run again under the same id, a restore goes on where it ended. Default: the id of the run, or of "
        "the run that this one re-executes.",
    )
    allow_source_topic: bool = Field(
        default=False, description="Allow the archived topic itself as target. Its archive will hold the records twice."
    )
    allow_unsendable_timestamps: bool = Field(
        default=False, description="Allow that timestamps which the client cannot send become the time of sending."
    )
    record_keys: list[str] = Field(
        default_factory=list,
        description="Only records with one of these keys, as UTF-8; `hex:ff00` gives the bytes of one that is not. "
        "Keys, prefixes and regex choose together: a record has to satisfy any of them.",
    )
    key_prefixes: list[str] = Field(
        default_factory=list, description="Only records whose key begins so, written as `record_keys`."
    )
    key_regex: str | None = Field(
        default=None, description="Only records whose key, as UTF-8, this Python regular expression matches as a whole."
    )
    sql: str | None = Field(
        default=None,
        description="Only records that this condition is true for: DuckDB's SQL over the record's columns, such as "
        "`text(value)->>'$.site' = 'eu' AND \"offset\" > 5`. `text(blob)` and `header(headers, 'name')` help.",
    )
    predicate: str | None = Field(
        default=None,
        description="Only records that an allowed Python function chooses: its dotted name; from a pyarrow.RecordBatch "
        "it makes a boolean array.",
    )
    latest_per_key: bool = Field(
        default=False,
        description="Of each key only the last record that passes everything else, as compaction would leave it; "
        "records without a key are left out. Reads everything twice.",
    )
    partitioning: str = Field(
        default="source",
        description="`source`: records keep their kafka partition's number; `murmur2` and `crc32`: keys choose it, as "
        "Java's producer and librdkafka do; else the dotted name of your own allowed class.",
    )
    provenance_headers: bool = Field(
        default=False,
        description="Add the source's offset, kafka partition and timestamp as headers kafka_s3.source.*.",
    )
    outgoing: Mapping[str, str] = Field(
        default_factory=dict,
        description="Connect's keys for what becomes of records: `transforms.*`, `predicates.*`, `key.converter` and "
        "`value.converter`. Everyone who sees the run sees them: secrets belong into `outgoing_file`, and so does what "
        "says where the target's registry is.",
    )
    outgoing_file: str | None = Field(
        default=None,
        description="The name of a properties file of such keys, and the target's `schema.registry.*`, in the folder "
        "`restore` of the connector files. `outgoing` goes before, and sets nothing of a transform or predicate there.",
    )
    map_schema_ids: bool = Field(
        default=False,
        description="Register the archived schemas in the target's registry, and write its ids into the payloads.",
    )
    delivery: str = Field(
        default="exactly_once",
        description="`exactly_once`, or `at_least_once`, which is faster: after a crash, readers may have seen some "
        "records twice.",
    )
    behavior_on_error: str | None = Field(
        default=None,
        description="What to do on a bad object or record: `fail`, `ignore`, or `log` and go on. None: `fail`, or what "
        "the file of a source connector says.",
    )
    thaw_days: int | None = Field(
        default=None,
        gt=0,
        description="Ask for objects in cold storage, for so many days. None: as the file of a source connector says; "
        "else they are reported.",
    )
    thaw_tier: str | None = Field(
        default=None,
        description="How fast they come, and for how much: `Standard`, `Bulk` or `Expedited`. None: as the file says, "
        "else `Standard`.",
    )
    thaw_seconds: float = Field(
        default=0.0,
        ge=0,
        description="How long to wait for them. A run that ends before they are there is run again under its restore "
        "id.",
    )
    records_per_second: float | None = Field(default=None, gt=0, description="The most records sent in a second.")
    bytes_per_second: float | None = Field(default=None, gt=0, description="The most bytes sent in a second.")


class ForeignRestoreConfig(RestoreConfig):
    """What is restored of a source connector's objects, and where to. Without times and hours: everything.

    Where nothing names the target, a RegexRouter of the connector's file does, else topics keep their names.
    """

    topics: list[str] = Field(
        default_factory=list, description="Only these topics; none: those of the connector's file, or all that exist."
    )
    after: str | None = Field(
        default=None,
        description="The id of a finished restore of this connector: what it has sent is left out, and what those have "
        "that it came after itself.",
    )


def new_request(
    topic: ArchivedTopic, config: RestoreConfig, restore_id: str, run_id: str, window: Moments
) -> RestoreRequest:
    """The request that a config makes, of a run that picked the hours of `window`.

    Raises:
        ConfigError: something of it cannot be used; the message names the field.
    """
    sent = _outgoing(config)
    return _request(topic, config, sent, _to_topic(config, sent, topic.topic), (restore_id, run_id), window)


def foreign_request(
    topics: ArchivedTopic, config: ForeignRestoreConfig, restore_id: str, run_id: str, window: Moments
) -> ForeignRequest:
    """The request that a config makes of a source connector; `topics` stands for all of its topics.

    Raises:
        ConfigError: something of it cannot be used; the message names the field.
    """
    request = _request(topics, config, _outgoing(config), "", (restore_id, run_id), window)
    return ForeignRequest(request, tuple(config.topics), _rename(config), config.after)


def _request(
    topic: ArchivedTopic, config: RestoreConfig, sent: Outgoing, to_topic: str, ids: tuple[str, str], window: Moments
) -> RestoreRequest:
    (restore_id, run_id), (from_time, to_time) = ids, window
    return RestoreRequest(
        config=topic.config,
        topic=topic.topic,
        to_topic=to_topic,
        restore_id=restore_id,
        run_id=run_id,
        target=_target(config.target_worker),
        from_time=from_time,
        to_time=to_time,
        windows=tuple(_picked(topic, config)),
        from_offset=_offsets("from_offset", config.from_offset),
        to_offset=_offsets("to_offset", config.to_offset),
        kafka_partitions=tuple(config.kafka_partitions) or None,
        create_topic=config.create_topic,
        target_kafka_partitions=config.target_kafka_partitions,
        replication_factor=config.replication_factor,
        restore_acls=config.restore_acls,
        dry_run=config.dry_run,
        exact=config.exact,
        allow_source_topic=config.allow_source_topic,
        allow_unsendable_timestamps=config.allow_unsendable_timestamps,
        records_per_second=config.records_per_second,
        bytes_per_second=config.bytes_per_second,
        delivery=_one_of("delivery", config.delivery, DELIVERIES),
        records=_records(config),
        outgoing=sent,
        behavior_on_error=_one_of_or_none("behavior_on_error", config.behavior_on_error, BEHAVIOURS),
        thaw=Thaw(config.thaw_days, _one_of_or_none("thaw_tier", config.thaw_tier, THAW_TIERS), config.thaw_seconds),
        connectors=_known_connectors(connectors_folder(os.environ)),
    )


def asked_window(config: RestoreConfig, zone: ZoneInfo) -> Moments | None:
    """The window that the config gives, (None, None) for all; None where the hours picked are the window."""
    if config.from_time or config.to_time:
        return _time("from_time", config.from_time, zone), _time("to_time", config.to_time, zone)
    return (None, None) if config.everything or config.hours or config.days else None


def _known_connectors(folder: Path) -> tuple[ConnectorConfig, ...]:
    """Those whose files load: a broken one of another connector is no reason not to restore."""
    if not folder.is_dir():
        return ()
    files = load_connectors(folder, os.environ)
    for path, problem in files.broken.items():
        logger.warning("whether %s archives the target is not known: %s", path, problem)
    return files.connectors


def _picked(topic: ArchivedTopic, config: RestoreConfig) -> Iterator[tuple[datetime, datetime]]:
    """The windows of single hours and days. ConfigError where one is none of the connector's."""
    for name, windows, given in (("hours", topic.hours, config.hours), ("days", topic.days, config.days)):
        for text in given:
            key = text if windows.names(text) else _as_key(name, windows, topic, text)
            yield windows.start(key), windows.end(key)


def _as_key(name: str, windows: Windows, topic: ArchivedTopic, text: str) -> str:
    zone = ZoneInfo(topic.config.layout.timezone)
    # a partition key of Dagster's may have minutes, which no hour begins with
    moment = windows.start(text) if windows.definition.has_partition_key(text) else _moment(name, text, zone)
    key = windows.key(moment)
    if not windows.definition.has_partition_key(key):
        raise ConfigError(f"{name} {text!r} is no start of one that connector {topic.config.name} may have archived")
    if windows.start(key) != moment:
        raise ConfigError(
            f"{name} {text!r} is no start of one: it is within {key}. Take that, or from_time and to_time (--from, "
            f"--to)"
        )
    return key


def _outgoing(config: RestoreConfig) -> Outgoing:
    path = config.outgoing_file
    entries = {} if path is None else read_outgoing_file(_file("outgoing_file", path), os.environ)
    _refuse_trusted(config.outgoing, entries)
    return outgoing(
        {**entries, **config.outgoing},
        partitioning=config.partitioning,
        provenance_headers=config.provenance_headers,
        map_schema_ids=config.map_schema_ids,
    )


def _refuse_trusted(given: Mapping[str, str], entries: Mapping[str, str]) -> None:
    """Refuses what only the file may say: the secrets of its `entries` go where it sends them, and nowhere else."""
    steps = {step_of(name) for name in entries} - {None}
    for name in given:
        if name.endswith(".location"):
            raise ConfigError(f"outgoing {name}: names a file of the machine; set it in a file for outgoing_file")
    for name in given:
        if is_of_registry(name):
            raise ConfigError(
                f"outgoing {name}: which registry is asked, and how one gets in there, is not for the config of a run "
                f"to say; set it in a file for outgoing_file"
            )
        if step_of(name) in steps:
            raise ConfigError(
                f"outgoing {name}: {step_of(name)} is of outgoing_file, which may give it secrets: take it as it is, "
                f"or name one of your own"
            )


def _to_topic(config: RestoreConfig, sent: Outgoing, topic: str) -> str:
    """The one name that the config gives. ConfigError where it gives none, or several."""
    rule = _rename(config)
    if rule is not None:
        return target_topic(rule, topic)
    if not routes(sent.transforms):
        raise ConfigError("nothing names the target: set to_topic, rename_regex, topic_map, or a RegexRouter")
    return target_topic(Template(routed_topic(sent.transforms, topic)), topic)


def _rename(config: RestoreConfig) -> Rename | None:
    """The rule that the config gives, None where it gives none. ConfigError where it gives several."""
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


def _target(worker: str | None) -> KafkaSettings | None:
    if worker is None:
        return None
    found = cluster_of(read_worker(_file("target_worker", worker), os.environ))
    if not found.bootstrap_servers:
        raise ConfigError(f"{worker}: required: name the cluster's brokers in bootstrap.servers")
    return found


def _records(config: RestoreConfig) -> RecordFilter:
    return RecordFilter(
        keys=tuple(_key("record_keys", text) for text in config.record_keys),
        key_prefixes=tuple(_key("key_prefixes", text) for text in config.key_prefixes),
        key_regex=config.key_regex,
        predicate=config.predicate,
        sql=config.sql,
        latest_per_key=config.latest_per_key,
    )


def _key(name: str, text: str) -> bytes:
    if not text.startswith(HEX):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix(HEX))
    except ValueError as err:
        raise ConfigError(f"{name} {text!r}: {err}") from err


def _one_of(name: str, text: str, allowed: tuple[L, ...]) -> L:
    for each in allowed:
        if each == text:
            return each
    raise ConfigError(f"{name} {text!r} is none of {', '.join(map(str, allowed))}")


def _one_of_or_none(name: str, text: str | None, allowed: tuple[L, ...]) -> L | None:
    return None if text is None else _one_of(name, text, allowed)


def _time(name: str, text: str | None, zone: ZoneInfo) -> datetime | None:
    return None if text is None else _moment(name, text, zone)


def _moment(name: str, text: str, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as err:
        raise ConfigError(f"{name} {text!r} is no ISO 8601 time, such as 2013-01-31T15:00; correct it") from err
    try:
        return moment if moment.tzinfo else in_zone(moment, zone)
    except ValueError as err:
        raise ConfigError(f"{name} {text!r}: {err}") from err


def _offsets(name: str, given: Mapping[str, int]) -> int | dict[int, int] | None:
    if not given:
        return None
    if set(given) == {"all"}:
        return given["all"]
    if not all(p.isdecimal() for p in given):
        raise ConfigError(f"{name} {dict(given)}: name kafka partitions by number, or all of them by `all` alone")
    found = {int(p): offset for p, offset in given.items()}
    if len(found) < len(given):
        raise ConfigError(f"{name} {dict(given)}: names a kafka partition twice")
    return found
