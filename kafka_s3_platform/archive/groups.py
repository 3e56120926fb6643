"""Note the offsets of consumer groups, so that they can go on at a restored topic."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.java.regex import compile_java_regex
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import Committed, list_groups, read_committed_of
from kafka_s3_platform.model.segment import CommittedOffset
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.predicates import RowPredicate, match_group

logger = logging.getLogger(__name__)


def observe_groups(
    admin: ClusterAdmin,
    config: ConnectorConfig,
    kafka_partitions: Mapping[str, Sequence[int]],
    observed_at: datetime,
) -> dict[str, list[CommittedOffset]]:
    """Read what the groups of `archive.consumer.groups` have committed of the topics, idle kafka partitions too.

    A group that cannot be read is logged, and archiving goes on. A group without offsets of a topic has no row, so that
    its earlier rows stay.
    """
    rows: dict[str, list[CommittedOffset]] = {topic: [] for topic in kafka_partitions}
    if not config.archive.consumer_groups:
        return rows
    for group, state in _choose_groups(admin, config):
        for topic, committed in _read_group(admin, group, kafka_partitions).items():
            rows[topic] += [
                CommittedOffset(group, p, c.offset, c.metadata, c.leader_epoch, state, observed_at)
                for p, c in sorted(committed.items())
            ]
    return rows


def _read_group(
    admin: ClusterAdmin, group: str, kafka_partitions: Mapping[str, Sequence[int]]
) -> Mapping[str, Mapping[int, Committed]]:
    """Read the group's committed offsets of the topics. If a topic fails, read each alone."""
    try:
        return read_committed_of(admin, group, kafka_partitions)
    except PlatformError as err:
        if len(kafka_partitions) == 1 or isinstance(err, BrokerUnavailableError):
            _log_warning(err)
            return {}
    committed: dict[str, Mapping[int, Committed]] = {}
    for topic, numbers in kafka_partitions.items():
        committed |= _read_group(admin, group, {topic: numbers})
    return committed


def match_replaced_groups(state: IndexState, rows: Sequence[CommittedOffset]) -> tuple[RowPredicate, ...]:
    """Match the index rows to be replaced by `rows`: all of the same groups, and of no other."""
    replaced = {r.group_id for r in state.groups} & {r.group_id for r in rows}
    return tuple(match_group(group_id) for group_id in sorted(replaced))


def _choose_groups(admin: ClusterAdmin, config: ConnectorConfig) -> list[tuple[str, str]]:
    """List the groups that match a pattern, with their states."""
    patterns = [compile_java_regex(p) for p in config.archive.consumer_groups]
    try:
        listing = list_groups(admin)
    except PlatformError as err:
        _log_warning(err)
        return []
    for error in listing.errors:
        _log_warning(error)
    chosen = [(g, s) for g, s in sorted(listing.states.items()) if any(p.fullmatch(g) for p in patterns)]
    if not chosen:
        names = ", ".join(config.archive.consumer_groups)
        _log_warning(f"no consumer group is named {names}, or none that may be seen (DESCRIBE)")
    return chosen


def _log_warning(what: object) -> None:
    logger.warning("offsets of consumer groups were not archived, earlier ones stay: %s", what)
