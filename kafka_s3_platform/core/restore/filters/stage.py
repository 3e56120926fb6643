"""Chooses the records of a stream to restore: by key, SQL condition or a user's function, or the latest of each key.

The last record of each key, as a compacted snapshot keeps it, is found with bounded memory.
"""

import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TypeVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.plugins import load_function
from kafka_s3_platform.core.errors import ConfigError, PermanentError, PlatformError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import Int64s, cut_reason
from kafka_s3_platform.core.restore.filters import deciding
from kafka_s3_platform.core.restore.filters.deciding import DecidingProcess, FailedError
from kafka_s3_platform.core.restore.request import RecordFilter
from kafka_s3_platform.core.restore.spill import open_spilling_database, read_by_duckdb

OPTION = "--sql (what.sql)"

_SQL_MODULE = "kafka_s3_platform.core.restore.filters.sql_process"

LATEST_ROWS_AT_ONCE = 65_536
"""The number of last records whose places DuckDB returns at once."""

KEY_REGEX = "--key-regex (what.key_regex)"
PREDICATE = "--predicate (what.predicate)"

_REGEX_MODULE = "kafka_s3_platform.core.restore.filters.regex_process"

DecideRecords = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Decides which records of a batch, which is never empty, pass a filter. Null means no."""

T = TypeVar("T", pa.RecordBatch, pa.BinaryArray)


@final
class SqlCondition:
    """A condition such as `text(key) LIKE 'eu-%' AND "offset" % 10 = 0`, decided for each record by itself.

    Its columns are as in RECORD_SCHEMA: key and value are BLOBs, `timestamp` is a TIMESTAMP in UTC, `offset` needs its
    double quotes. It sees no files, no other tables and no clock, so the same record gives the same answer. A separate
    process decides it, with limits of memory and time.

    Raises:
        ConfigError: the text is no such condition, does not fit the columns, or costs too much even without any record.
    """

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._process = DecidingProcess(_SQL_MODULE, condition)
        try:
            self._process.decide(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA), deciding.CHECK_SECONDS)
        except FailedError as err:
            why = str(err)
            quoted = ' Write the column offset as "offset", in double quotes.' if "offset" in why.lower() else ""
            columns = ", ".join(RECORD_SCHEMA.names)
            raise ConfigError(
                f"{OPTION} {cut_reason(repr(condition))} is not a condition over {columns}: {why}.{quoted}"
            ) from err

    def decide(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Decide for each record of a non-empty batch. Raises PermanentError if the condition fails for one of them."""
        return pa.concat_arrays([self._decide_part(part) for part in _split_rows(batch)])

    def _decide_part(self, part: pa.RecordBatch) -> pa.BooleanArray:
        """Decide for the records the process gets at once. An error names their offsets."""
        try:
            return self._process.decide(part, deciding.ROWS_SECONDS)
        except FailedError as err:
            offsets = part.column("offset")
            raise PermanentError(
                f"{OPTION} {cut_reason(repr(self._condition))} failed on a record of offsets {offsets[0]} to "
                f"{offsets[-1]}: {err}. `try(...)` turns a failure into null, which does not pass"
            ) from err


def _split_rows(rows: T) -> Iterator[T]:
    """Split a batch, or a column, into parts of at most `deciding.ROWS_AT_ONCE` rows."""
    for start in range(0, len(rows), deciding.ROWS_AT_ONCE):
        yield rows.slice(start, deciding.ROWS_AT_ONCE)


@final
class LatestOffsets:
    """Finds each key's last record in a stream of one kafka partition. It reads the stream when it is made.

    DuckDB groups by the keys themselves, not by hashes of them. It spills about the bytes of the different keys to the
    machine's temporary directory. Measured with keys of 100 bytes, the process grew by 390 MB for 3 million different
    keys, and by as much for 7.5 million. A record is identified by its place in the stream, since a transform may have
    made several records of one offset. The places come back in order, so in a second reading of the same stream
    `take_latest` needs only the next ones. Records without a key are counted and left out, because Kafka's log cleaner
    drops them too.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.without_key_count = 0
        self._first_count = self._second_count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-s3-latest-")
        self._connection = open_spilling_database(self._folder.name)
        self._unused = np.empty(0, np.int64)
        try:
            self._places = self._find_latest(batches)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> "LatestOffsets":
        return self

    def __exit__(self, *_: object) -> None:
        # The reader is closed first, because it uses the connection.
        self._places.close()
        self._release()

    def _release(self) -> None:
        """Close DuckDB, and delete its temporary files."""
        self._connection.close()
        self._folder.cleanup()

    def take_latest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the latest record of each key from the next batch of the second reading."""
        if not batch.num_rows:
            return batch
        first = self._second_count
        self._second_count += batch.num_rows
        return batch.take(pa.array(self._take_places(self._second_count - 1) - first))

    def _take_places(self, last: int) -> Int64s:
        """Return the places of latest records up to the place `last`, except the ones already returned."""
        parts = [self._unused]
        while not parts[-1].size or parts[-1][-1] <= last:
            more = next(self._places, None)
            if more is None:
                break
            parts.append(more)
        together = np.concatenate(parts)
        at = int(np.searchsorted(together, last, side="right"))
        self._unused = together[at:]
        return together[:at]

    def _find_latest(self, batches: Iterable[pa.RecordBatch]) -> Generator[Int64s, None, None]:
        """Read the stream. Return the places of each key's last record in it, ascending."""
        schema = pa.schema([("key", pa.binary()), ("place", pa.int64())])
        what = "--latest-per-key (what.latest_per_key): finding the last record of each key"
        # The largest place needs no order, so DuckDB does not have to keep the stream's order.
        with read_by_duckdb(schema, map(self._number_keys, batches), what) as reader:
            self._connection.from_arrow(reader).aggregate("max(place) AS latest", "key").project("latest").create(
                "found"
            )
            relation = self._connection.table("found").order("latest")
            return (part.column(0).to_numpy() for part in relation.to_arrow_reader(LATEST_ROWS_AT_ONCE))

    def _number_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the keys of the next batch of the first reading, each with its record's place in the stream."""
        first = self._first_count
        self._first_count += batch.num_rows
        key = batch.column("key")
        places = pa.array(np.arange(first, self._first_count))
        self.without_key_count += key.null_count
        # Places count records without a key too, so that they agree with the second reading.
        return pa.RecordBatch.from_arrays([key, places], names=["key", "place"]).filter(pc.is_valid(key))


class FilteredStream:
    """The records of `batches` (one source kafka partition, ascending by offset) that pass all set filters.

    With `latest_per_key` the stream is read twice. The first reading is `first_pass`, or else `batches` itself, which
    must then be iterable again. Passing records without a key are then left out, because Kafka's log cleaner drops
    them: `without_key_count` counts them. Counts are of the records iterated so far.

    Raises:
        ConfigError: a part of the filter cannot be used.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        records: RecordFilter,
        first_pass: Iterable[pa.RecordBatch] | None = None,
    ) -> None:
        self._batches = batches
        self._first_pass = batches if first_pass is None else first_pass
        self._masks = _build_masks(records)
        self._latest_per_key = records.latest_per_key
        if self._latest_per_key and self._first_pass is batches and isinstance(batches, Iterator):
            raise ValueError("latest_per_key reads the stream twice: give one that can be iterated again")
        self.read_count = self.passed_count = self.without_key_count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = self._filter(map(self._count_read, self._batches))
        if not self._latest_per_key:
            yield from self._count_passed(batches)
            return
        with LatestOffsets(self._filter(self._first_pass)) as latest:
            self.without_key_count = latest.without_key_count
            yield from self._count_passed(map(latest.take_latest, batches))

    def _count_read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count the records of a batch just read, and return it."""
        self.read_count += batch.num_rows
        return batch

    def _filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of each batch, perhaps none, that pass the filters on single records."""
        for batch in batches:
            passing = batch
            for mask in self._masks:
                # No mask gets an empty batch: their error messages name its first offset.
                passing = passing.filter(mask(passing)) if passing.num_rows else passing
            yield passing

    def _count_passed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with records, and count the records."""
        for batch in batches:
            if batch.num_rows:
                self.passed_count += batch.num_rows
                yield batch


class KeyRegex:
    """A Python regular expression for complete keys. A separate process with limits matches them.

    Raises:
        ConfigError: the text is no such expression.
    """

    def __init__(self, text: str) -> None:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as err:
            raise ConfigError(f"{KEY_REGEX} {text!r} is not a valid Python regular expression: {err}") from err
        self._text = text

    def decide(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        """Decide for each key if it matches. Raises FailedError if it takes too long."""
        batches = (pa.record_batch({"key": part}) for part in _split_rows(keys))
        answers = [self._process.decide(batch, deciding.ROWS_SECONDS) for batch in batches]
        return pa.concat_arrays([pa.array([], pa.bool_()), *answers])

    @cached_property
    def _process(self) -> DecidingProcess:
        return DecidingProcess(_REGEX_MODULE, self._text)


def check_filter(records: RecordFilter) -> None:
    """Raise ConfigError with the option's name if a part of the filter cannot be used. It reads no record."""
    _build_masks(records)


def is_filtered(records: RecordFilter) -> bool:
    """Return True if any filter is set. Then the number of passing records is known only after reading them."""
    return records != RecordFilter()


def _build_masks(records: RecordFilter) -> list[DecideRecords]:
    """Return a function for each set filter on single records. Raises ConfigError if one cannot be used."""
    masks: list[DecideRecords] = []
    if records.keys or records.key_prefixes or records.key_regex is not None:
        masks.append(_build_key_mask(records))
    if records.sql is not None:
        masks.append(SqlCondition(records.sql).decide)
    if records.predicate is not None:
        masks.append(_build_function_mask(records.predicate))
    return masks


def _build_key_mask(records: RecordFilter) -> DecideRecords:
    """Return the filter on keys: one of `keys`, `key_prefixes` and `key_regex` must match."""
    tests: list[Callable[[pa.BinaryArray], pa.BooleanArray]] = []
    if records.keys:
        tests.append(partial(pc.is_in, value_set=pa.array(records.keys, pa.binary())))
    tests += [partial(pc.starts_with, pattern=prefix) for prefix in records.key_prefixes]
    if records.key_regex is not None:
        tests.append(KeyRegex(records.key_regex).decide)
    return partial(_test_keys, tests)


def _test_keys(tests: Sequence[Callable[[pa.BinaryArray], pa.BooleanArray]], batch: pa.RecordBatch) -> pa.BooleanArray:
    """Decide for each record if its key passes one of the tests. Each different key of the batch is tested once."""
    keys = pc.dictionary_encode(batch.column("key"))
    try:
        matches, *others = (test(keys.dictionary) for test in tests)
    except FailedError as err:
        offsets = batch.column("offset")
        raise PermanentError(
            f"{KEY_REGEX} failed on a key of offsets {offsets[0]} to {offsets[-1]}: {err}. Nested repetitions, as in "
            "(a+)+, can take for ever on some keys: write the expression without them, or select by --sql (what.sql)"
        ) from err
    for answer in others:
        matches = pc.or_(matches, answer)
    return matches.take(keys.indices)


def _build_function_mask(dotted: str) -> DecideRecords:
    """Return a user's function as a filter with checked answers. Raises ConfigError if it fails on an empty batch."""
    function = load_function(dotted, PREDICATE)
    option = f"{PREDICATE} {dotted}"
    try:
        mask = function(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA))
    except Exception as err:
        raise ConfigError(f"{option} failed on an empty batch: {type(err).__name__}: {err}") from err
    if flaw := _find_flaw(mask, 0):
        raise ConfigError(f"{option} returned {flaw}")
    return partial(_apply_function, option, function)


def _apply_function(
    option: str, function: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch
) -> pa.BooleanArray:
    """Decide by a user's function. Raises PermanentError if it fails, or if its answer cannot be used."""
    where = f"{option} on {batch.num_rows} records from offset {batch.column('offset')[0]} on"
    try:
        mask = function(batch)
    except PlatformError:
        raise
    except Exception as err:
        raise PermanentError(f"{where} failed: {type(err).__name__}: {err}") from err
    if flaw := _find_flaw(mask, batch.num_rows):
        raise PermanentError(f"{where} returned {flaw}")
    return mask


def _find_flaw(mask: object, count: int) -> str | None:
    """Describe why a user's answer for `count` records cannot be used. Return None if it can."""
    if not isinstance(mask, pa.Array) or mask.type != pa.bool_():
        kind = mask.type if isinstance(mask, pa.Array | pa.ChunkedArray) else type(mask).__name__
        return f"{kind}, not a boolean pyarrow.Array"
    if len(mask) == count:
        return None
    return f"{len(mask)} values for {count} records"
