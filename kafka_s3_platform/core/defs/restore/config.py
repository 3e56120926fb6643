"""The options of a restore. Each field declares one, for a run's config, for the command line and for the request.

The groups of options are `what` (the records), `to` (the target), `values` (the changes on the way) and `how` (the
run).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field
from pydantic.fields import FieldInfo

from kafka_s3_platform.core.config.settings import THAW_TIERS
from kafka_s3_platform.core.defs.restore.values import (
    read_first_topics,
    read_key_prefixes,
    read_numbers,
    read_offsets,
    read_record_keys,
)
from kafka_s3_platform.core.errors import ConfigError


@dataclass(frozen=True)
class RestoreOption:
    """A field's option on the command line, and the place of its value in the request.

    `name` is the option's name, by default `--` and the field's name without its group. `help` is the option's text, by
    default the field's description. An option with a `second` field takes two values.

    `into` is the place in the `RestoreRequest`, by default the field's name. `read` makes the request's value from the
    field's path and value. `choices` are all permitted values of a text.
    """

    name: str | None = None
    metavar: str | None = None
    help: str | None = None
    second: str | None = None
    is_file: bool = False
    choices: tuple[str, ...] = ()
    into: str | None = None
    read: Callable[[str, Any], Any] | None = None

    def request_value(self, path: str, value: Any) -> Any:
        """Return the value of field `path` for the request. Raises ConfigError if it cannot be used."""
        if self.choices and value is not None and value not in self.choices:
            raise ConfigError(f"{path} {value!r} is none of {', '.join(self.choices)}")
        return self.read(path, value) if self.read else value


def list_fields(config: type[dg.Config]) -> dict[str, FieldInfo]:
    """Return the fields of a config and of the groups in it by their paths, such as `to.topic`, but no groups."""
    fields: dict[str, FieldInfo] = {}
    for name, field in config.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, dg.Config):
            fields |= {f"{name}.{path}": inner for path, inner in list_fields(group).items()}
        else:
            fields[name] = field
    return fields


def find_options(config: type[dg.Config]) -> dict[str, RestoreOption]:
    """Return the options of fields, by the field's path. Fields without an option are left out."""
    return {
        path: entry
        for path, field in list_fields(config).items()
        for entry in field.metadata
        if isinstance(entry, RestoreOption)
    }


DELIVERIES: tuple[Literal["exactly_once", "at_least_once"], ...] = ("exactly_once", "at_least_once")
BEHAVIOURS: tuple[Literal["fail", "ignore", "log"], ...] = ("fail", "ignore", "log")

OFFSETS = "N applies to every kafka partition, P:N only to kafka partition P; P:N may be repeated."
ANY_KEY = "May be repeated; one match of --key, --key-prefix or --key-regex is enough."


class WhatConfig(dg.Config):
    """The selection of the records to restore. A record must pass all the options set."""

    hours: Annotated[
        list[str],
        RestoreOption(
            name="--hour",
            metavar="HOUR",
            help="Restore records with a timestamp in this hour. Name its start, such as 2013-01-31T15:00; may be "
            "repeated.",
        ),
    ] = Field(
        default=[],
        description="Restore records with a timestamp in one of these hours, or on one of `what.days`. Name the start "
        "of each hour, as the hourly chunks do (2013-01-31-15:00) or in ISO 8601.",
    )
    days: Annotated[
        list[str],
        RestoreOption(
            name="--day",
            metavar="DAY",
            help="Restore records with a timestamp on this day, such as 2013-01-31; may be repeated.",
        ),
    ] = Field(
        default=[],
        description="Restore records with a timestamp on one of these days, such as 2013-01-31, or in one of "
        "`what.hours`. Days are in the connector's timezone.",
    )
    from_time: Annotated[str | None, RestoreOption(name="--from", metavar="TIME")] = Field(
        default=None,
        description="Restore records with this timestamp or a later one. ISO 8601; without a UTC offset, in the "
        "connector's timezone.",
    )
    to_time: Annotated[str | None, RestoreOption(name="--to", metavar="TIME")] = Field(
        default=None, description="Restore records with a timestamp before this one. Same format as `what.from_time`."
    )
    from_offset: Annotated[
        Mapping[str, int], RestoreOption(metavar="N", help=f"Start at source offset N. {OFFSETS}", read=read_offsets)
    ] = Field(
        default_factory=dict,
        description="First source offset to restore, by kafka partition. The key `all` applies to every kafka "
        "partition.",
    )
    to_offset: Annotated[
        Mapping[str, int], RestoreOption(metavar="N", help=f"Stop before source offset N. {OFFSETS}", read=read_offsets)
    ] = Field(
        default_factory=dict,
        description="Source offset to stop before, by kafka partition. The key `all` applies to every kafka partition.",
    )
    topics_regex: Annotated[
        str | None,
        RestoreOption(
            name="--topics",
            metavar="REGEX",
            help="Restore all topics of the connector whose whole name this Java regular expression matches. "
            "--to-topic copy_of_{topic}, --rename or --topic-map name their targets; {topic} alone keeps the names.",
        ),
    ] = Field(
        default=None,
        description="Restore those of the picked topics whose whole name this Java regular expression matches. A run "
        "that goes on with a restore keeps the topics that it began with.",
    )
    connectors: list[str] = Field(
        default_factory=list,
        description="Restore topics of these connectors too: those that `what.topics_regex` matches.",
    )
    everything: bool = Field(
        default=False,
        description="Restore every archived record, also those with timestamps before or after all hours.",
    )
    kafka_partitions: Annotated[list[int], RestoreOption(metavar="0,1,...", read=read_numbers)] = Field(
        default_factory=list, description="Restore only these kafka partitions of the source. Default: all."
    )
    record_keys: Annotated[
        list[str],
        RestoreOption(
            name="--key",
            metavar="KEY",
            help=f"Restore records with this key: UTF-8 text, or bytes as in hex:ff00. {ANY_KEY}",
            into="records.keys",
            read=read_record_keys,
        ),
    ] = Field(
        default_factory=list,
        description="Restore records with one of these keys: UTF-8 text, or bytes as in `hex:ff00`. A record needs "
        "to match only one of `what.record_keys`, `what.key_prefixes` and `what.key_regex`.",
    )
    key_prefixes: Annotated[
        list[str],
        RestoreOption(
            name="--key-prefix",
            metavar="TEXT",
            help=f"Restore records whose key starts with this text, or with bytes as in hex:ff00. {ANY_KEY}",
            into="records.key_prefixes",
            read=read_key_prefixes,
        ),
    ] = Field(
        default_factory=list,
        description="Restore records whose key starts with one of these texts, or bytes as in `hex:ff00`.",
    )
    key_regex: Annotated[str | None, RestoreOption(metavar="REGEX", into="records.key_regex")] = Field(
        default=None,
        description="Restore records whose key, as UTF-8 text, this Python regular expression matches as a whole.",
    )
    sql: Annotated[str | None, RestoreOption(metavar="CONDITION", into="records.sql")] = Field(
        default=None,
        description="Restore records for which this SQL condition is true. It is DuckDB's SQL over the record's "
        "columns, such as `text(value)->>'$.site' = 'eu' AND \"offset\" > 5`. The functions `text(blob)` and "
        "`header(headers, 'name')` help.",
    )
    predicate: Annotated[str | None, RestoreOption(metavar="NAME", into="records.predicate")] = Field(
        default=None,
        description="Restore records that this Python function selects. Give its dotted name; it must be allowed. It "
        "takes a pyarrow.RecordBatch and returns a boolean array.",
    )
    latest_per_key: Annotated[bool, RestoreOption(into="records.latest_per_key")] = Field(
        default=False,
        description="Of the records that all other options select, restore only the last one of each key within a "
        "kafka partition of the source, as compaction would. Records without a key are left out. Reads everything "
        "twice.",
    )

    @property
    def has_times(self) -> bool:
        """True if times, hours or days select records."""
        return bool(self.from_time or self.to_time or self.hours or self.days)


class ForeignWhatConfig(WhatConfig):
    """The selection of the records to restore from a source connector's objects."""

    topics: list[str] = Field(
        default_factory=list,
        description="Restore only these topics. Default: the topics of the connector's file, else every topic found.",
    )
    after: Annotated[
        str | None,
        RestoreOption(
            metavar="ID",
            help="Source connectors only: skip everything that was sent by restore ID, which must be finished, and by "
            "the restores before it in its own chain of --after.",
        ),
    ] = Field(
        default=None,
        description="Skip everything that was sent by this restore, and by the restores before it in its own chain "
        "of `what.after`. Give the ID of a finished restore of this connector.",
    )


class TargetConfig(dg.Config):
    """The options of the target besides its name."""

    create_topic: Annotated[bool, RestoreOption()] = Field(
        default=False,
        description="Create the target topic if it does not exist, with as many kafka partitions as the source topic.",
    )
    kafka_partitions: Annotated[
        int | None, RestoreOption(name="--target-kafka-partitions", metavar="N", into="target_kafka_partitions")
    ] = Field(
        default=None,
        ge=1,
        description="With `to.create_topic`: number of kafka partitions of the new topic. Default: as many as the "
        "source topic has.",
    )
    replication_factor: Annotated[int | None, RestoreOption(metavar="N")] = Field(
        default=None,
        ge=1,
        description="With `to.create_topic`: replication factor of the new topic. Default: the brokers' default.",
    )
    acls: Annotated[bool, RestoreOption(name="--restore-acls", into="restore_acls")] = Field(
        default=False,
        description="Give the target topic the ACLs that were archived with the source topic, under the target's own "
        "name.",
    )
    worker: Annotated[
        str | None,
        RestoreOption(
            name="--target-worker",
            metavar="FILE",
            is_file=True,
            help="The worker.properties file of the target's cluster. Default: the connector's own cluster.",
        ),
    ] = Field(
        default=None,
        description="Cluster of the target: the name of a worker.properties file in the folder `restore` of the "
        "connector files. Default: the connector's own cluster.",
    )
    partitioning: Annotated[str, RestoreOption(metavar="HOW", into="outgoing.partitioning")] = Field(
        default="source",
        description="How to choose the kafka partition of the target. `source`: the same number as in the source. "
        "`murmur2`: by the key, as Java's producer does. `crc32`: by the key, as librdkafka does. Or the dotted name "
        "of your own allowed class.",
    )
    allow_source_topic: Annotated[bool, RestoreOption()] = Field(
        default=False,
        description="Allow the archived topic itself as the target. Its archive will hold the records twice.",
    )
    rename_regex: Annotated[
        str | None,
        RestoreOption(
            name="--rename",
            metavar="REGEX REPLACEMENT",
            second="to.rename_replacement",
            help="Name the target topic with Java's rules for RegexRouter: where REGEX matches the whole name of the "
            "source topic, REPLACEMENT is the target's name. Instead of --to-topic.",
        ),
    ] = Field(
        default=None,
        description="Regular expression for the target's name, by Java's rules for RegexRouter: where it matches the "
        "whole name of the source topic, `to.rename_replacement` is the target's name.",
    )
    rename_replacement: str | None = Field(
        default=None,
        description="Name of the target where `to.rename_regex` matches. `$1` and `${name}` are groups of the "
        "expression, `$0` is the whole match.",
    )
    topic_map: Annotated[
        Mapping[str, str],
        RestoreOption(
            metavar="T=T2", help="Write the records of topic T to topic T2. Instead of --to-topic; may be repeated."
        ),
    ] = Field(default_factory=dict, description="Target topic of each source topic.")


class ArchivedTargetConfig(TargetConfig):
    """The target of the records of archived topics."""

    topic: str = Field(
        description="Topic to write to. `{topic}` is replaced by the name of the source topic, as in "
        "`copy_of_{topic}`. Leave it empty only if `to.rename_regex`, `to.topic_map` or a RegexRouter of `values` "
        "names the target."
    )


class ForeignTargetConfig(TargetConfig):
    """The target of the records of a source connector, which may be several topics."""

    topic: Annotated[
        str | None,
        RestoreOption(
            name="--to-topic",
            metavar="T2",
            help="Write to this topic. {topic} is replaced by the name of the source topic, as in copy_of_{topic}.",
        ),
    ] = Field(
        default=None,
        description="Topic to write to. `{topic}` is replaced by the name of the source topic, as in "
        "`copy_of_{topic}`. Default: the target is named by `to.rename_regex` and `to.rename_replacement`, "
        "by `to.topic_map`, by a RegexRouter of `values.outgoing`, or by the connector's file; without any, topics "
        "keep their names.",
    )


class ValuesConfig(dg.Config):
    """The options that change records on their way. By default, records are sent as they were archived."""

    provenance_headers: Annotated[bool, RestoreOption(into="outgoing.provenance_headers")] = Field(
        default=False,
        description="Add the source's offset, kafka partition and timestamp to each record, as headers "
        "kafka_s3.source.*.",
    )
    outgoing: Mapping[str, str] = Field(
        default_factory=dict,
        description="Change the records on their way, by Connect's keys `transforms.*`, `predicates.*`, "
        "`key.converter` and `value.converter`. Everyone who can see the run sees these values: put secrets, and the "
        "keys of the target's registry, into `values.outgoing_file`.",
    )
    outgoing_file: Annotated[
        str | None,
        RestoreOption(
            name="--outgoing",
            metavar="FILE",
            is_file=True,
            help="Change the records as this properties file says. It holds Connect's keys transforms.*, predicates.*, "
            "key.converter, value.converter and schema.registry.*.",
        ),
    ] = Field(
        default=None,
        description="Name of a properties file in the folder `restore` of the connector files, with keys as in "
        "`values.outgoing` and the target's `schema.registry.*`. Keys of `values.outgoing` override it, but cannot set "
        "anything of a transform or predicate that the file names.",
    )
    map_schema_ids: Annotated[bool, RestoreOption(into="outgoing.map_schema_ids")] = Field(
        default=False,
        description="Register the archived schemas in the target's registry, and write its schema IDs into keys and "
        "values.",
    )


class HowConfig(dg.Config):
    """The options of the run itself."""

    dry_run: Annotated[bool, RestoreOption()] = Field(
        default=False, description="Plan and check, report what would be restored, and write nothing."
    )
    exact: Annotated[bool, RestoreOption()] = Field(
        default=False,
        description="With `how.dry_run`: read everything to count exactly how many records the filters select.",
    )
    restore_id: Annotated[str | None, RestoreOption(metavar="ID")] = Field(
        default=None,
        description="ID of this restore. A run with the ID of an earlier restore continues that restore. Default: "
        "the ID of the run, or of the run that this one re-executes.",
    )
    first_topics: Annotated[
        list[str],
        RestoreOption(
            name="--first",
            metavar="T",
            help="Send topic T before all topics that are not named so; may be repeated.",
            read=read_first_topics,
        ),
    ] = Field(
        default_factory=list,
        description="Send these topics before all others, in this order. Default: the largest kafka partitions first.",
    )
    delivery: Annotated[str, RestoreOption(choices=DELIVERIES)] = Field(
        default="exactly_once",
        description="`exactly_once` sends in transactions. `at_least_once` sends without them, which is faster, but "
        "after a crash readers may have seen some records twice.",
    )
    behavior_on_error: Annotated[str | None, RestoreOption(choices=BEHAVIOURS)] = Field(
        default=None,
        description="On a bad object or record: `fail` ends the restore, `ignore` leaves it out, `log` leaves it out "
        "and logs it. Default: what the file of a source connector says, else `fail`.",
    )
    records_per_second: Annotated[float | None, RestoreOption(metavar="R")] = Field(
        default=None, gt=0, description="Send at most this many records per second, in all."
    )
    bytes_per_second: Annotated[float | None, RestoreOption(metavar="R")] = Field(
        default=None, gt=0, description="Send at most this many bytes per second, in all."
    )
    thaw_days: Annotated[int | None, RestoreOption(metavar="N", into="thaw.days")] = Field(
        default=None,
        ge=1,
        description="Ask S3 to copy objects out of cold storage, and to keep the copies for this many days. Default: "
        "what the file of a source connector says, else ask for none and report the objects.",
    )
    thaw_tier: Annotated[str | None, RestoreOption(choices=THAW_TIERS, into="thaw.tier")] = Field(
        default=None,
        description="Retrieval tier of S3 for these copies: `Standard`, `Bulk` or `Expedited`. It decides how soon "
        "they are there, and at which price. Default: what the file of a source connector says, else `Standard`.",
    )
    thaw_seconds: Annotated[float, RestoreOption(metavar="S", into="thaw.wait_seconds")] = Field(
        default=0.0,
        ge=0,
        le=2_592_000,  # 30 days; the slowest tier takes two
        description="Wait up to this many seconds for these copies, 30 days at most. Default: 0. If some are missing "
        "then, the run ends: run it again later with the same restore ID.",
    )
    allow_unsendable_timestamps: Annotated[
        bool,
        RestoreOption(
            help="Allow records with timestamp 0, which cannot be sent: their timestamp becomes the time of sending."
        ),
    ] = Field(
        default=False,
        description="Allow records with a timestamp that the client cannot send. Their timestamp becomes the time of "
        "sending.",
    )


class AnyRestoreConfig(dg.Config):
    """The common part of the configs of all restores."""

    what: WhatConfig
    to: TargetConfig
    values: ValuesConfig = Field(
        default_factory=ValuesConfig,
        description="What becomes of the records on their way. By default, they are sent as they were archived.",
    )
    how: HowConfig = Field(
        default_factory=HowConfig, description="How it is done: as a dry run, under which id, how fast, how strictly."
    )


class RestoreConfig(AnyRestoreConfig):
    """The config of a restore of the archived topics the run picked."""

    what: WhatConfig = Field(
        default_factory=WhatConfig,
        description="Which records: name hours, days, times or offsets, or everything. Keys and conditions choose "
        "among these. A record must pass all that is set.",
    )
    to: ArchivedTargetConfig = Field(description="Where to: the topic, and the cluster if it is another one.")


class ForeignRestoreConfig(AnyRestoreConfig):
    """The config of a restore of a source connector's objects."""

    what: ForeignWhatConfig = Field(
        default_factory=ForeignWhatConfig,
        description="Which records: name topics, hours, days, times or offsets, or everything. Keys and conditions "
        "choose among these. A record must pass all that is set.",
    )
    to: ForeignTargetConfig = Field(
        default_factory=ForeignTargetConfig,
        description="Where to: the topics, and the cluster if it is another one. By default, topics keep their names, "
        "unless a RegexRouter in the connector's file names others.",
    )


FORM = frozenset({"what.hours", "what.days", "what.everything", "to.create_topic", "how.dry_run"})
"""Optional fields that the form shows from the start, with their defaults. All others can be added to it."""
