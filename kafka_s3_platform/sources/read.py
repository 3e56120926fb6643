"""The records of objects that hold values alone, or what other sinks keep around them, of one source kafka partition.

Offsets are real where they are told: by each record (an envelope, Aiven's), by what our own sink keeps beside its
objects, by the blocks of Block-GZIP. Such records are merged by them, whatever objects they are in. Else offsets are
positions, counted from the first offset in the object's name, or on from the record before where there is none, and
order is that of the objects. Timestamps that are not told are NO_TIMESTAMP: nothing is made up from folders.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.formats.aiven_reader import HEADERS
from kafka_s3_platform.formats.envelopes import is_envelope
from kafka_s3_platform.formats.kept_offsets import KeptOffsets
from kafka_s3_platform.formats.reading import ReadBatch, bytes_payload
from kafka_s3_platform.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.model.offsets import MAX_OFFSET
from kafka_s3_platform.model.record import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.sources.blocks import WantedBlocks, told_blocks, wanted_blocks
from kafka_s3_platform.sources.contents import HOLD_BYTES, Checked, Complaint, Contents, as_kafka, checked
from kafka_s3_platform.sources.merged import Merged, in_order
from kafka_s3_platform.sources.objects import MAX_LINES, BadObject, ForeignObject, ObjectGroup, ObjectSet
from kafka_s3_platform.sources.positions import Extent, Folders, Reach, extent_of
from kafka_s3_platform.sources.report import ReadReport
from kafka_s3_platform.sources.told import ToldOffsets, told_of
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

_NO_TIMESTAMP_TYPE = -1
_CREATE_TIME = 0


class ForeignStream:
    """The records of one group of objects, ascending by offset, of source offsets [`start_offset`, `end_offset`).

    Objects and blocks that hold none of them are not read, where that can be told without it.
    An object goes out only when all of it was read: every record decoded, as many keys and headers as values, as many
    records as its metadata say. Then `behavior.on.error` decides about one that is not so: it fails, or is skipped and
    reported; single lines of JSON are skipped alone, and so are records of an offset that was there already. Iterated,
    it gives batches of RECORD_SCHEMA; `batches` gives them with decoded values and their schemas. Where values are Avro
    data of a schema, their column holds the bare data. `by_offset` says that the offsets are a window that was asked
    for, which is refused where it would be one of positions in another order. `left_out` is what was decided before
    (object key -> why): these objects are skipped unseen, and no others.

    Raises (when iterated):
        IntegrityError: an object is missing, replaced, damaged or not thawed, and `behavior.on.error` is `fail`, or it
            is not among those that were to be left out.
        PreflightError: `by_offset`, and objects lie between one another that do not tell the offsets of their records.
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
        self._left_out = left_out
        self._config, self._group, self._start = config, group, start_offset
        self._end = MAX_OFFSET if end_offset is None else end_offset
        self._store = store or ObjectStore(config.store)
        self._contents, self._folders = Contents(config, self._store), Folders(config, group)
        self._limits, self._by_offset = config.store.limits, by_offset
        behavior = (config.source or SourceSettings()).behavior_on_error
        # An earlier run has left out what is bad: its records of a good object too.
        self._behavior = "ignore" if left_out is not None and behavior == "fail" else behavior
        self._begin()

    def _begin(self) -> None:
        self.report = ReadReport()
        self._positions, self._merged = Reach(), Merged(self._is_repeated)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (batch.records for batch in self.batches())

    def batches(self) -> Iterator[ConnectBatch]:
        """The records with their keys and values as payloads."""
        if self._by_offset and not self._is_order_told():
            # Before the first record goes out, all are looked at.
            for _ in self._in_order():
                pass
        yield from self._in_order()

    def _in_order(self) -> Iterator[ConnectBatch]:
        self._begin()
        sets = self._sets()
        for at, (first, objects) in enumerate(sets):
            if first >= self._end:
                break
            for batch in self._merged.before(first):
                yield self._counted(batch)
            if self._is_left_out(objects.name):
                self._positions.is_whole = False
            elif line := objects.lacks(self._config.layout):
                self._is_bad(objects.name, IntegrityError(line))
            else:
                yield from self._begun(objects, [s for _, s in sets[at + 1 : at + 3]])
        for batch in self._merged.before(None):
            yield self._counted(batch)

    @property
    def _each_tells(self) -> bool:
        """Whether each record has its offset with it, by the source's file."""
        layout, source = self._config.layout, self._config.source or SourceSettings()
        if is_envelope(layout.format) or source.offset_field is not None:
            return True
        return layout.format.startswith(("aiven.", "lenses.")) and "offset" in source.fields

    def _is_order_told(self) -> bool:
        """Whether no object may lie between others without telling where its records are."""
        if self._each_tells:
            return True
        try:
            before = [s.name for s in self._group.sets if (s.name.first_offset or 0) < self._end]
            # One at a time: the offsets of all objects at once may be many.
            told = (told_of(self._config, self._store, item) for item in before)
            return all(t.offsets is not None or (self._folders.is_one and not t.is_ours) for t in told)
        except IntegrityError:
            return False

    def _sets(self) -> list[tuple[int, ObjectSet]]:
        """The sets by where they begin, which has to be read where their records tell it and their names do not."""
        if not self._each_tells:
            return [(s.name.first_offset or 0, s) for s in self._group.sets]
        begins = [(self._least(s) if s.name.first_offset is None else s.name.first_offset, s) for s in self._group.sets]
        return sorted(((first, s) for first, s in begins if first is not None), key=lambda begin: begin[0])

    def _begun(self, objects: ObjectSet, following: Sequence[ObjectSet]) -> Iterator[ConnectBatch]:
        """What goes out of an object at once. Where it tells its records' offsets, they go out with those of others."""
        try:
            told = told_of(self._config, self._store, objects.name)
        except IntegrityError as err:
            self._is_bad(objects.name, err)
            return
        self._tell_gap(objects.name)
        if self._each_tells or (told.offsets is not None and self._is_clear(told.offsets.first)):
            if told.last is None or told.last >= self._start:
                self._merge(objects, told)
            else:
                self._positions.told(told.last)
        elif self._is_past(told, following):
            self._positions.is_whole = False
        else:
            for batch in self._merged.before(None):
                yield self._counted(batch)
            yield from self._by_position(objects, told)

    def _is_clear(self, first: int) -> bool:
        """Whether no record without a told offset lies, or was put, there or behind."""
        return first >= self._positions.blurred

    def _merge(self, objects: ObjectSet, told: ToldOffsets) -> None:
        """Read an object whose records tell their offsets, the least of which is due."""
        item, seen = objects.name, _Seen()
        found = self._sure(
            item, partial(self._looked_at, objects, told, seen), partial(self._fault_of_told, item, seen)
        )
        if found is None:
            return
        if seen.least is None:
            self._tell_bad(item, found)
            return
        is_ascending = seen.is_ascending
        self._positions.told(seen.greatest)
        kept = map(partial(self._kept, item), found.batches)
        batches: Iterator[ConnectBatch] = (batch for batch in kept if batch.num_rows)
        if not is_ascending and not found.is_held:
            what = f"object {item.key}: its offsets do not ascend, and it is too large to be sorted in memory"
            self._is_bad(item, IntegrityError(what))
            return
        if not is_ascending:
            batches = in_order([(item.key, batch) for batch in batches], self._is_repeated)
        self._merged.add(item.key, batches, found.held_bytes)

    def _least(self, objects: ObjectSet) -> int | None:
        """The least offset of an object whose name does not tell it, None of one that is bad or empty."""
        seen = _Seen()
        if self._is_left_out(objects.name):
            return None
        opened = partial(self._looked_at, objects, ToldOffsets(), seen)
        found = self._sure(objects.name, opened, partial(self._fault_of_told, objects.name, seen))
        if found is not None and seen.least is None:
            self._tell_bad(objects.name, found)
        return seen.least

    def _tell_bad(self, item: ForeignObject, found: Checked) -> None:
        """Say of the records of an object that is not sent, as none of them is good, why they are bad."""
        for batch in found.batches:
            self._kept(item, batch)

    def _looked_at(self, objects: ObjectSet, told: ToldOffsets, seen: "_Seen") -> Iterator[ReadBatch]:
        for batch in self._with_offsets(objects, told):
            seen.add(batch)
            yield batch

    def _with_offsets(self, objects: ObjectSet, told: ToldOffsets) -> Iterator[ReadBatch]:
        """The records of an object with the offsets that it, or each of them, tells; one that tells none is bad."""
        blocks = None if told.offsets is None else self._told_blocks(objects, told.offsets)
        row, end = (0, told.count) if blocks is None else blocks.rows
        for found in self._contents.records(objects, blocks):
            if end is not None and row + len(found) > end:
                raise IntegrityError(f"object {objects.name.key} holds more than the {end} records that are told of it")
            if told.offsets is None:
                yield _with_untold_as_bad(found)
            else:
                yield replace(found, offsets=told.offsets.of(row, len(found)))
            row += len(found)
        if what := _cut_off(objects.name, row, end):
            raise IntegrityError(what)

    def _told_blocks(self, objects: ObjectSet, offsets: KeptOffsets) -> WantedBlocks | None:
        blocks = self._contents.blocks(objects)
        if blocks is None:
            return None
        if what := _cut_off(objects.name, sum(b.num_records for b in blocks), offsets.count):
            raise IntegrityError(what)
        return told_blocks(blocks, offsets, *self._window_of_blocks(objects))

    def _window_of_blocks(self, objects: ObjectSet) -> tuple[int, int]:
        """What is skipped if any of it is bad has to be looked at as a whole, and so has what lies beside others."""
        is_whole = self._behavior != "fail" or len(objects.objects) > 1
        return (0, MAX_OFFSET) if is_whole else (self._start, self._end)

    def _fault_of_told(self, item: ForeignObject, seen: "_Seen", _: int, bad: dict[int, str]) -> str:
        if what := self._fault_of_lines(item, bad):
            return what
        if seen.least is not None and item.first_offset is not None and seen.least < item.first_offset:
            return f"object {item.key} holds offset {seen.least}, its name says that it begins at {item.first_offset}"
        return ""

    def _fault_of_lines(self, item: ForeignObject, bad: dict[int, str]) -> str:
        if not bad or self._behavior != "fail":
            return ""
        return f"object {item.key} holds what cannot be read: {'; '.join(list(bad.values())[:3])}"

    def _is_repeated(self, key: str, offsets: Int64s) -> None:
        """Of records of one offset the first counts; each other one is a bad record."""
        shown = f"offset {offsets[0]}" + (f" and {len(offsets) - 1} others" if len(offsets) > 1 else "")
        line = f"object {key}: it holds {shown} again, which it held before, or an object before it"
        if self._behavior == "fail":
            where = f"{self._group.topic}-{self._group.kafka_partition}"
            raise IntegrityError(f"{where}: {line}: records would come twice")
        self.report.skipped_record_count += len(offsets)
        self._skipped(self.report.skipped_records, line)

    def _by_position(self, objects: ObjectSet, told: ToldOffsets) -> Iterator[ConnectBatch]:
        """The records of an object that does not tell their offsets, behind all that went out."""
        item = objects.name
        try:
            blocks = self._wanted_blocks(objects)
        except IntegrityError as err:
            self._is_bad(item, err)
            return
        found: Checked | None = None
        left_out = 0 if blocks is None else blocks.left_out_count
        if blocks is None or left_out < blocks.record_count:
            opened = partial(self._contents.records, objects, blocks)
            found = self._sure(item, opened, partial(self._fault, item, told, left_out))
        if found is not None or blocks is not None:
            extent = extent_of(item, told, left_out + (0 if found is None else found.count))
            self._tell_disorder(item, extent)
            self._positions.counted(extent.end, self._folders.of(item))
            if blocks is not None:
                self._positions.put(blocks.next_offset)
        is_proven = found is not None and extent.is_dense and self._positions.next <= extent.first
        for batch in () if found is None else found.batches:
            yield from self._sent(objects.name, extent.first, batch, is_proven=is_proven)
        if blocks is not None:
            # Also behind the window: where records begin must not depend on what of it was read.
            self._positions.put(blocks.end_offset)

    def _wanted_blocks(self, objects: ObjectSet) -> WantedBlocks | None:
        blocks = self._contents.blocks(objects)
        if blocks is None:
            return None
        return wanted_blocks(blocks, self._positions.next, *self._window_of_blocks(objects))

    def _fault(self, item: ForeignObject, told: ToldOffsets, left_out: int, found: int, bad: dict[int, str]) -> str:
        """What is wrong with an object of so many records, of which some are bad, and `left_out` more; or nothing."""
        count, folder = found + left_out, self._folders.of(item)
        if what := self._fault_of_lines(item, bad) or _cut_off(item, count, told.count):
            return what
        first, end = extent_of(item, told, count).first, 0 if folder is None else self._positions.ends.get(folder, 0)
        if told.is_ours or not found or first < 0:
            return ""
        if first < end:
            return (
                f"object {item.key} begins at offset {first}, but the objects before it hold records up to {end - 1}:"
                f" records would come twice"
            )
        if item.first_offset is not None and item.last_offset is not None and count > item.last_offset - first + 1:
            return f"object {item.key} holds {count} records, more than its name has offsets"
        return ""

    def _tell_disorder(self, item: ForeignObject, extent: Extent) -> None:
        """Say that an object holds records which lay between those of the objects before it."""
        if extent.first < 0 or extent.first >= self._positions.reached:
            return
        line = f"object {item.key} begins at offset {extent.first}, those before it reach {self._positions.reached - 1}"
        if self._by_offset:
            raise PreflightError(
                f"{item.topic}-{item.kafka_partition}: {line}, and nothing tells the offsets of their records: a window"
                f" of offsets would choose others. Restore without one, or by a window of time"
            )
        if len(self.report.disordered) < MAX_LINES:
            self.report.disordered.append(line)

    def _tell_gap(self, item: ForeignObject) -> None:
        """Say which offsets between the objects before and this one are in none of them."""
        first, at = item.first_offset, self._positions
        if first is None or not at.is_whole or not self._folders.is_one:
            return
        start, end = max(at.reached, self._start), min(first, self._end)
        if start < end and len(self.report.gaps) < MAX_LINES:
            self.report.gaps.append(
                f"{item.topic}-{item.kafka_partition}: offsets [{start}, {end}) are in no object, by their names and"
                f" numbers of records: an object is missing, or was emptied or cut off at the end of a line; or there"
                f" never were records (markers of transactions, compaction, what the sink left out)"
            )

    def _is_past(self, told: ToldOffsets, following: Sequence[ObjectSet]) -> bool:
        """Whether all of an object lies before the start, which is told without reading it.

        The one before the first that is read is read too: it may reach into that. Our own lie between one another.
        """
        ends = [s.name.first_offset for s in following]
        are_before = [end is not None and end <= self._start for end in ends]
        return are_before == [True, True] and self._folders.is_one and not told.is_ours

    def _sure(self, item: ForeignObject, opened: Callable[[], Iterator[ReadBatch]], fault: Complaint) -> Checked | None:
        """An object, once all of it was read without fault; None of one that is skipped."""
        try:
            room = HOLD_BYTES - self._merged.held_bytes
            return checked(opened, fault, item.key, self._limits.bad_records, room)
        except IntegrityError as err:
            self._is_bad(item, err)
            return None

    def _is_bad(self, item: ForeignObject, err: IntegrityError) -> None:
        """Fail, or skip the object and say so."""
        if self._behavior == "fail" or self._left_out is not None:
            raise IntegrityError(f"{item.topic}-{item.kafka_partition}: {err}") from err
        self._positions.is_whole = False
        start = max(self._positions.blurred, item.first_offset or 0)
        self.report.bad_objects.setdefault(item.key, BadObject(item.key, start, str(err)))
        if str(err) not in self.report.skipped_objects:
            self._skipped(self.report.skipped_objects, str(err))

    def _is_left_out(self, item: ForeignObject) -> bool:
        why = (self._left_out or {}).get(item.key)
        if why is not None and why not in self.report.skipped_objects:
            self._skipped(self.report.skipped_objects, why)
        return why is not None

    def _sent(self, item: ForeignObject, first: int, found: ReadBatch, *, is_proven: bool) -> Iterator[ConnectBatch]:
        offsets = self._positions.offsets(first, found)
        batch = self._kept(item, replace(found, offsets=offsets))
        if batch.num_rows:
            untold = ~np.isin(batch.offsets, offsets[_offsets(found) == offsets])
            positions = 0 if is_proven else int(untold.sum())
            self.report.position_count += positions
            self.report.unnamed_count += positions if item.place is None else 0
            self.report.tombstone_count += batch.num_rows if item.is_tombstone else 0
            yield self._counted(batch)

    def _kept(self, item: ForeignObject, found: ReadBatch) -> ConnectBatch:
        """The records of a batch that are in the window, without the bad ones."""
        batch = self._batch(found)
        kept = (batch.offsets >= self._start) & (batch.offsets < self._end)
        for row, why in found.bad.items():
            kept[row] = False
            self.report.skipped_record_count += 1
            self._skipped(self.report.skipped_records, f"object {item.key}: {why}")
        return batch.take(np.flatnonzero(kept))

    def _batch(self, found: ReadBatch) -> ConnectBatch:
        records, size = self._config.records, len(found)
        value = as_kafka(found.value, records.value)
        key = bytes_payload(pa.nulls(size, pa.binary())) if found.key is None else as_kafka(found.key, records.key)
        times = np.full(size, NO_TIMESTAMP, np.int64) if found.timestamps is None else found.timestamps
        kinds = pa.array(np.where(times == NO_TIMESTAMP, _NO_TIMESTAMP_TYPE, _CREATE_TIME), pa.int32())
        columns = [
            key.raw,
            value.raw,
            pa.nulls(size, HEADERS) if found.headers is None else found.headers,
            pa.repeat(self._group.topic, size),
            pa.array(np.full(size, self._group.kafka_partition), pa.int32()),
            pa.array(found.offsets),
            pa.array(times).cast(RECORD_SCHEMA.field("timestamp").type),
            kinds if found.timestamp_types is None else found.timestamp_types,
        ]
        return ConnectBatch(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), key, value)

    def _counted(self, batch: ConnectBatch) -> ConnectBatch:
        self.report.record_count += batch.num_rows
        if not is_envelope(self._config.layout.format):
            self.report.timeless_count += int((batch.timestamps == NO_TIMESTAMP).sum())
        return batch

    def _skipped(self, lines: list[str], line: str) -> None:
        if len(lines) < MAX_LINES:
            lines.append(line)
        if self._behavior == "log":
            logger.warning("skipped: %s", line)


def read(
    config: ConnectorConfig, group: ObjectGroup, store: ObjectStore | None = None, start_offset: int = 0
) -> ForeignStream:
    """The records of a group of objects, as batches of RECORD_SCHEMA, ascending by offset."""
    return ForeignStream(config, group, store, start_offset)


class _Seen:
    """What the offsets of an object are, batch by batch, those of bad records apart."""

    def __init__(self) -> None:
        self.least: int | None = None
        self.greatest = -1
        self.is_ascending = True

    def add(self, found: ReadBatch) -> None:
        offsets = np.delete(_offsets(found), list(found.bad))
        if not len(offsets):
            return
        least = int(offsets.min())
        self.is_ascending = self.is_ascending and least > self.greatest and bool((np.diff(offsets) > 0).all())
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = max(self.greatest, int(offsets.max()))


def _offsets(found: ReadBatch) -> Int64s:
    return np.full(len(found), -1, np.int64) if found.offsets is None else found.offsets


def _with_untold_as_bad(found: ReadBatch) -> ReadBatch:
    offsets = _offsets(found)
    untold = np.flatnonzero(offsets < 0).tolist()
    bad = {row: f"its record {row + 1} of those read at once tells no offset" for row in untold} | dict(found.bad)
    return replace(found, offsets=offsets, bad=bad) if untold else found


def _cut_off(item: ForeignObject, found: int, count: int | None) -> str:
    if count is None or found == count:
        return ""
    return f"object {item.key} holds {found} records, its metadata say {count}: it was cut off"
