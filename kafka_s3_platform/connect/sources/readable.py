"""Reads every record of a topic's foreign objects, and reports unreadable and missing ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_s3_platform.connect.sources.objects import MAX_LINES, ObjectGroup, group_objects, select_objects
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.layouts.new_layout import new_key_reader
from kafka_s3_platform.core.partitioners.folders import Window
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner


@dataclass(frozen=True)
class ReadTask:
    """The objects of one kafka partition to read."""

    config: ConnectorConfig
    group: ObjectGroup


@dataclass(frozen=True)
class ReadGroup:
    """The result of reading the objects of one kafka partition.

    `first_offset` and `last_offset` are as in a restore, or None if there are no records. `gaps` and `bad` are
    sentences. Both lists may be cut, but the counts are complete.
    """

    kafka_partition: int
    object_count: int
    object_bytes: int
    record_count: int
    first_offset: int | None
    last_offset: int | None
    position_count: int
    """The records whose offsets were counted from the name of their object."""

    gap_count: int
    gaps: tuple[str, ...]
    bad_count: int
    bad: tuple[str, ...]


@dataclass(frozen=True)
class ReadableReport:
    """The result of reading the objects of a topic. `misnamed` are sentences about objects with unreadable names.

    `unnamed_count` counts more such objects, which have no sentence. They may belong to other topics.
    """

    groups: tuple[ReadGroup, ...]
    misnamed: tuple[str, ...]
    unnamed_count: int
    searched: str
    """Describes the searched folders and names."""

    @property
    def object_count(self) -> int:
        return sum(group.object_count for group in self.groups)

    @property
    def bad(self) -> tuple[str, ...]:
        """Sentences about all unreadable objects and records. The list may be cut."""
        more = (f"{self.unnamed_count:,} more objects, of this topic or of others, have unreadable names",)
        return (
            *more * bool(self.unnamed_count),
            *self.misnamed,
            *(line for group in self.groups for line in group.bad),
        )

    @property
    def bad_count(self) -> int:
        return len(self.misnamed) + self.unnamed_count + sum(group.bad_count for group in self.groups)


def read_objects(config: ConnectorConfig, topic: str, window: Window | None, runner: TaskRunner) -> ReadableReport:
    """Read a topic's objects to their ends, and report which ones cannot be read. The records are dropped.

    Only folders that may hold records of the window (epoch ms) are read, or all folders if `window` is None. Raises
    PlatformError if the store does not answer, or refuses.
    """
    source = config.source or SourceSettings()
    # A bad object must not keep the others from being read.
    config = config.model_copy(update={"source": source.model_copy(update={"behavior_on_error": "ignore"})})
    listing = SourceListing(config, (topic,))
    groups = group_objects(select_objects(listing, (window,) if window else ()))
    tasks = [ReadTask(config, group) for group in groups]
    results = runner.run_grouped(read_group, tasks, config.tasks_max, lambda task: task.group.size)
    read_groups = sorted(results, key=lambda group: group.kafka_partition)
    misnamed = tuple(_choose_lines(config, topic, listing.report.bad))
    return ReadableReport(tuple(read_groups), misnamed, listing.report.unnamed_bad_count, listing.describe_search())


def read_group(task: ReadTask, _: Attempt) -> ReadGroup:
    """Read the objects of one kafka partition to their ends."""
    group = task.group
    stream = ForeignStream(task.config, group)
    first = last = None
    for batch in stream.batches():
        first = int(batch.offsets[0]) if first is None else first
        last = int(batch.offsets[-1])
    report = stream.report
    return ReadGroup(
        kafka_partition=group.kafka_partition,
        object_count=sum(len(objects.objects) for objects in group.sets),
        object_bytes=group.size,
        record_count=report.record_count,
        first_offset=first,
        last_offset=last,
        position_count=report.position_count,
        gap_count=report.gap_count,
        gaps=tuple(gap.text for gap in report.gaps),
        bad_count=report.skipped_object_count + report.skipped_record_count,
        bad=(*report.skipped_objects, *report.skipped_records)[:MAX_LINES],
    )


def _choose_lines(config: ConnectorConfig, topic: str, lines: Sequence[str]) -> list[str]:
    """Choose the lines about objects in the topic's folder, if each topic has a folder."""
    if config.layout.key_layout != "connect":
        return list(lines)
    reader = new_key_reader(config)
    return [line for line in lines if line.startswith(f"object {reader.root}{topic}{reader.delimiter}")]
