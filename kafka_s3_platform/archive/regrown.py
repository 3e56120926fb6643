"""Logs that were truncated below the archive and have grown again to exactly its end.

Nothing is left to read there, so that no scan finds out; and nothing would be missing in the hours that came since.
"""

from collections.abc import Mapping

from kafka_s3_platform.archive.failures import format_resolve_command
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import LogTruncatedError, PlatformError
from kafka_s3_platform.kafka.admin import TopicDescription
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.state import IndexState


def find_regrown_logs(
    config: ConnectorConfig, description: TopicDescription, state: IndexState, frontiers: Mapping[int, Frontier]
) -> dict[int, PlatformError]:
    """Return the errors of kafka partitions whose log has regrown, or of which nobody can tell now."""
    topic = description.topic
    if state.topic is None or state.topic.topic_id != description.topic_id:
        # a topic that was created again is another matter
        return {}
    doubtful = {p: epoch for p, f in frontiers.items() if (epoch := _choose_epoch(state, f)) is not None}
    if not doubtful:
        return {}
    found: dict[int, PlatformError] = {}
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for kafka_partition, epoch in doubtful.items():
            end = frontiers[kafka_partition].last_stable_offset
            try:
                reader.check(kafka_partition, end, epoch)
            except LogTruncatedError as err:
                accept = format_resolve_command(config.name, topic, kafka_partition, "--accept-truncation")
                found[kafka_partition] = LogTruncatedError(
                    f"{topic}-{kafka_partition}: archive and log both end at offset {end}, but the log has lost some "
                    f"of what is archived, and holds other records there: {err}. To keep what is archived and go on "
                    f"after it: {accept}"
                )
            except PlatformError as err:
                found[kafka_partition] = err
    return found


def _choose_epoch(state: IndexState, frontier: Frontier) -> int | None:
    """Return the leader epoch that the log must have at its end, None where there is nothing to check.

    Only another leader's log can have lost records. What was seen of this one at the same end was checked then.
    """
    kafka_partition = frontier.kafka_partition
    end = frontier.last_stable_offset
    now = frontier.leader_epoch
    if now is None or not end or state.coverage(kafka_partition).end_offset != end:
        return None
    known = state.leader_epoch(kafka_partition, end)
    seen = {
        f.leader_epoch for f in state.all_looks if (f.kafka_partition, f.last_stable_offset) == (kafka_partition, end)
    }
    if known is not None and known < now and now not in seen:
        return known
    return None
