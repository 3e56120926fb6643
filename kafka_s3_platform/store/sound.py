"""Rows of the index that say what cannot be, told apart when they are read: nothing is proven by them.

Earlier versions believed whatever a broker answered and a clock said. A row is *broken* by its own offsets. The look at
the log that it was recorded with, all that one version recorded of it, is then no evidence either; nor is a look from
the future: one that lies after the reader's now, or after a look that was recorded later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.frontier import UNTIMED

TOLERANCE = timedelta(seconds=60)
"""How far the clocks of machines that wrote and read the index may be apart."""

BROKEN = "offsets that no log can have"
FUTURE = "observed at a time that had not come"
DOUBTFUL = "recorded with another bad row, or by a clock that was wrong"

_RANGES = pa.array(["scan", "gap", "reservation", "unresolved"])
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Judged:
    """Rows of the index, and which of them cannot be believed.

    `broken` rows are left out. `in_doubt` are looks and hours of a version that has such a row, or was `future`: where
    the log began and the hour begins counts, but when that was seen does not, nor where the hour ends.
    """

    all: pa.Table
    broken: pa.Array
    future: pa.Array
    in_doubt: pa.Array

    @cached_property
    def sound(self) -> pa.Table:
        """The rows that count, as they count."""
        return self._counted.filter(pc.invert(self.broken))

    @cached_property
    def doubtful(self) -> pa.Table:
        """The rows in doubt, as they count."""
        return self._counted.filter(self.in_doubt)

    @cached_property
    def _counted(self) -> pa.Table:
        looks = pc.and_(self.in_doubt, _is(self.all, "frontier"))
        hours = pc.and_(self.in_doubt, _is(self.all, "hour"))
        rows = _replaced(self.all, "observed_at", looks, pa.scalar(UNTIMED, self.all.schema.field("observed_at").type))
        return _replaced(rows, "end_offset", hours, pa.scalar(None, pa.int64()))

    @cached_property
    def bad(self) -> pa.Table:
        """The rows that count otherwise than they were written, or not at all, and `why`."""
        future = pc.and_(self.future, pc.equal(self.all["kind"], "frontier"))
        why = pc.if_else(self.broken, BROKEN, pc.if_else(future, FUTURE, DOUBTFUL))
        return self.all.append_column("why", why).filter(pc.or_(self.broken, self.in_doubt))

    @cached_property
    def as_written(self) -> pa.Table:
        """The rows as earlier versions counted them, except that no offset is below 0."""
        rows = self.all.filter(pc.or_(pc.invert(self.broken), _is(self.all, "frontier", "hour")))
        high = pc.max_element_wise(rows["high_watermark"], 0)
        stable = pc.min_element_wise(pc.max_element_wise(rows["last_stable_offset"], 0), high)
        begins = pc.min_element_wise(pc.max_element_wise(rows["log_start_offset"], 0), stable)
        starts = pc.if_else(pc.is_null(rows["start_offset"]), None, pc.max_element_wise(rows["start_offset"], 0))
        changed = {"high_watermark": high, "last_stable_offset": stable, "log_start_offset": begins}
        return reduce(lambda t, c: _set(t, *c), {**changed, "start_offset": starts}.items(), rows)


def judged(rows: pa.Table, now: datetime, written_at: Mapping[int, datetime] | None = None) -> Judged:
    """`written_at` is when the store wrote a version, as far as that is known: a look is older than its record."""
    broken = _broken(rows)
    looks = _is(rows, "frontier", "hour")
    future = _is_in(rows["version"], _future_versions(rows, now, written_at or {}))
    tainted = rows["version"].filter(pc.and_(broken, looks))
    in_doubt = pc.and_(looks, pc.or_(future, _is_in(rows["version"], tainted)))
    return Judged(rows, broken, future, pc.and_(in_doubt, pc.invert(broken)))


def _broken(rows: pa.Table) -> pa.Array:
    log_start, stable, high = (rows[n] for n in ("log_start_offset", "last_stable_offset", "high_watermark"))
    start, end = rows["start_offset"], rows["end_offset"]
    looks = (pc.less(log_start, 0), pc.less(stable, log_start), pc.less(high, stable))
    hours = (pc.less(start, 0), pc.less(end, start))
    ranges = (pc.less(start, 0), pc.less_equal(end, start))
    return _any(
        pc.and_(_is(rows, "frontier"), _any(*looks)),
        pc.and_(_is(rows, "hour"), _any(*hours)),
        pc.and_(_is_in(rows["kind"], _RANGES), _any(*ranges)),
        pc.and_(_is(rows, "group"), _any(pc.less(rows["committed_offset"], 0))),
    )


def _future_versions(rows: pa.Table, now: datetime, written_at: Mapping[int, datetime]) -> pa.Array:
    timed = pc.greater(rows["observed_at"], pa.scalar(UNTIMED, rows.schema.field("observed_at").type))
    seen = rows.filter(pc.and_(_is(rows, "frontier"), _any(timed)))
    seen = seen.group_by("version").aggregate([("observed_at", "max")]).sort_by("version")
    versions = seen["version"].combine_chunks()
    times = seen["observed_at_max"].cast(pa.int64()).to_numpy()
    written = np.array([_us(written_at.get(v, now)) for v in versions.to_pylist()], np.int64)
    # of the looks that were recorded later, and of now, the earliest
    later = np.minimum.accumulate(np.append(times, _us(now))[::-1])[::-1][1:]
    return versions.filter(pa.array(times > np.minimum(later, written) + TOLERANCE // _MICROSECOND))


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _is(rows: pa.Table, *kinds: str) -> pa.Array:
    return _is_in(rows["kind"], pa.array(kinds))


def _is_in(column: pa.ChunkedArray, values: pa.Array) -> pa.Array:
    return pc.is_in(column, value_set=values)


def _any(*masks: Any) -> Any:
    """Where one of the masks is true; null counts as false."""
    return reduce(pc.or_, (pc.fill_null(mask, fill_value=False) for mask in masks))


def _replaced(rows: pa.Table, name: str, mask: Any, value: pa.Scalar) -> pa.Table:
    return _set(rows, name, pc.if_else(mask, value, rows[name]))


def _set(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
