"""Chooses the records of a stream to restore: by key, SQL condition or a user's function; the latest of each key.

The last record of each key is found with bounded memory, as a compacted snapshot keeps it.
"""

import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import final

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

ROWS_AT_ONCE = 65_536

KEY_REGEX = "--key-regex (what.key_regex)"
PREDICATE = "--predicate (what.predicate)"

_REGEX_MODULE = "kafka_s3_platform.core.restore.filters.regex_process"

DecideRecords = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Decides about records; null means no."""


@final
class SqlCondition:
    """A condition such as `text(key) LIKE 'eu-%' AND "offset" % 10 = 0`: each record by itself decides.

    Columns are those of RECORD_SCHEMA: key and value are BLOBs, `timestamp` is a TIMESTAMP in UTC, `offset` needs its
    double quotes. It sees no files, no other tables and no clock, so the same record gives the same answer. A
    separate process decides it, with limits of memory and time.

    Raises:
        ConfigError: it is no such condition, does not fit the columns, or costs too much without any record.
    """

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._process = DecidingProcess(_SQL_MODULE, condition)
        try:
            self._process.passing(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA), deciding.CHECK_SECONDS)
        except FailedError as err:
            raise _explain_unusable(condition, str(err)) from err

    def passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Decide for each record. PermanentError if the condition fails for one of them."""
        parts = [
            self._passing(batch.slice(at, deciding.ROWS_AT_ONCE))
            for at in range(0, batch.num_rows, deciding.ROWS_AT_ONCE)
        ]
        if parts:
            return pa.concat_arrays(parts)
        return pa.array([], pa.bool_())

    def _passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        try:
            return self._process.passing(batch, deciding.ROWS_SECONDS)
        except FailedError as err:
            offsets = batch.column("offset")
            raise PermanentError(
                f"{OPTION} {cut_reason(repr(self._condition))} failed on a record of offsets {offsets[0]} to "
                f"{offsets[-1]}: {err}. `try(...)` makes a null of what fails, which does not pass"
            ) from err


def _explain_unusable(condition: str, why: str) -> ConfigError:
    quoted = ' Write the column offset as "offset", in double quotes.' if "offset" in why.lower() else ""
    columns = ", ".join(RECORD_SCHEMA.names)
    return ConfigError(f"{OPTION} {cut_reason(repr(condition))} is no condition over {columns}: {why}.{quoted}")


@final
class LatestOffsets:
    """Finds each key's last record in a stream of one kafka partition. It reads the stream when it is made.

    DuckDB groups by the keys themselves, not by hashes of them. It spills to the machine's temporary directory, about
    the bytes of the different keys. Measured with keys of 100 bytes: the process grew by 390 MB for 3 million different
    keys, and by as much for 7.5 million. A record is identified by its place in the stream, since a transform may have
    made several of one offset. The places come back in order, so in a second reading of the same stream `take_latest`
    needs only the next ones. Records without a key are counted and left out, as Kafka's log cleaner drops them too.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.without_key_count = 0
        self._read = self._read_again = 0
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-s3-latest-")
        self._connection = open_spilling_database(self._folder.name)
        self._ahead = np.empty(0, np.int64)
        try:
            self._offsets = self._grouped(batches)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> "LatestOffsets":
        return self

    def __exit__(self, *_: object) -> None:
        # The reader first: it uses the connection.
        self._offsets.close()
        self._release()

    def _release(self) -> None:
        self._connection.close()
        self._folder.cleanup()

    def take_latest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the latest record of each key from the next batch of the second reading."""
        if not batch.num_rows:
            return batch
        first = self._read_again
        self._read_again += batch.num_rows
        return batch.take(pa.array(self._up_to(self._read_again - 1) - first))

    def _up_to(self, last: int) -> Int64s:
        """Return the places up to `last` that were not returned before."""
        parts = [self._ahead]
        while not parts[-1].size or parts[-1][-1] <= last:
            more = next(self._offsets, None)
            if more is None:
                break
            parts.append(more)
        together = np.concatenate(parts)
        at = int(np.searchsorted(together, last, side="right"))
        self._ahead = together[at:]
        return together[:at]

    def _grouped(self, batches: Iterable[pa.RecordBatch]) -> Generator[Int64s, None, None]:
        schema = pa.schema([("key", pa.binary()), ("place", pa.int64())])
        what = "--latest-per-key (what.latest_per_key): finding the last record of each key"
        # The largest place needs no order, so DuckDB does not have to keep the stream's.
        with read_by_duckdb(schema, map(self._keyed, batches), what) as reader:
            self._connection.from_arrow(reader).aggregate("max(place) AS latest", "key").project("latest").create(
                "found"
            )
            relation = self._connection.table("found").order("latest")
            return _read_columns(relation.to_arrow_reader(ROWS_AT_ONCE))

    def _keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        first = self._read
        self._read += batch.num_rows
        key = batch.column("key")
        places = pa.array(np.arange(first, self._read))
        self.without_key_count += key.null_count
        # Places count records without a key too, so that they agree with the second reading.
        return pa.RecordBatch.from_arrays([key, places], names=["key", "place"]).filter(pc.is_valid(key))


def _read_columns(reader: pa.RecordBatchReader) -> Generator[Int64s, None, None]:
    for batch in reader:
        yield batch.column(0).to_numpy()


class FilteredStream:
    """The records of `batches` (one source kafka partition, ascending by offset) that pass all set filters.

    With `latest_per_key` the stream is read twice. The first reading is `first_pass`, or else `batches` itself, which
    must then be iterable again. Passing records without a key are then left out, as Kafka's log cleaner drops them:
    `without_key_count` counts them. Counts are of the records iterated so far.

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
        read = map(self._read, self._batches)
        if not self._latest_per_key:
            yield from self._counted(self._passing(read))
            return
        with LatestOffsets(self._passing(self._first_pass)) as latest:
            self.without_key_count = latest.without_key_count
            yield from self._counted(map(latest.take_latest, self._passing(read)))

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.read_count += batch.num_rows
        return batch

    def _passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for mask in self._masks:
                batch = _apply_mask(batch, mask)  # noqa: PLW2901 - each mask sees what the ones before it let pass
            yield batch

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
            raise ConfigError(f"{KEY_REGEX} {text!r} is no Python regular expression: {err}") from err
        self._text = text

    def passing(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        """Decide about keys. Raises FailedError if it takes too long."""
        size = deciding.ROWS_AT_ONCE
        batches = (pa.record_batch({"key": keys.slice(at, size)}) for at in range(0, len(keys), size))
        answers = [self._process.passing(batch, deciding.ROWS_SECONDS) for batch in batches]
        if answers:
            return pa.concat_arrays(answers)
        return pa.array([], pa.bool_())

    @cached_property
    def _process(self) -> DecidingProcess:
        return DecidingProcess(_REGEX_MODULE, self._text)


def check_filter(records: RecordFilter) -> None:
    """Raise ConfigError with the option's name if a part of the filter cannot be used. Reads no record."""
    _build_masks(records)


def is_filtered(records: RecordFilter) -> bool:
    """Return True if any filter is set. Then the number of passing records is known only after reading them."""
    return records != RecordFilter()


def _build_masks(records: RecordFilter) -> list[DecideRecords]:
    masks: list[DecideRecords] = []
    if records.keys or records.key_prefixes or records.key_regex is not None:
        masks.append(_build_key_mask(records))
    if records.sql is not None:
        masks.append(SqlCondition(records.sql).passing)
    if records.predicate is not None:
        masks.append(_build_function_mask(records.predicate))
    return masks


def _apply_mask(batch: pa.RecordBatch, mask: DecideRecords) -> pa.RecordBatch:
    # No mask gets an empty batch: their error messages name its first offset.
    return batch.filter(mask(batch)) if batch.num_rows else batch


def _build_key_mask(records: RecordFilter) -> DecideRecords:
    tests: list[Callable[[pa.BinaryArray], pa.BooleanArray]] = []
    if records.keys:
        tests.append(partial(pc.is_in, value_set=pa.array(records.keys, pa.binary())))
    tests += [partial(pc.starts_with, pattern=prefix) for prefix in records.key_prefixes]
    if records.key_regex is not None:
        tests.append(KeyRegex(records.key_regex).passing)
    return partial(_test_keys, tests)


def _test_keys(tests: Sequence[Callable[[pa.BinaryArray], pa.BooleanArray]], batch: pa.RecordBatch) -> pa.BooleanArray:
    """Test each different key of the batch once."""
    keys = pc.dictionary_encode(batch.column("key"))
    try:
        matches, *others = (test(keys.dictionary) for test in tests)
    except FailedError as err:
        offsets = batch.column("offset")
        raise PermanentError(
            f"{KEY_REGEX} failed on a key of offsets {offsets[0]} to {offsets[-1]}: {err}. Some keys take for ever "
            f"where repetitions are inside of repetitions, as in (a+)+: write it without, or choose by --sql (what.sql)"
        ) from err
    for answer in others:
        matches = pc.or_(matches, answer)
    return matches.take(keys.indices)


def _build_function_mask(dotted: str) -> DecideRecords:
    function = load_function(dotted, PREDICATE)
    option = f"{PREDICATE} {dotted}"
    # An empty batch shows an unusable function before any record is read.
    try:
        mask = function(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA))
    except Exception as err:
        raise ConfigError(f"{option} failed on an empty batch: {type(err).__name__}: {err}") from err
    if flaw := _find_flaw(mask, 0):
        raise ConfigError(f"{option} gave back {flaw}")
    return partial(_apply_function, option, function)


def _apply_function(
    option: str, function: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch
) -> pa.BooleanArray:
    where = f"{option} on {batch.num_rows} records from offset {batch.column('offset')[0]} on"
    try:
        mask = function(batch)
    except PlatformError:
        raise
    except Exception as err:
        raise PermanentError(f"{where} failed: {type(err).__name__}: {err}") from err
    if flaw := _find_flaw(mask, batch.num_rows):
        raise PermanentError(f"{where} gave back {flaw}")
    return mask


def _find_flaw(mask: object, count: int) -> str | None:
    if not isinstance(mask, pa.Array) or mask.type != pa.bool_():
        kind = mask.type if isinstance(mask, pa.Array | pa.ChunkedArray) else type(mask).__name__
        return f"{kind}, not a boolean pyarrow.Array"
    if len(mask) == count:
        return None
    return f"{len(mask)} values for {count} records"
