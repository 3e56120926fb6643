"""Defines the changes of a commit to an index, writes them, and retries commits.

A *live* segment has the records readers get. A merge of segments makes a new live one, and *retires* the old ones,
which stay in the index for a while. The kind of a segment (live, retired ...) is in its row.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from kafka_s3_platform.core.errors import IndexConflictError, StoreUnavailableError
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.store.index_rows import (
    ERASED,
    EXPIRED,
    LIVE,
    MERGED_KINDS,
    REMOVED,
    RETIRED,
    IndexRow,
    TopicRows,
    list_periods,
)
from kafka_s3_platform.core.store.row_filter import (
    RowPredicate,
    match_any,
    match_every,
    match_periods,
    match_segments,
    match_start_offsets,
    match_topic,
    match_version,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)

MAX_CONFLICTS = 20
MAX_LOST = 3
"""The number of tries of a step, while other commits come first and while the store does not answer."""

MAX_KEYS = 500
"""The number of keys in one list of a predicate. With 10,000, delta-rs overflows its stack, which ends the process.

delta-rs would join lists that differ in nothing else, so each list has its own bounds of offsets.
"""

NEVER_DELETE = PostCommitHookProperties(cleanup_expired_logs=False)
"""The run path has no right to delete, not even expired log files."""


@dataclass(frozen=True)
class Change:
    """The rows of one topic that a commit adds and removes.

    `added` are new rows, `removed` are predicates for rows to remove. The segments in `retired`, `emptied`, `expired`
    and `dropped` are no longer live. The retired ones stay in the index, and so do their objects. The objects of the
    others are deleted after the commit: the records of `emptied` segments are in a later segment, the records of
    `expired` ones are in none, and `dropped` ones leave no row at all. `erased` are rows to add, with the numbers of
    records that went with dropped segments.
    """

    added: tuple[IndexRow, ...] = ()
    retired: tuple[Segment, ...] = ()
    emptied: tuple[Segment, ...] = ()
    expired: tuple[Segment, ...] = ()
    dropped: tuple[Segment, ...] = ()
    erased: tuple[Segment, ...] = ()
    removed: tuple[RowPredicate, ...] = ()
    run_id: str = ""


def list_topic_rows(topic: str, change: Change) -> TopicRows:
    """Return the index rows that a change of the topic adds, and the segments whose rows get another kind."""
    changed = {RETIRED: change.retired, REMOVED: change.emptied, EXPIRED: change.expired, ERASED: change.erased}
    return TopicRows(topic, change.added, changed, change.run_id)


def list_predicates(topic: str, change: Change) -> Iterator[RowPredicate]:
    """Yield the SQL conditions of the topic's rows that a change removes, even if a segment only gets another kind."""
    if change.removed:
        yield match_every([match_topic(topic), match_any(change.removed)])
    if change.retired:
        yield _match_rows_of(topic, change.retired, [LIVE])
    if gone := (*change.emptied, *change.expired, *change.dropped):
        yield _match_rows_of(topic, gone, [LIVE, *MERGED_KINDS, ERASED])


def _match_rows_of(topic: str, segments: Sequence[Segment], kinds: Sequence[str]) -> RowPredicate:
    """Return the SQL condition of the rows of these segments. It names their periods, so Delta skips other files."""
    periods: set[str] = set()
    for start in {segment.chunk_start for segment in segments}:
        for kind in kinds:
            periods.update(list_periods(start, kind))
    ordered = sorted(segments, key=lambda s: (s.kafka_partition, s.start_offset))
    parts: list[RowPredicate] = []
    for kafka_partition, group in groupby(ordered, key=lambda s: s.kafka_partition):
        rows = list(group)
        for at in range(0, len(rows), MAX_KEYS):
            part = rows[at : at + MAX_KEYS]
            bounds = match_start_offsets(kafka_partition, part[0].start_offset, part[-1].start_offset)
            parts.append(match_every([bounds, match_segments((s.key for s in part), kinds)]))
    return match_every([match_topic(topic), match_periods(sorted(periods)), match_any(parts)])


def write_rows(table: DeltaTable, rows: pa.Table, predicates: Sequence[RowPredicate], version: int) -> None:
    """Commit the rows, all of `version`, and remove rows that match a predicate. Raises delta-rs's errors."""
    commit_properties = CommitProperties(max_commit_retries=0)
    if not predicates:
        write_deltalake(
            table,
            rows,
            mode="append",
            commit_properties=commit_properties,
            post_commithook_properties=NEVER_DELETE,
        )
        return
    # delta-rs refuses new rows that do not match the predicate: `version` matches them and no other row
    condition = match_any([*predicates, match_version(version)])
    write_deltalake(
        table,
        rows,
        mode="overwrite",
        predicate=condition,
        commit_properties=commit_properties,
        post_commithook_properties=NEVER_DELETE,
    )


class Openable(Protocol[S_co]):
    """An index of a connector or of a topic, which opens as a snapshot."""

    @property
    def uri(self) -> str: ...

    def open(self) -> S_co:
        """Return the index as it is now."""
        ...


def retry_commit(index: Openable[S_co], step: Callable[[S_co], R]) -> R:
    """Call `step` with the newest snapshot of the index, to commit on it. Call it again if another commit came first.

    A step must do no harm if an earlier try was committed and only the response was lost. The index's `commit_planned`
    makes sure of this. Raises IndexConflictError after `MAX_CONFLICTS` tries, and the store's error after `MAX_LOST`.
    """
    lost_answers = 0
    for _ in range(MAX_CONFLICTS):
        snapshot = index.open()
        try:
            return step(snapshot)
        except (IndexConflictError, StoreUnavailableError) as err:
            if isinstance(err, StoreUnavailableError):
                lost_answers += 1
            if lost_answers == MAX_LOST:
                raise
            logger.warning("%s; reading the index again", err)
    raise IndexConflictError(f"{index.uri}: {MAX_CONFLICTS} other commits came first; run again")
