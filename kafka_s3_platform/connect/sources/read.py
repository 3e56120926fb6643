"""Reads the records of one kafka partition from foreign objects, as bare values or in the envelopes of other sinks.

Offsets are real if each record has its own (an envelope, Aiven's formats), if our own sink keeps them beside its
object, or if the index of Block-GZIP has them. Such records are merged by offset across objects. Otherwise offsets are
positions, counted from the first offset in the object's name or, if the name has none, on from the record before, in
the order of the objects. A record without a timestamp gets NO_TIMESTAMP, because folders do not tell its time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.sources.contents import (
    HOLD_BYTES,
    BlockSelection,
    CheckedObject,
    Complaint,
    Contents,
    OffsetSummary,
    build_connect_batch,
    check_object,
    get_offsets,
    mark_records_without_offset,
    select_blocks_by_counts,
    select_blocks_by_offsets,
)
from kafka_s3_platform.connect.sources.objects import (
    MAX_LINES,
    ForeignObject,
    ObjectGroup,
    ObjectSet,
    OffsetFacts,
    has_record_offsets,
    read_offset_facts,
)
from kafka_s3_platform.connect.sources.order import (
    CONNECT_STEPS,
    GroupFolders,
    OffsetProgress,
    PositionBounds,
    find_bounds,
)
from kafka_s3_platform.connect.sources.report import ReadReport, Tolerance
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.formats.kept_offsets import KeptOffsets
from kafka_s3_platform.core.formats.merge import OffsetMerge
from kafka_s3_platform.core.formats.reading import ReadBatch
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.gaps import MissingRecords
from kafka_s3_platform.core.model.offsets import MAX_OFFSET, OffsetRange
from kafka_s3_platform.core.store.objects import ObjectStore


class ForeignStream:
    """The records of one group of objects at source offsets [`start_offset`, `end_offset`), ascending by offset.

    Objects and blocks without such records are not read if their names or metadata show it.

    Records of an object go out only after the whole object was checked: every record decodes, there are as many keys
    and headers as values, and as many records as its metadata tell. If an object fails this check, `behavior.on.error`
    decides whether the stream fails, or skips the object and reports it. Bad lines of JSON are skipped singly, and so
    are records with the offset of an earlier one.

    Iteration gives batches of RECORD_SCHEMA. `batches` also gives decoded values and their schemas. The column of Avro
    values holds bare data.

    Args:
        by_offset: True if the user chose this window of offsets. It is refused if it would select positions of
            overlapping objects.
        left_out: the objects an earlier run left out (object key -> why). Exactly these are skipped, unread.

    Raises (when iterated):
        IntegrityError: an object is missing, replaced, damaged or not thawed, and `behavior.on.error` is `fail`, or
            there is a `left_out` without the object.
        PreflightError: `by_offset` is set, and objects overlap whose records have no offsets.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        group: ObjectGroup,
        store: ObjectStore | None = None,
        start_offset: int = 0,
        end_offset: int | None = None,
        left_out: Mapping[str, str] | None = None,
        *,
        by_offset: bool = False,
    ) -> None:
        self._config = config
        self._group = group
        self._start = start_offset
        self._end = MAX_OFFSET if end_offset is None else end_offset
        self._left_out = left_out
        self._by_offset = by_offset
        self._store = store or ObjectStore(config.store)
        self._contents = Contents(config, self._store)
        self._folders = GroupFolders(config, group)
        self._has_offsets = has_record_offsets(config)
        source = config.source or SourceSettings()
        is_csv = "csv" in {source.bare, config.layout.format.removeprefix("aiven.")}
        self._csv_fields = {"key", "value"} & {*(source.fields or ["value"])} if is_csv else ()
        self._reset()

    def _reset(self) -> None:
        """Forget the counts of an earlier iteration."""
        self._tolerance = Tolerance(self._config, self._group, self._left_out)
        self.report.ends_open = self._contents.ends_open
        self._positions = OffsetProgress()
        self._merged = OffsetMerge(CONNECT_STEPS, self._tolerance.skip_repeated)

    @property
    def report(self) -> ReadReport:
        """The report of the latest iteration."""
        return self._tolerance.report

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (batch.records for batch in self.batches())

    def batches(self) -> Iterator[ConnectBatch]:
        """Read the records with their keys and values as payloads."""
        if self._by_offset and not self._is_order_certain():
            # A refusal must come before the first record goes out, so all objects are first read without sending.
            for _ in self._read_in_order():
                pass
        yield from self._read_in_order()

    def _read_in_order(self) -> Iterator[ConnectBatch]:
        """Yield all records, by offset if objects have offsets. Report a gap before the end the user named."""
        self._reset()
        sets = self._list_sets()
        for number, (first, objects) in enumerate(sets):
            # Sets are in order of their first offsets, so no later one holds a record before the end, or below `first`.
            if first >= self._end:
                break
            for batch in self._merged.take_before(first):
                yield self._count_records(batch)
            if self._tolerance.leaves_out(objects.name):
                self._positions.can_show_gap = False
            elif line := objects.explain_missing_parts(self._config.layout):
                self._skip_or_fail(objects.name, IntegrityError(line))
            else:
                yield from self._read_set(objects, [s for _, s in sets[number + 1 : number + 3]])
        for batch in self._merged.take_before(None):
            yield self._count_records(batch)
        if self._by_offset and self._end < MAX_OFFSET and sets:
            # The user named the end, so records up to there are missing if no object has them.
            self._report_gap(sets[-1][1].name, self._end)

    def _is_order_certain(self) -> bool:
        """Return True if all objects that may overlap hold the offsets of their records."""
        if self._has_offsets:
            return True
        try:
            items = [s.name for s in self._group.sets if (s.name.first_offset or 0) < self._end]
            # One at a time, because all objects together may have many offsets.
            facts = (read_offset_facts(self._config, self._store, item) for item in items)
            return all(t.offsets is not None or (self._folders.is_one_folder and not t.is_ours) for t in facts)
        except IntegrityError:
            return False

    def _list_sets(self) -> list[tuple[int, ObjectSet]]:
        """List the sets (values with their keys and headers) by first offset, from the name or else the object."""
        if not self._has_offsets:
            return [(s.name.first_offset or 0, s) for s in self._group.sets]
        begins = [
            (self._find_least_offset(s) if s.name.first_offset is None else s.name.first_offset, s)
            for s in self._group.sets
        ]
        return sorted(((first, s) for first, s in begins if first is not None), key=lambda begin: begin[0])

    def _read_set(self, objects: ObjectSet, following: Sequence[ObjectSet]) -> Iterator[ConnectBatch]:
        """Read an object. If its records have no known offsets, yield them now. Others are merged and come later."""
        try:
            facts = read_offset_facts(self._config, self._store, objects.name)
        except IntegrityError as err:
            self._skip_or_fail(objects.name, err)
            return
        if objects.name.first_offset is not None:
            self._report_gap(objects.name, objects.name.first_offset)
        # Known offsets beyond all records of unknown offsets can be merged, because no position is among them.
        is_beyond = facts.offsets is not None and facts.offsets.first >= self._positions.uncertain_end
        if self._has_offsets or is_beyond:
            if facts.last is None or facts.last >= self._start:
                self._add_to_merge(objects, facts)
            else:
                self._positions.note_offsets(facts.last)
        elif self._is_before_start(facts, following):
            self._positions.can_show_gap = False
        else:
            # Positions follow all records with known offsets that were read so far.
            for batch in self._merged.take_before(None):
                yield self._count_records(batch)
            yield from self._read_by_position(objects, facts)

    def _add_to_merge(self, objects: ObjectSet, facts: OffsetFacts) -> None:
        """Check an object with offsets, and add it to the merge. Records before its first offset have gone out."""
        item = objects.name
        summary = OffsetSummary()
        checked_object = self._check_object(
            item, partial(self._summarize, objects, facts, summary), partial(self._explain_offset_fault, item, summary)
        )
        if checked_object is None:
            return
        if summary.least is None:
            self._report_bad(item, checked_object)
            return
        if item.first_offset is None:
            self._report_gap(item, summary.least)
        is_ascending = summary.is_ascending
        self._positions.note_offsets(summary.greatest)
        selected_batches = map(partial(self._select_records, item), checked_object.batches)
        batches: Iterator[ConnectBatch] = (batch for batch in selected_batches if batch.num_rows)
        if not is_ascending and not checked_object.is_in_memory:
            line = f"object {item.key}: its offsets do not ascend, and it is too large to be sorted in memory"
            self._skip_or_fail(item, IntegrityError(line))
            return
        if not is_ascending:
            batches = iter(self._merged.merge([(item.key, batch) for batch in batches]))
        self._merged.add(item.key, batches, checked_object.memory_bytes)

    def _find_least_offset(self, objects: ObjectSet) -> int | None:
        """Find the least offset in an object whose name has none. Return None if the object is bad or empty."""
        summary = OffsetSummary()
        if self._tolerance.leaves_out(objects.name):
            return None
        open_batches = partial(self._summarize, objects, OffsetFacts(), summary)
        checked_object = self._check_object(
            objects.name, open_batches, partial(self._explain_offset_fault, objects.name, summary)
        )
        if checked_object is not None and summary.least is None:
            self._report_bad(objects.name, checked_object)
        return summary.least

    def _report_bad(self, item: ForeignObject, checked_object: CheckedObject) -> None:
        """Report why the records of an object are bad. The object has no good record, so nothing is sent."""
        for batch in checked_object.batches:
            self._select_records(item, batch)

    def _summarize(self, objects: ObjectSet, facts: OffsetFacts, summary: OffsetSummary) -> Iterator[ReadBatch]:
        """Yield the records with their offsets, and add the offsets to the summary."""
        for batch in self._read_with_offsets(objects, facts):
            summary.add(batch)
            yield batch

    def _read_with_offsets(self, objects: ObjectSet, facts: OffsetFacts) -> Iterator[ReadBatch]:
        """Read the records of an object with their known offsets. A record without one is bad."""
        blocks = None if facts.offsets is None else self._select_by_offsets(objects, facts.offsets)
        row, end = (0, facts.count) if blocks is None else blocks.rows
        for batch in self._contents.read_records(objects, blocks):
            if end is not None and row + len(batch) > end:
                raise IntegrityError(f"object {objects.name.key} holds more than the {end} records in its metadata")
            if facts.offsets is None:
                yield mark_records_without_offset(batch)
            else:
                yield replace(batch, offsets=facts.offsets.of(row, len(batch)))
            row += len(batch)
        if line := _explain_cut_off(objects.name, row, end):
            raise IntegrityError(line)

    def _select_by_offsets(self, objects: ObjectSet, offsets: KeptOffsets) -> BlockSelection | None:
        """Select the blocks with records in the window. Return None if the whole object has to be read."""
        blocks = self._contents.read_block_index(objects)
        if blocks is None:
            return None
        if line := _explain_cut_off(objects.name, sum(b.num_records for b in blocks), offsets.count):
            raise IntegrityError(line)
        return select_blocks_by_offsets(blocks, offsets, *self._find_block_window(objects))

    def _find_block_window(self, objects: ObjectSet) -> tuple[int, int]:
        """Return the offsets whose blocks are read: all if bad objects are skipped, or keys or headers lie apart."""
        reads_all = not self._tolerance.fails or len(objects.objects) > 1
        return (0, MAX_OFFSET) if reads_all else (self._start, self._end)

    def _explain_offset_fault(self, item: ForeignObject, summary: OffsetSummary, _: int, bad: dict[int, str]) -> str:
        """Explain why an object with offsets is bad. Return an empty text if it is not."""
        if line := self._tolerance.explain_bad_lines(item, bad):
            return line
        if summary.least is not None and item.first_offset is not None and summary.least < item.first_offset:
            return f"object {item.key} holds offset {summary.least}, but by its name it begins at {item.first_offset}"
        return ""

    def _read_by_position(self, objects: ObjectSet, facts: OffsetFacts) -> Iterator[ConnectBatch]:
        """Read an object whose records have no known offsets. Number them on from the last record yielded."""
        item = objects.name
        try:
            blocks = self._select_by_counts(objects)
        except IntegrityError as err:
            self._skip_or_fail(item, err)
            return
        checked_object: CheckedObject | None = None
        left_out_count = 0 if blocks is None else blocks.left_out_count
        if blocks is None or left_out_count < blocks.record_count:
            open_batches = partial(self._contents.read_records, objects, blocks)
            checked_object = self._check_object(
                item, open_batches, partial(self._explain_fault, item, facts, left_out_count)
            )
        if checked_object is not None or blocks is not None:
            count = left_out_count + (0 if checked_object is None else checked_object.count)
            bounds = find_bounds(item, facts, count, self._folders.next_offsets.get(item.key))
            self.report.unnamed_object_count += item.place is None
            # Called before the first record goes out, because it may refuse the window.
            self._report_disorder(item, bounds)
            if item.first_offset is None and bounds.first is not None:
                self._report_gap(item, bounds.first)
            self._positions.note_bounds(bounds, self._folders.find_folder(item))
            if blocks is not None:
                self._positions.set_next(blocks.next_offset)
        is_proven = checked_object is not None and bounds.is_dense and self._positions.next <= (bounds.first or 0)
        for batch in () if checked_object is None else checked_object.batches:
            yield from self._place_records(objects.name, bounds.first, batch, is_proven=is_proven)
        if blocks is not None:
            # Blocks after the window count too, because the positions of the next object must not depend on the window.
            self._positions.set_next(blocks.end_offset)

    def _select_by_counts(self, objects: ObjectSet) -> BlockSelection | None:
        """Select the blocks with records in the window by counting. Return None if the object has no block index."""
        blocks = self._contents.read_block_index(objects)
        if blocks is None:
            return None
        return select_blocks_by_counts(blocks, self._positions.next, *self._find_block_window(objects))

    def _explain_fault(
        self, item: ForeignObject, facts: OffsetFacts, left_out_count: int, read_count: int, bad: dict[int, str]
    ) -> str:
        """Explain the fault of an object with these numbers of read and left out records, if it has one."""
        count = read_count + left_out_count
        if line := self._tolerance.explain_bad_lines(item, bad) or _explain_cut_off(item, count, facts.count):
            return line
        return "" if facts.is_ours or not read_count else self._explain_place(item, facts, count)

    def _explain_place(self, item: ForeignObject, facts: OffsetFacts, count: int) -> str:
        """Explain why an object of `count` records cannot have the offset in its name, if it cannot."""
        bounds = find_bounds(item, facts, count, self._folders.next_offsets.get(item.key))
        first = bounds.first
        if first is None:
            return ""
        if first < 0:
            return (
                f"object {item.key} holds {count} records, but the offset {facts.last} in its name has room for fewer"
            )
        folder = self._folders.find_folder(item)
        end = 0 if folder is None else self._positions.ends.get(folder, 0)
        if first < end:
            return (
                f"object {item.key} begins at offset {first}, but the objects before it hold records up to {end - 1}:"
                f" {_TWICE_ADVICE}"
            )
        if (shared := self._positions.find_shared(bounds, item)) is not None:
            return (
                f"object {item.key} holds offset {shared}, and so does an object before it, by their names and numbers"
                f" of records: {_TWICE_ADVICE}"
            )
        if item.first_offset is not None and item.last_offset is not None and count > item.last_offset - first + 1:
            return f"object {item.key} holds {count} records, more than its name has offsets"
        return ""

    def _report_disorder(self, item: ForeignObject, bounds: PositionBounds) -> None:
        """Report an overlap with the objects before. Refuse the object if the user chose the window (`by_offset`)."""
        if bounds.first is None or bounds.first >= self._positions.known_end:
            return
        line = (
            f"object {item.key} begins at offset {bounds.first}, those before it reach {self._positions.known_end - 1}"
        )
        if self._by_offset:
            raise PreflightError(
                f"{item.topic}-{item.kafka_partition}: {line}, and the offsets of their records are unknown: a window"
                f" of offsets would choose others. Restore without one, or by a window of time"
            )
        self.report.disordered_count += 1
        if len(self.report.disordered) < MAX_LINES:
            self.report.disordered.append(line)

    def _report_gap(self, item: ForeignObject, first: int) -> None:
        """Report the offsets between the objects before and this one (at `first`) that are in no object."""
        positions = self._positions
        start = max(positions.known_end, self._start)
        end = min(first, self._end)
        if not positions.can_show_gap or start >= end:
            return
        if not self._folders.is_one_folder:
            # The last records of the objects before may lie after this one's first, unless their offsets are known.
            self.report.unordered_count += positions.uncertain_end >= positions.known_end
            return
        self.report.gap_count += 1
        if len(self.report.gaps) < MAX_LINES:
            why = (
                "are in no object, by their names and numbers of records: an object is missing, or was emptied or cut "
                "off at the end of a line; or there never were records (markers of transactions, compaction, what the "
                "sink left out)"
            )
            missing = MissingRecords.of(item.topic, item.kafka_partition, OffsetRange(start, end), why)
            self.report.gaps.append(missing)

    def _is_before_start(self, facts: OffsetFacts, following: Sequence[ObjectSet]) -> bool:
        """Return True if names alone prove that a whole object lies before the start.

        The last object before the start is read too, as it may reach past the start. So both of the next two objects
        have to begin at the start or before it. Our own objects may overlap, so their names prove nothing.
        """
        ends = [s.name.first_offset for s in following]
        begin_early = [end is not None and end <= self._start for end in ends]
        return begin_early == [True, True] and self._folders.is_one_folder and not facts.is_ours

    def _check_object(
        self, item: ForeignObject, open_batches: Callable[[], Iterator[ReadBatch]], explain_fault: Complaint
    ) -> CheckedObject | None:
        """Read and check the whole object. Return None if it is bad and skipped."""
        try:
            # All open objects together hold at most HOLD_BYTES.
            free_bytes = HOLD_BYTES - self._merged.memory_bytes
            return check_object(
                open_batches, explain_fault, item.key, self._config.store.limits.bad_records, free_bytes
            )
        except IntegrityError as err:
            self._skip_or_fail(item, err)
            return None

    def _skip_or_fail(self, item: ForeignObject, err: IntegrityError) -> None:
        """Skip the object and report it, or fail."""
        self._tolerance.skip_object(item, err, max(self._positions.uncertain_end, item.first_offset or 0))
        self._positions.can_show_gap = False

    def _place_records(
        self, item: ForeignObject, first: int | None, read_batch: ReadBatch, *, is_proven: bool
    ) -> Iterator[ConnectBatch]:
        """Give records without offsets the next positions. Yield the records in the window, and count them."""
        offsets = self._positions.assign_offsets(first, read_batch)
        batch = self._select_records(item, replace(read_batch, offsets=offsets))
        if batch.num_rows:
            # The records that have a position in place of their own offset.
            without_offset = ~np.isin(batch.offsets, offsets[get_offsets(read_batch) == offsets])
            positions = 0 if is_proven else int(without_offset.sum())
            self.report.position_count += positions
            self.report.unnamed_count += positions if item.place is None else 0
            self.report.tombstone_count += batch.num_rows if item.is_tombstone else 0
            if self._config.layout.format == "bytes":
                ends_in_return = pc.ends_with(batch.records.column("value"), pattern=b"\r")
                self.report.return_count += pc.sum(ends_in_return).as_py() or 0
            yield self._count_records(batch)

    def _select_records(self, item: ForeignObject, read_batch: ReadBatch) -> ConnectBatch:
        """Return the records of a batch in the window, without the bad ones."""
        batch = build_connect_batch(self._config, self._group, read_batch)
        in_window = (batch.offsets >= self._start) & (batch.offsets < self._end)
        in_window[list(read_batch.bad)] = False
        self._tolerance.skip_records(item, read_batch.bad)
        return batch.take(np.flatnonzero(in_window))

    def _count_records(self, batch: ConnectBatch) -> ConnectBatch:
        """Count records for the report, and pass them on."""
        self.report.record_count += batch.num_rows
        for name in self._csv_fields:
            lengths = pc.fill_null(pc.binary_length(batch.records.column(name)), 0)
            self.report.empty_count += pc.sum(pc.equal(lengths, 0)).as_py() or 0
        if batch.num_rows:
            self.report.newest = max(self.report.newest, int(batch.timestamps.max()))
        if not self._config.layout.is_envelope:
            self.report.timeless_count += int((batch.timestamps == NO_TIMESTAMP).sum())
        return batch


_TWICE_ADVICE = (
    "records would come twice. Or they lie between one another, as in this platform's objects of several schemas if "
    "these were copied without their metadata: copy them again with it"
)


def _explain_cut_off(item: ForeignObject, read_count: int, count: int | None) -> str:
    """Explain that an object was cut off, if it has another number of records than its metadata say."""
    if count is None or read_count == count:
        return ""
    return f"object {item.key} holds {read_count} records, but {count} by its metadata: it was cut off"
