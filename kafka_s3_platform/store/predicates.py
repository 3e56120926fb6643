"""Builds the predicates of rows for a commit to remove. SQL over rows is made here and nowhere else."""

from collections.abc import Iterable, Mapping
from typing import NewType

from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Compaction, Reservation
from kafka_s3_platform.store.index_rows import STATE_PERIOD, find_kind

RowPredicate = NewType("RowPredicate", str)
"""A condition in SQL over the columns of one row."""


def match_run(row: Reservation | Compaction) -> RowPredicate:
    """Match all reservations of the run of this row."""
    return match_row(find_kind(row), {"epoch": row.epoch})


def match_group(group_id: str) -> RowPredicate:
    """Match the committed offsets of one consumer group."""
    return match_row("group", {"group_id": group_id})


def match_unresolved(kafka_partition: int) -> RowPredicate:
    """Match the unresolved offsets of one kafka partition."""
    return match_row("unresolved", {"kafka_partition": kafka_partition})


def match_gap(gap: Gap) -> RowPredicate:
    """Match one gap."""
    columns = {
        "kafka_partition": gap.kafka_partition,
        "start_offset": gap.start_offset,
        "end_offset": gap.end_offset,
        "reason": gap.reason,
    }
    return match_row("gap", columns)


def match_segments(keys: Iterable[str]) -> RowPredicate:
    """Match the live segments with their first object at one of the keys."""
    listed = ", ".join(map(quote_text, keys))
    return RowPredicate(f"(kind = 'segment' AND key IN ({listed}))")


def match_topic(topic: str) -> RowPredicate:
    """Match the rows of one topic."""
    return RowPredicate(f"topic = {quote_text(topic)}")


def match_periods(periods: Iterable[str]) -> RowPredicate:
    """Match the rows of these periods: Delta then opens no file of another one."""
    return RowPredicate(f"period IN ({', '.join(map(quote_text, periods))})")


def match_row(kind: str, columns: Mapping[str, int | str]) -> RowPredicate:
    """Match the rows of a kind other than segments with exactly these values."""
    pairs = {"kind": kind, "period": STATE_PERIOD, **columns}.items()
    terms = [f"{name} = {quote_text(value) if isinstance(value, str) else value}" for name, value in pairs]
    return RowPredicate(f"({' AND '.join(terms)})")


def match_any(predicates: Iterable[RowPredicate]) -> RowPredicate:
    """Match the rows of any of the predicates."""
    return RowPredicate(f"({' OR '.join(predicates)})")


def match_every(predicates: Iterable[RowPredicate]) -> RowPredicate:
    """Match the rows of all of the predicates."""
    return RowPredicate(f"({' AND '.join(predicates)})")


def match_version(version: int) -> RowPredicate:
    """Match the rows added by the commit of this version."""
    return RowPredicate(f"version = {version}")


def quote_text(text: str) -> str:
    """Return a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
