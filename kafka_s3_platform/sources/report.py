"""The report of reading foreign objects: counts, gaps, skipped objects and records."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.sources.how_read import explain_reading
from kafka_s3_platform.sources.objects import BadObject

# Most objects or records that one sentence names. A longer list cannot be read.
_NAMED = 10


@dataclass
class ReadReport:
    """Counts of what a stream read, and sentences about it.

    `position_count` records have no proven offset. For `unnamed_count` of these, not even the object's name has one.
    `gaps` are sentences about holes between objects; the list may be cut, `gap_count` is not. `disordered` are
    sentences about objects that overlap others, so that the order of the records is unknown.
    """

    record_count: int = 0
    position_count: int = 0
    unnamed_count: int = 0
    timeless_count: int = 0
    tombstone_count: int = 0
    gaps: list[str] = field(default_factory=list)
    gap_count: int = 0
    disordered: list[str] = field(default_factory=list)
    skipped_objects: list[str] = field(default_factory=list)
    skipped_records: list[str] = field(default_factory=list)
    skipped_object_count: int = 0
    skipped_record_count: int = 0
    bad_objects: dict[str, BadObject] = field(default_factory=dict)

    def notes(self, config: ConnectorConfig) -> list[str]:
        """Return the sentences for the restore's report."""
        how = explain_reading(
            config.layout, self.record_count, self.position_count, self.unnamed_count, self.timeless_count
        )
        return [*how, *self._order(), *self._counts(), *self._of_layout(config.layout)]

    def _order(self) -> Iterator[str]:
        if self.unnamed_count:
            yield (
                f"order is by file: neither {self.unnamed_count} records nor the names of their objects tell offsets;"
                " objects were read in the order of their names, numbers in them by value (part-2 before part-10)"
            )
        if self.disordered:
            yield (
                f"order differs from the source's: records of {len(self.disordered)} objects lay between those of"
                f" others, nothing tells where: {'; '.join(self.disordered[:_NAMED])}"
            )

    def _counts(self) -> Iterator[str]:
        if named := self.position_count - self.unnamed_count:
            yield (
                f"{named} records: source offsets are positions, counted from the first offset in the object's name, or"
                " back from the last: holes inside of an object are not known"
            )
        if self.unnamed_count:
            yield f"{self.unnamed_count} records: source offsets are positions, counted over all objects"
        if self.timeless_count:
            yield (
                f"{self.timeless_count} records: no object tells their timestamp; the target's is the time of the"
                " restore (CreateTime)"
            )
        if self.skipped_objects:
            yield f"{self.skipped_object_count} objects were skipped: {'; '.join(self.skipped_objects[:_NAMED])}"
        if self.skipped_records:
            yield f"{self.skipped_record_count} records were skipped: {'; '.join(self.skipped_records[:_NAMED])}"

    def _of_layout(self, layout: LayoutSettings) -> Iterator[str]:
        if layout.format == "bytes" and layout.bytes_separator != "length":
            yield (
                "records were told apart by their separator: that none held it itself, and that the last one of an"
                " object without one at its end is whole, cannot be proven"
            )
        if layout.partitioner in {"Field", "Hourly", "Daily", "TimeBased"} and self.position_count:
            yield ("order is by file: where records of one folder lay between those of another is not known")
        if layout.partitioner in {"Hourly", "Daily", "TimeBased"} and layout.timestamp_extractor == "Wallclock":
            yield "folders tell when records were archived, not their own timestamps"
        if self.tombstone_count:
            yield (
                f"{self.tombstone_count} records without a value came from a folder of their own: where they lay"
                " between the values of one object is not known, so a key that was deleted and written again may end"
                " otherwise"
            )
