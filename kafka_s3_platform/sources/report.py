"""The report of reading foreign objects: counts, gaps, skipped objects and records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings, SourceSettings
from kafka_s3_platform.model.notes import DoubtNote
from kafka_s3_platform.model.record import NO_TIMESTAMP
from kafka_s3_platform.model.times import HOUR_MS
from kafka_s3_platform.sources.how_read import explain_reading
from kafka_s3_platform.sources.objects import BadObject

# Most objects or records in one sentence. A longer list cannot be read.
_NAMED = 10
_YEAR_MS = 365 * 24 * HOUR_MS


@dataclass
class ReadReport:
    """Counts of a stream's records, and sentences about them.

    `position_count` records have no proven offset. For `unnamed_count` of these, not even the object's name has one.
    `gaps` are sentences about holes between objects; the list may be cut, `gap_count` is not. `disordered` are
    sentences about overlapping objects, so the order of their records is unknown; it may be cut too. Before
    `unordered_count` objects, offsets are in none, or in one of another folder, behind records that come later.
    """

    record_count: int = 0
    position_count: int = 0
    unnamed_count: int = 0
    timeless_count: int = 0
    tombstone_count: int = 0
    gaps: list[str] = field(default_factory=list)
    gap_count: int = 0
    disordered: list[str] = field(default_factory=list)
    disordered_count: int = 0
    unordered_count: int = 0
    unnamed_object_count: int = 0
    newest: int = NO_TIMESTAMP
    empty_count: int = 0
    ends_open: Mapping[str, bool] = field(default_factory=dict)
    skipped_objects: list[str] = field(default_factory=list)
    skipped_records: list[str] = field(default_factory=list)
    skipped_object_count: int = 0
    skipped_record_count: int = 0
    bad_objects: dict[str, BadObject] = field(default_factory=dict)

    def notes(self, config: ConnectorConfig) -> list[str]:
        """Return the sentences for the restore's report, some of them doubts."""
        how = explain_reading(
            config.layout, self.record_count, self.position_count, self.unnamed_count, self.timeless_count
        )
        notes = (self._order(), self._counts(), self._of_layout(config.layout), self._pieces(config))
        return [*how, *chain.from_iterable(notes), *self._times(config)]

    def _order(self) -> Iterator[DoubtNote]:
        if self.unnamed_count and self.unnamed_object_count > 1:
            yield DoubtNote(
                f"order is by file: neither {self.unnamed_count} records nor the names of their objects have offsets;"
                " objects were read in the order of their names, numbers in them by value (part-2 before part-10)"
            )
        if self.disordered:
            yield DoubtNote(
                f"order differs from the source's: records of {self.disordered_count} objects lay between those of"
                f" others or are in both, which is unknown: {'; '.join(self.disordered[:_NAMED])}"
            )
        if self.unordered_count:
            yield DoubtNote(
                f"order is by file: by names and numbers of records, {self.unordered_count} objects begin behind"
                f" offsets that are in none before: these never were, or objects are missing, or records of one folder"
                f" lay between those of another"
            )

    def _pieces(self, config: ConnectorConfig) -> Iterator[str]:
        if config.layout.format != "bytes" or config.layout.bytes_separator == "length":
            return
        is_sure = not self.unnamed_count or (config.source or SourceSettings()).separator_is_named
        yield (str if is_sure else DoubtNote)(
            "records were split at their separator: that none held it itself, and that the last one of an object"
            " without one at its end is complete, cannot be proven; if no value holds one, set"
            " format.bytearray.separator"
        )
        closed = sum(not is_open for is_open in self.ends_open.values())
        if 0 < closed < len(self.ends_open):
            yield DoubtNote(
                f"{closed} objects end with a separator, and {len(self.ends_open) - closed} do not: if no separator was"
                f" written behind the last record, that of each of the {closed} is empty, and was not restored"
            )

    def _times(self, config: ConnectorConfig) -> Iterator[DoubtNote]:
        name = (config.source or SourceSettings()).timestamp_field
        if name and NO_TIMESTAMP < self.newest < _YEAR_MS:
            yield DoubtNote(
                f"the newest timestamp is {self.newest} ms after 1970 began, so the field {name}"
                f" (archive.source.timestamp.field) holds seconds, or no time: it has to hold milliseconds"
            )

    def _counts(self) -> Iterator[str]:
        if self.timeless_count:
            yield (
                f"{self.timeless_count} records: no object has their timestamp; the target's is the time of the"
                " restore (CreateTime)"
            )
        if self.skipped_objects:
            yield f"{self.skipped_object_count} objects were skipped: {'; '.join(self.skipped_objects[:_NAMED])}"
        if self.skipped_records:
            yield f"{self.skipped_record_count} records were skipped: {'; '.join(self.skipped_records[:_NAMED])}"

    def _of_layout(self, layout: LayoutSettings) -> Iterator[str]:
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
