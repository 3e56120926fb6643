"""Refuses rows of an index foreign to this platform, and drops observations of logs from the future.

Answers of brokers and clocks are checked before they are recorded.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.frontier import UNTIMED

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
"""The offsets in each kind of row, in ascending order."""

_EMPTY_KINDS = ("hour", "frontier", "folded-look")
"""Kinds in which two offsets may be equal."""


def refuse_damaged(kind: str, rows: pa.Table, required: Iterable[str]) -> None:
    """Refuse rows of this kind without a value in a `required` column, or with impossible offsets.

    Raises:
        ValueError: names the first such row.
    """
    for name in required:
        if rows[name].null_count:
            _refuse(kind, rows.filter(pc.is_null(rows[name])), [name])
    names = OFFSETS.get(kind, ())
    is_false = pc.less if kind in _EMPTY_KINDS else pc.less_equal
    masks = [pc.less(rows[name], 0) for name in names]
    masks += [is_false(rows[higher], rows[lower]) for lower, higher in pairwise(names)]
    for mask in masks:
        # an offset that may be unknown (null) is not false
        _refuse(kind, rows.filter(pc.fill_null(mask, fill_value=False)), names)


def _refuse(kind: str, rows: pa.Table, names: Iterable[str]) -> None:
    """Raise ValueError with the values of the first row in these columns."""
    for row in rows.slice(0, 1).to_pylist():
        shown = ", ".join(f"{name} {row[name]}" for name in names)
        raise ValueError(f"{kind} of version {row['version']}, kafka partition {row['kafka_partition']}: {shown}")


def drop_future_times(rows: pa.Table, latest: datetime) -> pa.Table:
    """Set `observed_at` of frontier rows later than `latest` to UNTIMED: the clock of one of the two machines is wrong.

    Such a row still holds the start of the log. It completes no hour.
    """
    at = rows.schema.get_field_index("observed_at")
    field = rows.schema.field(at)
    is_look = pc.equal(rows["kind"], "frontier")
    is_future = pc.greater(rows["observed_at"], pa.scalar(latest, field.type))
    mask = pc.fill_null(pc.and_(is_look, is_future), fill_value=False)
    return rows.set_column(at, field, pc.if_else(mask, pa.scalar(UNTIMED, field.type), rows["observed_at"]))
