"""The report of reading foreign objects: how they were read, counts, gaps, and what `behavior.on.error` skipped.

A verified restore proves that the target holds the records read from objects. Nothing proves that this reading was
right, so the report explains it. A *position* is an offset that was counted; a *doubt* limits the verdict of a restore.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from kafka_s3_platform.connect.sources.objects import MAX_LINES, ForeignObject, ObjectGroup
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings, SourceSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.gaps import MissingRecords
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.model.segment import BadObject
from kafka_s3_platform.core.model.times import HOUR_MS

_MAPS = {"aiven.avro", "aiven.parquet"}

_AIVEN = {"key", "value", "offset", "timestamp", "headers"}
_LENSES = {"key", "value", "headers", "metadata", "keyIsArray", "valueIsArray"}
_PLACE = {"topic", "partition", "offset", "timestamp", "headers", "key"}
_CONTENT = {"value", "payload", "content", "message", "data", "body"}

_MOST_BYTES = 1_048_576
"""The longest text to parse."""

# The most objects or records in one sentence. Nobody can read a longer list.
_NAMED = 10
_YEAR_MS = 365 * 24 * HOUR_MS
_FAR_MS = 10**13
"""The year 2286. As microseconds, it is April of 1970."""

logger = logging.getLogger(__name__)

# The most bad lines in one error message.
_SHOWN = 3


def _explain_records(layout: LayoutSettings) -> str:
    """Describe how the records in an object were told apart."""
    if layout.format == "bytes":
        by_length = layout.bytes_separator == "length"
        if by_length:
            return "records by the length before each"
        return f"a record up to each {layout.bytes_separator!r}"
    return find_format(layout.format).counted or f"records as {layout.format} counts them"


def explain_doubt(config: ConnectorConfig, values: Sequence[object]) -> str:
    """Explain why an object's values look like more than values. Return an empty text if they do not."""
    if find_format(config.layout.format).envelope is not None:
        return ""
    first_value = _parse_json_text(next((value for value in values if value is not None), None))
    if isinstance(first_value, list) and len(values) == 1 and len(first_value) > 1:
        return (
            f"an object holds one record, which is a JSON array of {len(first_value):,} elements, and is sent as one. "
            f"If each element is a record, read it with a file of Aiven's class: format.output.type=json and "
            f"format.output.envelope=false"
        )
    names = set(first_value) if isinstance(first_value, Mapping) else set[str]()
    metadata = first_value.get("metadata") if isinstance(first_value, Mapping) else None
    if names <= _LENSES and isinstance(metadata, Mapping) and {"topic", "partition", "offset"} <= set(metadata):
        remedy = "Lenses' ('store.envelope'=true in the KCQL, or input.format=lenses.*)"
    elif names <= _AIVEN and "value" in names and len(names) > 1:
        remedy = "Aiven's (format.output.envelope=true and format.output.fields)"
    elif names & _CONTENT and len({str(name).removeprefix("kafka_") for name in names} & _PLACE) > 1:
        remedy = "another tool's: copy its objects as values alone, or as one of the envelopes that are read"
    else:
        return ""
    return (
        f"values have the fields {', '.join(sorted(names))}, as whole records in an envelope have, and by the "
        f"connector's file they are sent as values alone. If it is an envelope, it is {remedy}"
    )


def _parse_json_text(value: object) -> object:
    """Parse a text of JSON, whatever its converter. Return anything else as it is."""
    if not isinstance(value, str | bytes) or len(value) > _MOST_BYTES:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def explain_missing(config: ConnectorConfig) -> Iterator[str]:
    """Explain which parts of records are not in objects with these settings."""
    source = config.source or SourceSettings()
    format_name = config.layout.format
    if not _has_part(config, "key"):
        yield "by the connector's file, objects hold no keys: records are sent with a null key"
    if not _has_part(config, "headers"):
        yield "by the connector's file, objects hold no headers: records are sent without"
    elif not config.layout.is_envelope and source.header_converter != "ByteArrayConverter":
        yield (
            f"values of headers that another sink wrote are what its {source.header_converter} made of them: bytes that"
            " are no UTF-8 became U+FFFD, and by SimpleHeaderConverter, Connect's default, 007 became 7"
            " (header.converter names another). Those that a sink here wrote come back as they were"
        )
    if _has_part(config, "headers") and format_name in _MAPS:
        yield "headers are a map here: of several with one name one is there, and their order is not"
    row = find_format(format_name)
    converter = config.records.value
    if (
        converter.format == "JSON"
        and converter.schemas_enable
        and not (row.needs_schema or row.envelope or row.is_plugin)
    ):
        yield 'objects hold no schemas: by the file\'s JsonConverter, values are sent with "schema": null'
    if format_name == "bytes" and config.layout.ends_lines_once:
        yield "objects do not show whether a value ended with a line break: it comes back without"
    if "value" in source.base64 and row.has_base64:
        yield "values that are texts of JSON were read as base64, as sinks write what ByteArrayConverter read"


def _has_part(config: ConnectorConfig, part: ObjectPart) -> bool:
    """Return True if objects with these settings hold keys, or headers."""
    layout = config.layout
    envelope = find_format(layout.format).envelope
    # Lenses' envelopes have a field for each part, whatever the connector file says.
    if envelope in {"ours", "lenses"}:
        return True
    if envelope == "aiven":
        return part in (config.source or SourceSettings()).fields
    return (layout.keys_format if part == "key" else layout.headers_format) is not None


@dataclass
class ReadReport:
    """Counts of a stream's records, and sentences about them.

    `position_count` records have no proven offset. For `unnamed_count` of these, not even the object's name has one.
    `gaps` are holes between objects; the list may be cut, but `gap_count` is complete. `disordered` are sentences about
    overlapping objects, whose records are in an unknown order; this list may be cut too. Before `unordered_count`
    objects, some offsets are missing, or are in another folder's object, after records that come later. `return_count`
    values of bytes end with a carriage return.
    """

    record_count: int = 0
    position_count: int = 0
    unnamed_count: int = 0
    timeless_count: int = 0
    tombstone_count: int = 0
    gaps: list[MissingRecords] = field(default_factory=list)
    gap_count: int = 0
    disordered: list[str] = field(default_factory=list)
    disordered_count: int = 0
    unordered_count: int = 0
    unnamed_object_count: int = 0
    newest: int = NO_TIMESTAMP
    empty_count: int = 0
    return_count: int = 0
    ends_open: Mapping[str, bool] = field(default_factory=dict)
    skipped_objects: list[str] = field(default_factory=list)
    skipped_records: list[str] = field(default_factory=list)
    skipped_object_count: int = 0
    skipped_record_count: int = 0
    bad_objects: dict[str, BadObject] = field(default_factory=dict)

    def list_notes(self, config: ConnectorConfig) -> list[str]:
        """Return the sentences for the restore's report, some of them doubts."""
        notes = (
            self._describe_reading(config.layout),
            self._describe_order(),
            self._describe_counts(),
            self._describe_layout(config.layout),
            self._describe_pieces(config),
        )
        return [*chain.from_iterable(notes), *self._describe_times(config)]

    def _describe_reading(self, layout: LayoutSettings) -> Iterator[str]:
        """Yield how records, their offsets and their timestamps were found in the objects."""
        if not self.record_count:
            return
        offsets = "offsets from the objects"
        if self.position_count:
            counts = (
                (self.record_count - self.position_count, "from the objects"),
                (
                    self.position_count - self.unnamed_count,
                    "by position from the one in the object's name, as if it had no holes",
                ),
                (self.unnamed_count, "by position over all objects"),
            )
            offsets = f"offsets: {', '.join(f'{count} {origin}' for count, origin in counts if count > 0)}"
        times = "timestamps from the objects"
        if self.timeless_count:
            times = f"{self.timeless_count} records without a timestamp"
        yield (
            f"how objects were read: {_explain_records(layout)}; {offsets}; {times}. Verified is that the target holds"
            " these records, not that this reading is right"
        )

    def _describe_order(self) -> Iterator[DoubtNote]:
        """Yield doubts about the order of records."""
        if self.unnamed_count and self.unnamed_object_count > 1:
            yield DoubtNote(
                f"order is by file: neither {self.unnamed_count} records nor the names of their objects have offsets;"
                " objects were read in the order of their names, numbers in them by value (part-2 before part-10)"
            )
        if self.disordered:
            yield DoubtNote(
                f"order differs from the source's: records of {self.disordered_count} objects lay between records of"
                f" others, or are in both; nobody knows which: {'; '.join(self.disordered[:_NAMED])}"
            )
        if self.unordered_count:
            yield DoubtNote(
                f"order is by file: by names and numbers of records, {self.unordered_count} objects begin behind"
                f" offsets that are in none before: these never were, or objects are missing, or records of one folder"
                f" lay between records of another"
            )

    def _describe_pieces(self, config: ConnectorConfig) -> Iterator[str]:
        """Yield doubts about records that were split at separators."""
        source = config.source or SourceSettings()
        if config.layout.format == "aiven.csv" and source.value_encoding == "none" and "value" in source.fields:
            yield "values were read as they are, and not from base64: one that held a line break was read as several"
        if config.layout.format != "bytes" or config.layout.bytes_separator == "length":
            return
        is_named = source.separator_is_named
        is_sure = not self.unnamed_count or is_named
        yield (str if is_sure else DoubtNote)(
            "records were split at their separator: that none held it itself, and that the last one of an object"
            " without one at its end is complete, cannot be proven; if no value holds one, set"
            " format.bytearray.separator"
        )
        if not is_named and 0 < self.return_count == self.record_count - self.tombstone_count:
            yield DoubtNote(
                "every value ends with a carriage return, as if the separator were one and a line feed: set"
                " format.bytearray.separator to \\r\\n if it was, and to \\n if it was not"
            )
        closed_count = sum(not is_open for is_open in self.ends_open.values())
        if 0 < closed_count < len(self.ends_open):
            yield DoubtNote(
                f"{closed_count} objects end with a separator, and {len(self.ends_open) - closed_count} do not: if no "
                f"separator was written behind last records, the last record of each of the {closed_count} is empty, "
                f"and was not restored"
            )

    def _describe_times(self, config: ConnectorConfig) -> Iterator[DoubtNote]:
        """Yield a doubt if the newest timestamp is so early or so late that the field may hold another unit."""
        name = (config.source or SourceSettings()).timestamp_field
        if name and NO_TIMESTAMP < self.newest < _YEAR_MS:
            yield DoubtNote(
                f"the newest timestamp is {self.newest} ms after 1970 began, so the field {name}"
                f" (archive.source.timestamp.field) holds seconds, or no time: it has to hold milliseconds"
            )
        if name and self.newest >= _FAR_MS:
            yield DoubtNote(
                f"the newest timestamp is {self.newest} ms after 1970 began, in the year 2286 or later, so the field"
                f" {name} (archive.source.timestamp.field) holds microseconds or nanoseconds, or no time: it has to"
                " hold milliseconds"
            )

    def _describe_counts(self) -> Iterator[str]:
        """Yield how many records have no timestamp, and what was skipped."""
        if self.timeless_count:
            yield (
                f"{self.timeless_count} records: no object has their timestamp; the target's is the time of the"
                " restore (CreateTime)"
            )
        if self.skipped_objects:
            yield f"{self.skipped_object_count} objects were skipped: {'; '.join(self.skipped_objects[:_NAMED])}"
        if self.skipped_records:
            yield f"{self.skipped_record_count} records were skipped: {'; '.join(self.skipped_records[:_NAMED])}"

    def _describe_layout(self, layout: LayoutSettings) -> Iterator[str]:
        """Yield what the source's layout cannot tell: the times of records, null or empty, the order of tombstones."""
        if layout.partitioner in {"Hourly", "Daily", "TimeBased"} and layout.timestamp_extractor == "Wallclock":
            yield "times of folders are those of archiving, not the records' own timestamps"
        if self.empty_count:
            yield DoubtNote(
                f"{self.empty_count} keys and values of csv are empty, and csv does not distinguish null from empty:"
                " they were read by archive.source.csv.empty"
            )
        if self.tombstone_count:
            yield DoubtNote(
                f"{self.tombstone_count} records without a value came from a folder of their own: their places"
                " between the values of one object are unknown, so a key that was deleted and written again may end"
                " otherwise"
            )


class Tolerance:
    """Skips bad objects and records, or fails. After an earlier run, skips only the `left_out` ones (key -> why)."""

    def __init__(self, config: ConnectorConfig, group: ObjectGroup, left_out: Mapping[str, str] | None) -> None:
        self._group = group
        self._left_out = left_out
        self._skipped: set[str] = set()
        self.report = ReadReport()
        behavior = (config.source or SourceSettings()).behavior_on_error
        # The earlier run also skipped bad records of good objects, so such records must not fail now.
        self._behavior = "ignore" if left_out is not None and behavior == "fail" else behavior

    @property
    def fails(self) -> bool:
        """True if a bad record is an error."""
        return self._behavior == "fail"

    def skip_object(self, item: ForeignObject, err: IntegrityError, start_offset: int) -> None:
        """Skip a bad object, or fail. None of its records is before `start_offset`.

        Raises IntegrityError if nothing is tolerated, or if an earlier run read the object (it is not in `left_out`).
        """
        if self.fails or self._left_out is not None:
            raise err.retell(f"{item.topic}-{item.kafka_partition}: {err.text}") from err
        self.report.bad_objects.setdefault(item.key, BadObject(item.key, start_offset, err.text))
        self._note_object(item, err.text)

    def leaves_out(self, item: ForeignObject) -> bool:
        """Return True if an earlier run left the object out, and report it."""
        why = (self._left_out or {}).get(item.key)
        if why is not None:
            self._note_object(item, why)
        return why is not None

    def _note_object(self, item: ForeignObject, why: str) -> None:
        """Count and report a skipped object, only once however often it is met."""
        if item.key in self._skipped:
            return
        self._skipped.add(item.key)
        self.report.skipped_object_count += 1
        self._add_line(self.report.skipped_objects, why)

    def skip_records(self, item: ForeignObject, bad: Mapping[int, str]) -> None:
        """Count and report the bad records of an object (row -> why)."""
        for why in bad.values():
            self.report.skipped_record_count += 1
            self._add_line(self.report.skipped_records, f"object {item.key}: {why}")

    def skip_repeated(self, key: str, offsets: Int64s) -> None:
        """Count and report records whose offset came before (the first is kept), or raise IntegrityError."""
        offset_text = f"offset {offsets[0]}" + (f" and {len(offsets) - 1} others" if len(offsets) > 1 else "")
        line = f"object {key}: it holds {offset_text} again, as it did before, or an object before it"
        if self.fails:
            where = f"{self._group.topic}-{self._group.kafka_partition}"
            raise IntegrityError(f"{where}: {line}: records would come twice")
        self.report.skipped_record_count += len(offsets)
        self._add_line(self.report.skipped_records, line)

    def explain_bad_lines(self, item: ForeignObject, bad: Mapping[int, str]) -> str:
        """Explain why bad records make the whole object bad. Return an empty text if they are skipped alone."""
        if not bad or not self.fails:
            return ""
        return f"object {item.key} holds what cannot be read: {'; '.join(list(bad.values())[:_SHOWN])}"

    def _add_line(self, lines: list[str], line: str) -> None:
        """Add a line to the list of a report unless it is full. Log it if `behavior.on.error` is `log`."""
        if len(lines) < MAX_LINES:
            lines.append(line)
        if self._behavior == "log":
            logger.warning("skipped: %s", line)
