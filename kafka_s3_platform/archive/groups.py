"""How far consumer groups have read: what a run notes of them, so that they can go on at a restored topic."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from kafka_s3_platform.config.java_regex import compile_java_regex
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import committed_in, list_groups
from kafka_s3_platform.model.segment import CommittedOffset
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.index import quote

logger = logging.getLogger(__name__)


def group_rows(
    admin: ClusterAdmin, config: ConnectorConfig, topic: str, kafka_partitions: Sequence[int], observed_at: datetime
) -> tuple[CommittedOffset, ...]:
    """What the groups of `archive.consumer.groups` have committed of `topic`, idle kafka partitions included.

    Archiving goes on without what cannot be read of them: that is logged. A group that has committed nothing of the
    topic has no row, so that what was noted of it earlier stays.
    """
    if not config.archive.consumer_groups:
        return ()
    rows = []
    for group, state in _chosen(admin, config, topic):
        try:
            found = committed_in(admin, group, topic, kafka_partitions)
        except PlatformError as err:
            _warn(topic, err)
            continue
        rows += [
            CommittedOffset(group, p, c.offset, c.metadata, c.leader_epoch, state, observed_at)
            for p, c in sorted(found.items())
        ]
    return tuple(rows)


def replacing(state: IndexState, rows: Sequence[CommittedOffset]) -> Iterator[str]:
    """Predicates of the rows in the index that `rows` replace: those of the same groups, and of no other."""
    known = {r.group_id for r in state.groups}
    return (f"(kind = 'group' AND group_id = {quote(g)})" for g in sorted(known & {r.group_id for r in rows}))


def _chosen(admin: ClusterAdmin, config: ConnectorConfig, topic: str) -> list[tuple[str, str]]:
    """The groups that a pattern matches, with their states."""
    patterns = [compile_java_regex(p) for p in config.archive.consumer_groups]
    try:
        listing = list_groups(admin)
    except PlatformError as err:
        _warn(topic, err)
        return []
    for error in listing.errors:
        _warn(topic, error)
    found = [(g, s) for g, s in sorted(listing.states.items()) if any(p.fullmatch(g) for p in patterns)]
    if not found:
        names = ", ".join(config.archive.consumer_groups)
        _warn(topic, f"no consumer group is named {names}, or none that may be seen (DESCRIBE)")
    return found


def _warn(topic: str, what: object) -> None:
    logger.warning("topic %s: offsets of consumer groups were not archived, earlier ones stay: %s", topic, what)
