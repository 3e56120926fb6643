"""Find the rows of an index that cannot be true, so that nothing is concluded from them.

Earlier versions recorded every answer of a broker and every time of a clock unchecked. A row is *broken* if its own
offsets are impossible. The index version that recorded a broken row recorded a whole look at the log with it: the other
rows of that look are in doubt too. So is a look from the future, which lies after the reader's present time, or after a
look that was recorded later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.frontier import UNTIMED
from kafka_s3_platform.model.times import EPOCH

TOLERANCE = timedelta(seconds=60)
"""How far apart the clocks of the machines may be that write and read the index."""

BROKEN = "offsets that no log can have"
FUTURE = "observed at a time that had not come"
DOUBTFUL = "recorded with another bad row, or by a clock that was wrong"

# Arrow imports pandas with the first array that it makes: none is made while modules load.
_RANGES = ("scan", "gap", "reservation", "unresolved")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Judged:
    """Rows of the index, and masks of those that cannot be trusted.

    `broken` rows are left out. `in_doubt` are looks and hours of a version that has a broken row or lies in the
    `future`. They still count for where the log began and where the hour begins. They do not count for when that was
    seen, nor for where the hour ends.
    """

    all: pa.Table
    broken: pa.Array
    future: pa.Array
    in_doubt: pa.Array

    @cached_property
    def sound(self) -> pa.Table:
        """The rows that count, without the values that do not count."""
        return self._counted.filter(pc.invert(self.broken))

    @cached_property
    def doubtful(self) -> pa.Table:
        """The rows in doubt, without the values that do not count."""
        return self._counted.filter(self.in_doubt)

    @cached_property
    def _counted(self) -> pa.Table:
        looks = pc.and_(self.in_doubt, _match_kinds(self.all, "frontier"))
        hours = pc.and_(self.in_doubt, _match_kinds(self.all, "hour"))
        rows = _replace_values(
            self.all, "observed_at", looks, pa.scalar(UNTIMED, self.all.schema.field("observed_at").type)
        )
        return _replace_values(rows, "end_offset", hours, pa.scalar(None, pa.int64()))

    @cached_property
    def bad(self) -> pa.Table:
        """The rows that are left out or in doubt, with the reason as a column `why`."""
        future = pc.and_(self.future, pc.equal(self.all["kind"], "frontier"))
        why = pc.if_else(self.broken, BROKEN, pc.if_else(future, FUTURE, DOUBTFUL))
        return self.all.append_column("why", why).filter(pc.or_(self.broken, self.in_doubt))

    @cached_property
    def as_written(self) -> pa.Table:
        """The rows as earlier versions read them, except that no offset is below 0."""
        rows = self.all.filter(pc.or_(pc.invert(self.broken), _match_kinds(self.all, "frontier", "hour")))
        high = pc.max_element_wise(rows["high_watermark"], 0)
        stable = pc.min_element_wise(pc.max_element_wise(rows["last_stable_offset"], 0), high)
        begins = pc.min_element_wise(pc.max_element_wise(rows["log_start_offset"], 0), stable)
        starts = pc.if_else(pc.is_null(rows["start_offset"]), None, pc.max_element_wise(rows["start_offset"], 0))
        changed = {"high_watermark": high, "last_stable_offset": stable, "log_start_offset": begins}
        return reduce(lambda t, c: _set_column(t, *c), {**changed, "start_offset": starts}.items(), rows)


def judge_rows(rows: pa.Table, now: datetime, written_at: Mapping[int, datetime] | None = None) -> Judged:
    """Find the rows that are broken or in doubt at the time `now`.

    `written_at` has the times at which the store wrote versions, as far as they are known. A look comes before the
    version that records it: a look with a later time is from the future.
    """
    broken = _find_broken(rows)
    looks = _match_kinds(rows, "frontier", "hour")
    future = _is_in(rows["version"], _find_future_versions(rows, now, written_at or {}))
    tainted = rows["version"].filter(pc.and_(broken, looks))
    in_doubt = pc.and_(looks, pc.or_(future, _is_in(rows["version"], tainted)))
    return Judged(rows, broken, future, pc.and_(in_doubt, pc.invert(broken)))


def _find_broken(rows: pa.Table) -> pa.Array:
    log_start, stable, high = (rows[n] for n in ("log_start_offset", "last_stable_offset", "high_watermark"))
    start = rows["start_offset"]
    end = rows["end_offset"]
    looks = (pc.less(log_start, 0), pc.less(stable, log_start), pc.less(high, stable))
    hours = (pc.less(start, 0), pc.less(end, start))
    ranges = (pc.less(start, 0), pc.less_equal(end, start))
    return _combine_masks(
        pc.and_(_match_kinds(rows, "frontier"), _combine_masks(*looks)),
        pc.and_(_match_kinds(rows, "hour"), _combine_masks(*hours)),
        pc.and_(_is_in(rows["kind"], pa.array(_RANGES)), _combine_masks(*ranges)),
        pc.and_(_match_kinds(rows, "group"), _combine_masks(pc.less(rows["committed_offset"], 0))),
    )


def _find_future_versions(rows: pa.Table, now: datetime, written_at: Mapping[int, datetime]) -> pa.Array:
    timed = pc.greater(rows["observed_at"], pa.scalar(UNTIMED, rows.schema.field("observed_at").type))
    seen = rows.filter(pc.and_(_match_kinds(rows, "frontier"), _combine_masks(timed)))
    seen = seen.group_by("version").aggregate([("observed_at", "max")]).sort_by("version")
    versions = seen["version"].combine_chunks()
    times = seen["observed_at_max"].cast(pa.int64()).to_numpy()
    written = np.array([_to_microseconds(written_at.get(v, now)) for v in versions.to_pylist()], np.int64)
    # for each version: the earliest of now and the looks that were recorded later
    later = np.minimum.accumulate(np.append(times, _to_microseconds(now))[::-1])[::-1][1:]
    return versions.filter(pa.array(times > np.minimum(later, written) + TOLERANCE // _MICROSECOND))


def _to_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def _match_kinds(rows: pa.Table, *kinds: str) -> pa.Array:
    return _is_in(rows["kind"], pa.array(kinds))


def _is_in(column: pa.ChunkedArray, values: pa.Array) -> pa.Array:
    return pc.is_in(column, value_set=values)


def _combine_masks(*masks: Any) -> Any:
    """Return the mask that is true where one of the masks is true. Null counts as false."""
    return reduce(pc.or_, (pc.fill_null(mask, fill_value=False) for mask in masks))


def _replace_values(rows: pa.Table, name: str, mask: Any, value: pa.Scalar) -> pa.Table:
    return _set_column(rows, name, pc.if_else(mask, value, rows[name]))


def _set_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
