"""The platform's own keys, all with the prefix `archive.`: how a topic is archived, and limits of reading an object.

They include the folders of documents. The limits bound the memory and time that reading takes.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.retention import RETENTION_KEYS
from kafka_s3_platform.connect.config.keys.table import Key, TypedKey, declare_key, declare_setting
from kafka_s3_platform.core.config.settings import ArchiveSettings, KafkaSettings, RetentionSettings
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits

_MEGABYTE, _GIGABYTE = 2**20, 2**30

_LIMITS: Mapping[str, TypedKey[int]] = {
    "depth": declare_key(
        "archive.read.max.depth",
        values.expect_integer(1, 300),
        "How deep values may be nested in JSON and Avro that is read back. This limit and the following ones protect"
        " against objects that use up memory or time. An object that exceeds one is a bad object, see"
        " `behavior.on.error`.",
        default=DEFAULT_LIMITS.depth,
    ),
    "record_bytes": declare_key(
        "archive.read.max.record.bytes",
        values.expect_integer(_MEGABYTE, _GIGABYTE),
        "Largest line, byte value or JSON text, in bytes.",
        default=DEFAULT_LIMITS.record_bytes,
    ),
    "block_bytes": declare_key(
        "archive.read.max.block.bytes",
        values.expect_integer(_MEGABYTE, _GIGABYTE),
        "Largest part of an object that must be in memory as a whole, in uncompressed bytes: an Avro block; a JSON"
        " array; in Parquet, a page and the dictionary of a column, or those of all columns nested in it, and some"
        " records.",
        default=DEFAULT_LIMITS.block_bytes,
    ),
    "row_group_bytes": declare_key(
        "archive.read.max.row.group.bytes",
        values.expect_integer(_MEGABYTE, 64 * _GIGABYTE),
        "Largest Parquet row group as it is stored, in bytes. Also the largest temporary file for a part of its"
        " columns, where these do not fit into memory together.",
        default=DEFAULT_LIMITS.row_group_bytes,
    ),
    "footer_bytes": declare_key(
        "archive.read.max.footer.bytes",
        values.expect_integer(65_536, _GIGABYTE),
        "Largest description that an object holds of itself, in bytes: the header in Avro, the footer in Parquet, the"
        " index in Block-GZIP.",
        default=DEFAULT_LIMITS.footer_bytes,
    ),
    "items": declare_key(
        "archive.read.max.items",
        values.expect_integer(1, 2**31),
        "How many items the arrays and maps of one Avro record may hold, if the items take no bytes or their block is"
        " large.",
        default=DEFAULT_LIMITS.items,
    ),
    "empty_records": declare_key(
        "archive.read.max.empty.records",
        values.expect_integer(1, 2**40),
        "How many records of an object may take no bytes.",
        default=DEFAULT_LIMITS.empty_records,
    ),
    "bad_records": declare_key(
        "archive.read.max.bad.records",
        values.expect_integer(1, 2**31),
        "How many single lines of an object may be left out.",
        default=DEFAULT_LIMITS.bad_records,
    ),
}
"""The key of each field of `ReadLimits`."""

BATCH_BYTES = declare_setting(
    KafkaSettings,
    "batch_bytes",
    "archive.read.max.batch.bytes",
    values.expect_integer(_MEGABYTE, 2**31 - 1),
    "Largest compressed record batch of Kafka's log, in bytes of memory once it is uncompressed. A larger one is"
    " not archived: its offsets are unresolved.",
)

LIMIT_KEYS = (*_LIMITS.values(), BATCH_BYTES)


def read_limits(file: ConfigFile) -> ReadLimits:
    """Read the limits of a connector file."""
    return ReadLimits(**{field: file.value(key) for field, key in _LIMITS.items()})


START_HOUR = declare_key(
    "archive.start.hour",
    values.expect_hour(ZoneInfo("UTC")),
    "First hour of the archive, ISO 8601, in the connector's timezone. Older records are archived too, in"
    " `archive.out.of.range.folder`, and stay there if the start [is moved back](layouts.md#out-of-range).",
    default=datetime(2020, 1, 1, tzinfo=timezone.utc),
    shown="2020-01-01T00:00",
    for_sinks=True,
)
"""The first hour of the archive. A file that does not set it starts at the default hour in its own timezone."""


_NO_INDEX_FOLDER = re.compile(r"[^A-Za-z0-9!$&'()+,./:;=@_-]")
"""Characters that delta-rs cuts off or escapes in some requests, because it takes the folder as a part of a URL."""


def _parse_index_folder(text: str) -> str:
    """Parse the folder of the index. It may have only characters that the index's library keeps in every request."""
    folder = values.parse_folder(text)
    if refused := _NO_INDEX_FOLDER.search(folder):
        raise ValueError(
            f"{text!r} holds {refused[0]!r}, and the index's library takes the folder as a part of a URL: use letters "
            f"from a to z, digits and any of !$&'()+,-./:;=@_"
        )
    return folder


_FIELD_KEYS: tuple[Key, ...] = (
    declare_setting(
        ArchiveSettings,
        "allowed_lateness_ms",
        "archive.allowed.lateness.ms",
        values.expect_integer(0),
        "How long an hour waits for late records after its end, in ms.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "index_dir",
        "archive.index.dir",
        _parse_index_folder,
        "Folder of the index, in the bucket of the archive: letters, digits and any of `!$&'()+,-./:;=@_`.",
    ),
    declare_setting(
        ArchiveSettings,
        "restore_dir",
        "archive.restore.dir",
        values.parse_folder,
        "Folder for the plans, progress and reports of restores.",
    ),
    declare_setting(
        ArchiveSettings,
        "restore_bucket",
        "archive.restore.bucket",
        values.parse_bucket,
        "Bucket of `archive.restore.dir`, for credentials that may only read the archive. It must be in the same"
        " store and region.",
        shown="the archive's",
    ),
    declare_setting(
        ArchiveSettings,
        "task_size",
        "archive.task.size",
        values.expect_integer(1),
        "How many offsets one Spark task scans, at most.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "daily_segment_bytes",
        "archive.daily.segment.bytes",
        values.expect_integer(1),
        "Target size of each object of a compacted day, in bytes.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "monthly_segment_bytes",
        "archive.monthly.segment.bytes",
        values.expect_integer(0),
        "Merge the objects of days of a past month into objects of about so many bytes, without those that have half of"
        " them or more. `0`: days stay.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "allow_gaps",
        "archive.allow.gaps",
        values.parse_boolean,
        "`true`: record offsets that retention deleted before they were archived as a gap. `false`: fail.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "clock_tolerance_ms",
        "archive.clock.tolerance.ms",
        values.expect_integer(0),
        "How far this machine's clock may differ from the store's or a broker's clock, in ms. Beyond that, nothing is"
        " archived.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "publish_offsets",
        "archive.publish.offsets",
        values.parse_boolean,
        "`true`: after each commit to the index, commit what is archived as offsets of the consumer group"
        " `connect-<name>`, for tools that show lag.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "consumer_groups",
        "archive.consumer.groups",
        values.parse_groups,
        "Names of consumer groups, or patterns that match a whole name, separated by commas. Each run archives the"
        " offsets that they have committed for the topic, so that `kafka-s3 groups` can set them on a restored topic.",
    ),
    declare_setting(
        ArchiveSettings,
        "owners",
        "archive.owners",
        values.parse_owners,
        "Who owns the connector's assets in Dagster: email addresses and `team:<name>`, separated by commas.",
    ),
    declare_setting(
        ArchiveSettings,
        "risk_retention_warn",
        "archive.risk.retention.warn",
        values.parse_share,
        "The check `at_risk` of a topic warns if no more than this share of its `retention.ms` is left to the oldest"
        " record that is not archived. `0` warns when Kafka may delete it.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "risk_retention_fail",
        "archive.risk.retention.fail",
        values.parse_share,
        "The same, for the check to fail.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "risk_age_warn_ms",
        "archive.risk.age.warn.ms",
        values.expect_integer(1),
        "The check `at_risk` warns if an hour that ended so long ago, in ms, is not complete.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "risk_age_fail_ms",
        "archive.risk.age.fail.ms",
        values.expect_integer(1),
        "The same, for the check to fail.",
        for_sinks=True,
    ),
    declare_setting(
        ArchiveSettings,
        "records_per_second",
        "archive.records.per.second",
        values.parse_rate,
        "A run reads at most this many records per second.",
        shown="unlimited",
    ),
    declare_setting(
        ArchiveSettings,
        "bytes_per_second",
        "archive.bytes.per.second",
        values.parse_rate,
        "A run reads at most this many bytes per second.",
        shown="unlimited",
    ),
    declare_setting(
        ArchiveSettings,
        "rehearsal_days",
        "archive.rehearsal.period.days",
        values.expect_integer(1, 3650),
        "Rehearse the return of this archive every night, so that each archived hour is restored and compared once in"
        " so many days. See [rehearsal](rehearsal.md).",
        shown="no rehearsal",
        for_sinks=True,
    ),
)


ARCHIVE_KEYS = (START_HOUR, *_FIELD_KEYS, *RETENTION_KEYS)


def read_archive(file: ConfigFile, zone: ZoneInfo, folders: Mapping[str, str]) -> ArchiveSettings:
    """Read how the topics of a connector are archived.

    Refuse a folder of the index or of restores if it lies in one of the objects' `folders` (key -> folder), or holds
    one.
    """
    retention = file.fill(RetentionSettings)
    settings = file.fill(ArchiveSettings, start_hour=_read_start_hour(file, zone), retention=retention)
    if settings.risk_retention_fail > settings.risk_retention_warn:
        file.refuse("archive.risk.retention.fail", "it is above archive.risk.retention.warn: what fails warns first")
    if settings.risk_age_fail_ms < settings.risk_age_warn_ms:
        file.refuse("archive.risk.age.fail.ms", "it is below archive.risk.age.warn.ms: what fails warns first")
    _keep_apart(file, "archive.index.dir", settings.index_dir, folders)
    folders = {**folders, "archive.index.dir": settings.index_dir}
    _keep_apart(file, "archive.restore.dir", settings.restore_dir, folders)
    return settings


def _read_start_hour(file: ConfigFile, zone: ZoneInfo) -> datetime:
    """Read the first hour of the archive. Refuse a timezone whose clocks later change by other than whole hours."""
    start = file.read(START_HOUR.name, values.expect_hour(zone), START_HOUR.unset.replace(tzinfo=zone))
    if broken := values.find_broken_hour(zone, start):
        day, change = broken
        minutes = abs(change) // timedelta(minutes=1)
        file.refuse(
            "timezone",
            f"in the week before {day} the clocks of {zone.key} change by {minutes} minutes, and hours would have no "
            f"names of their own any more. Take UTC or another timezone, or, where that is past, a later "
            f"archive.start.hour",
        )
    return start


def _keep_apart(file: ConfigFile, name: str, folder: str, others: Mapping[str, str]) -> None:
    """Refuse the folder of documents if it holds one of the `others` (key -> folder), or lies in one of them."""
    for other_name, other in others.items():
        if values.is_nested(folder, other):
            file.refuse(name, f"the folder {folder} and {other_name}, {other}, must not hold each other")
