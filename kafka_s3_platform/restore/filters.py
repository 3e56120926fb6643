"""Which records of a stream are restored: by key, SQL condition or a user's function; the latest of each key."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.plugins import load_function
from kafka_s3_platform.errors import ConfigError, PermanentError, PlatformError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.restore import deciding
from kafka_s3_platform.restore.deciding import DecidingProcess, FailedError
from kafka_s3_platform.restore.latest import LatestOffsets
from kafka_s3_platform.restore.request import RecordFilter
from kafka_s3_platform.restore.sql import SqlCondition

KEY_REGEX, PREDICATE = "--key-regex (key_regex)", "--predicate (predicate)"

_MODULE = "kafka_s3_platform.restore.regex_process"

Mask = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Which records pass; null is no."""


class FilteredStream:
    """The records of `batches` (one source kafka partition, ascending by offset) that pass everything that is set.

    With `latest_per_key` the stream is read twice: the first time `first_pass`, or else `batches` itself, which must
    then be iterable again. `without_key_count` counts the records that passed but have no key: they are left out then,
    as Kafka's log cleaner drops them. Counts are of what was iterated so far.

    Raises:
        ConfigError: something of the filter cannot be used.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        records: RecordFilter,
        first_pass: Iterable[pa.RecordBatch] | None = None,
    ) -> None:
        self._batches, self._first_pass = batches, batches if first_pass is None else first_pass
        self._masks = _masks(records)
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
            yield from self._counted(map(latest.kept, self._passing(read)))

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.read_count += batch.num_rows
        return batch

    def _passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for mask in self._masks:
                batch = _kept(batch, mask)  # noqa: PLW2901 - each mask sees what the ones before it let pass
            yield batch

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                self.passed_count += batch.num_rows
                yield batch


class KeyRegex:
    """A regular expression of Python's that keys match as a whole: in a process of its own, with limits.

    Raises:
        ConfigError: it is none.
    """

    def __init__(self, text: str) -> None:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as err:
            raise ConfigError(f"{KEY_REGEX} {text!r} is no Python regular expression: {err}") from err
        self._text = text

    def passing(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        """Which keys match. Raises FailedError where that takes too long."""
        size = deciding.ROWS_AT_ONCE
        batches = (pa.record_batch({"key": keys.slice(at, size)}) for at in range(0, len(keys), size))
        found = [self._process.passing(batch, deciding.ROWS_SECONDS) for batch in batches]
        return pa.concat_arrays(found) if found else pa.array([], pa.bool_())

    @cached_property
    def _process(self) -> DecidingProcess:
        return DecidingProcess(_MODULE, self._text)


def filtered(
    batches: Iterable[pa.RecordBatch], records: RecordFilter, first_pass: Iterable[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """What FilteredStream iterates. Raises as that does, before the first batch is read."""
    return iter(FilteredStream(batches, records, first_pass))


def check_filter(records: RecordFilter) -> None:
    """ConfigError, naming the option, where something of the filter cannot be used. Reads nothing."""
    _masks(records)


def is_filtered(records: RecordFilter) -> bool:
    """Whether anything is set, so that how many records pass is known only once they are read."""
    return records != RecordFilter()


def _masks(records: RecordFilter) -> list[Mask]:
    masks: list[Mask] = []
    if records.keys or records.key_prefixes or records.key_regex is not None:
        masks.append(_by_key(records))
    if records.sql is not None:
        masks.append(SqlCondition(records.sql).passing)
    if records.predicate is not None:
        masks.append(_by_function(records.predicate))
    return masks


def _kept(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    return batch.filter(mask(batch)) if batch.num_rows else batch


def _by_key(records: RecordFilter) -> Mask:
    tests: list[Callable[[pa.BinaryArray], pa.BooleanArray]] = []
    if records.keys:
        tests.append(partial(pc.is_in, value_set=pa.array(records.keys, pa.binary())))
    tests += [partial(pc.starts_with, pattern=prefix) for prefix in records.key_prefixes]
    if records.key_regex is not None:
        tests.append(KeyRegex(records.key_regex).passing)
    return partial(_any_test, tests)


def _any_test(tests: Sequence[Callable[[pa.BinaryArray], pa.BooleanArray]], batch: pa.RecordBatch) -> pa.BooleanArray:
    """Each different key of the batch is tested once."""
    keys = pc.dictionary_encode(batch.column("key"))
    try:
        known, *others = (test(keys.dictionary) for test in tests)
    except FailedError as err:
        offsets = batch.column("offset")
        raise PermanentError(
            f"{KEY_REGEX} failed on a key of offsets {offsets[0]} to {offsets[-1]}: {err}. Some keys take for ever "
            f"where repetitions are inside of repetitions, as in (a+)+: write it without, or choose by --sql (sql)"
        ) from err
    for found in others:
        known = pc.or_(known, found)
    return known.take(keys.indices)


def _by_function(dotted: str) -> Mask:
    function, option = load_function(dotted, PREDICATE), f"{PREDICATE} {dotted}"
    try:
        mask = function(_empty())
    except Exception as err:
        raise ConfigError(f"{option} failed on an empty batch: {type(err).__name__}: {err}") from err
    if flaw := _flaw(mask, 0):
        raise ConfigError(f"{option} gave back {flaw}")
    return partial(_function_mask, option, function)


def _empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


def _function_mask(option: str, function: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> pa.BooleanArray:
    where = f"{option} on {batch.num_rows} records from offset {batch.column('offset')[0]} on"
    try:
        mask = function(batch)
    except PlatformError:
        raise
    except Exception as err:
        raise PermanentError(f"{where} failed: {type(err).__name__}: {err}") from err
    if flaw := _flaw(mask, batch.num_rows):
        raise PermanentError(f"{where} gave back {flaw}")
    return mask


def _flaw(mask: object, count: int) -> str | None:
    if not isinstance(mask, pa.Array) or mask.type != pa.bool_():
        kind = mask.type if isinstance(mask, pa.Array | pa.ChunkedArray) else type(mask).__name__
        return f"{kind}, not a boolean pyarrow.Array"
    return None if len(mask) == count else f"{len(mask)} values for {count} records"
