"""Move the indexes of an earlier version, one a topic, into the one table of their connector.

1. Each earlier table is frozen: nobody can read or commit to it any more, an earlier version of this package neither.
2. The table of the connector is created with all of their rows in one commit. It exists as a whole, or not at all. An
   index that is there already gets the rows of the topics that it lacks, in one commit.
3. The rows are read back and compared.

Killed at any moment, the same command goes on. The earlier tables are kept. Their versions stay below those of the new
table, and objects go on naming the earlier table, so what runs compare with them keeps its meaning.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import IndexConflictError, IntegrityError, PermanentError
from kafka_s3_platform.model.segment import MovedFrom
from kafka_s3_platform.store.earlier_index import EarlierIndex, EarlierSnapshot, list_earlier_topics
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.store.index_rows import (
    PERIOD,
    TABLE_SCHEMA,
    TopicRows,
    encode_rows,
    list_row_periods,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MovedTopic:
    """The index of one topic: how many rows its last version has, and whether they are in the connector's index now."""

    topic: str
    version: int
    row_count: int
    moved: bool


@dataclass(frozen=True)
class MoveReport:
    """What was moved, or on a dry run would be. `version` is the version of the connector's index, None without one."""

    uri: str
    topics: tuple[MovedTopic, ...]
    version: int | None
    dry_run: bool


def move_index(config: ConnectorConfig, dry_run: bool) -> MoveReport:
    """Move all indexes that an earlier version kept of the connector's topics. Topics that were moved stay as they are.

    Raises:
        IntegrityError: what was read back differs from what was moved.
        IndexConflictError: another process changed the connector's index meanwhile: run it again.
        PermanentError: an earlier index has a version above the connector's, so its epochs would be used twice.
    """
    index = ConnectorIndex.of(config)
    earlier = _open_earlier(config)
    whole = index.peek()
    known = set(whole.topics) if whole else set[str]()
    left = {topic: snapshot for topic, snapshot in earlier.items() if topic not in known}
    if not dry_run and left:
        # a run may have committed since the look: what counts is what the frozen version holds
        left = {topic: _freeze(config, topic) for topic in left}
        earlier |= left
        whole = _add(index, whole, left)
    if not dry_run and whole is not None:
        _compare(whole, {topic: earlier[topic] for topic in _list_unchanged_topics(whole, earlier)})
    topics = tuple(
        MovedTopic(topic, snapshot.version, snapshot.read_all_rows().num_rows, not dry_run or topic in known)
        for topic, snapshot in sorted(earlier.items())
    )
    return MoveReport(index.uri, topics, whole.version if whole else None, dry_run)


def _open_earlier(config: ConnectorConfig) -> dict[str, EarlierSnapshot]:
    found: dict[str, EarlierSnapshot] = {}
    for topic in list_earlier_topics(config.store, config.archive.index_dir, config.name):
        snapshot = _name_earlier(config, topic).peek()
        if snapshot is not None:
            found[topic] = snapshot
    return found


def _name_earlier(config: ConnectorConfig, topic: str) -> EarlierIndex:
    return EarlierIndex(config.store, config.archive.index_dir, config.name, topic)


def _freeze(config: ConnectorConfig, topic: str) -> EarlierSnapshot:
    earlier = _name_earlier(config, topic)
    version = earlier.freeze()
    logger.info("%s: frozen at version %d", earlier.table.uri, version)
    return EarlierSnapshot(earlier.table, earlier.table.open(version), topic)


def _add(
    index: ConnectorIndex, whole: ConnectorSnapshot | None, moved: Mapping[str, EarlierSnapshot]
) -> ConnectorSnapshot:
    """Add the rows in one commit, which creates the table if there is none."""
    highest = max(snapshot.version for snapshot in moved.values())
    if whole is None:
        base = highest + 1
        index.check_promises()
        rows = _collect_rows(moved, base)
        index.create_with(rows, base)
    elif whole.version < highest:
        raise PermanentError(
            f"{index.uri} is at version {whole.version}, and an earlier index that is to be moved into it is at "
            f"version {highest}: its epochs would be used a second time. Nothing was added. Archive other topics of "
            f"connector {index.connector} until version {highest} is reached, or archive this topic by a connector of "
            f"another name and topics.dir"
        )
    else:
        whole.commit_rows(_collect_rows(moved, whole.version + 1))
    found = index.peek()
    if found is None:
        raise IndexConflictError(f"{index.uri} was written and is not there; run the command again")
    return found


def _collect_rows(moved: Mapping[str, EarlierSnapshot], version: int) -> pa.Table:
    """Return the rows of all topics as the connector's table has them, and for each topic the row of its origin."""
    common = {"version": version, "commit_id": str(uuid4()), "committed_at": datetime.now(timezone.utc)}
    tables: list[pa.Table] = []
    for topic, snapshot in moved.items():
        origin = MovedFrom(snapshot.table_id, snapshot.created_at, snapshot.version)
        tables.append(encode_rows([TopicRows(topic, (origin,), (), "", {})], common))
        tables.append(_convert_rows(topic, snapshot.read_all_rows()))
    return pa.concat_tables(tables)


def _convert_rows(topic: str, rows: pa.Table) -> pa.Table:
    """Return the rows of an earlier table with their topic and their period. Refuse those of another topic."""
    others = set(rows.column("topic").unique().to_pylist()) - {None, topic}
    if others:
        raise IntegrityError(
            f"the earlier index of topic {topic} holds topic {', '.join(sorted(others))}: its folder was copied or "
            f"moved. Put each index back into the folder of its topic, or move it out of the way"
        )
    at = rows.schema.get_field_index("topic")
    named = rows.set_column(at, rows.schema.field(at), pa.array([topic] * rows.num_rows, pa.string()))
    return named.append_column(TABLE_SCHEMA.field(PERIOD), list_row_periods(rows)).cast(TABLE_SCHEMA)


def _list_unchanged_topics(whole: ConnectorSnapshot, earlier: Iterable[str]) -> list[str]:
    """Return the topics that the newest commit moved: their rows are still those of the earlier index.

    A run that was killed between the commit and the comparison left some: the next run compares them.
    """
    topics = list(earlier)
    whole.load_states(topics)
    found: list[str] = []
    for topic in topics:
        rows = whole.read_state_rows(topic)
        origins = rows.filter(pc.equal(rows.column("kind"), "moved"))
        if pc.max(origins.column("version")).as_py() == whole.version:
            found.append(topic)
    return found


def _compare(whole: ConnectorSnapshot, moved: Mapping[str, EarlierSnapshot]) -> None:
    """Compare each topic's rows as they are read now with those of its earlier table."""
    for topic, snapshot in moved.items():
        wanted = _sort_rows(_convert_rows(topic, snapshot.read_all_rows()))
        rows = whole.read_all_rows(topic)
        found = _sort_rows(rows.filter(pc.not_equal(rows.column("kind"), "moved")))
        if not found.equals(wanted):
            raise IntegrityError(
                f"topic {topic}: {found.num_rows} rows are in {whole.index.uri}, {wanted.num_rows} in "
                f"{snapshot.table.uri} at version {snapshot.version}, and they are not the same. The earlier index is "
                f"kept. This is a defect of the platform, or somebody changed the new index meanwhile"
            )


def _sort_rows(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.column_names if name != PERIOD]
    return rows.select(names).sort_by([(name, "ascending") for name in names]).combine_chunks()
