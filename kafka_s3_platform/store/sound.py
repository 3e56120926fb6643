"""Refuse rows of an index with offsets that no log can have, and believe no look at a log that lies in the future.

What a broker answers and what a clock says is checked before it is recorded, so nothing of ours writes such offsets.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.frontier import UNTIMED

TOLERANCE = timedelta(seconds=60)
"""How far apart the clocks of the machines may be that write and read the index."""

_LOOK = ("log_start_offset", "last_stable_offset", "high_watermark")
_RANGE = ("start_offset", "end_offset")

OFFSETS: Mapping[str, tuple[str, ...]] = {
    "frontier": _LOOK,
    "folded-look": _LOOK,
    "hour": _RANGE,
    "scan": _RANGE,
    "folded-scan": _RANGE,
    "gap": _RANGE,
    "reservation": _RANGE,
    "unresolved": _RANGE,
    "group": ("committed_offset",),
}
"""The offsets of each kind of row that has some, in ascending order."""

_UNKNOWN_KINDS = ("hour",)
"""Kinds whose offsets may be unknown (null)."""

_EMPTY_KINDS = ("hour", "frontier", "folded-look")
"""Kinds in which two offsets may be equal."""


def refuse_false_offsets(kind: str, rows: pa.Table) -> None:
    """Raise ValueError, which names the row, if rows of this kind have offsets that no log can have."""
    names = OFFSETS.get(kind)
    if names is None:
        return
    is_false = pc.less if kind in _EMPTY_KINDS else pc.less_equal
    masks = [pc.less(rows[name], 0) for name in names]
    masks += [is_false(rows[higher], rows[lower]) for lower, higher in pairwise(names)]
    known = [pc.fill_null(mask, fill_value=kind not in _UNKNOWN_KINDS) for mask in masks]
    found = rows.filter(reduce(pc.or_, known))
    if found.num_rows:
        [row] = found.slice(0, 1).to_pylist()
        offsets = ", ".join(f"{name} {row[name]}" for name in names)
        raise ValueError(f"{kind} of version {row['version']}, kafka partition {row['kafka_partition']}: {offsets}")


def untime_future_looks(rows: pa.Table, now: datetime) -> pa.Table:
    """Return the rows, with the looks after `now` at no known time: the clock of one of the two machines is wrong.

    Such a look still tells where the log began. It completes no hour.
    """
    at = rows.schema.get_field_index("observed_at")
    field = rows.schema.field(at)
    is_look = pc.equal(rows["kind"], "frontier")
    is_future = pc.greater(rows["observed_at"], pa.scalar(now + TOLERANCE, field.type))
    mask = pc.fill_null(pc.and_(is_look, is_future), fill_value=False)
    return rows.set_column(at, field, pc.if_else(mask, pa.scalar(UNTIMED, field.type), rows["observed_at"]))
