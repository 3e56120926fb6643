"""Logs that were truncated below the archive and have grown again, where no scan finds out.

If such a log has grown to exactly the archive's end, nothing is left to read, and nothing would be missing in the hours
that came since. Offsets that become a gap are not read either.
"""

from collections import deque
from collections.abc import Mapping

from kafka_s3_platform.archive.failures import format_resolve_command
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import LogTruncatedError, PlatformError
from kafka_s3_platform.kafka.admin import TopicDescription
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.segment import EpochMark
from kafka_s3_platform.model.state import IndexState


def find_regrown_logs(
    config: ConnectorConfig, description: TopicDescription, state: IndexState, frontiers: Mapping[int, Frontier]
) -> dict[int, PlatformError]:
    """Return the errors of kafka partitions whose log has regrown, or of which nobody can tell now."""
    topic = description.topic
    if state.topic is None or state.topic.topic_id != description.topic_id:
        # a topic that was created again is another matter
        return {}
    doubtful = {p: mark for p, f in frontiers.items() if (mark := _choose_mark(state, f)) is not None}
    if not doubtful:
        return {}
    found: dict[int, PlatformError] = {}
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for kafka_partition, mark in doubtful.items():
            end = frontiers[kafka_partition].last_stable_offset
            try:
                reader.check(kafka_partition, mark.offset, mark.leader_epoch)
            except LogTruncatedError as err:
                accept = format_resolve_command(config.name, topic, kafka_partition, "--accept-truncation")
                found[kafka_partition] = LogTruncatedError(
                    f"{topic}-{kafka_partition}: archive and log both end at offset {end}, but the log has lost some "
                    f"of what is archived, and holds other records there: {err.text}. To keep what is archived and go "
                    f"on after it: {accept}"
                )
            except PlatformError as err:
                found[kafka_partition] = err
    return found


def read_epoch_of_gap(
    config: ConnectorConfig, topic: str, state: IndexState, frontier: Frontier, offsets: OffsetRange
) -> int | None:
    """Read the leader epoch at the end of offsets that become a gap. None if it cannot be told.

    Raises LogTruncatedError if the log has lost some of what is archived before them: the epoch would hide that. Also
    raises what reading a range raises.
    """
    kafka_partition = frontier.kafka_partition
    mark = state.find_epoch_mark(kafka_partition, frontier.log_start_offset, offsets.start_offset)
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        if mark is not None:
            try:
                reader.check(kafka_partition, mark.offset, mark.leader_epoch)
            except LogTruncatedError as err:
                accept = format_resolve_command(config.name, topic, kafka_partition, "--accept-truncation")
                raise LogTruncatedError(
                    f"{topic}-{kafka_partition}: the log has lost some of what is archived below offset "
                    f"{offsets.start_offset}, so that {offsets} are other records now: {err.text}. To keep what is "
                    f"archived and go on after it, before anything else is decided: {accept}"
                ) from err
        if not frontier.log_start_offset < offsets.end_offset <= frontier.last_stable_offset:
            return None
        read = reader.read(kafka_partition, OffsetRange(offsets.end_offset - 1, offsets.end_offset))
        deque(read, maxlen=0)
        return read.end.leader_epoch


def _choose_mark(state: IndexState, frontier: Frontier) -> EpochMark | None:
    """Return the place where the log must have what is archived, None where there is nothing to check.

    Only another leader's log can have lost records. What was seen of this one at the same end was checked then.
    """
    kafka_partition = frontier.kafka_partition
    end = frontier.last_stable_offset
    now = frontier.leader_epoch
    if now is None or not end or state.coverage(kafka_partition).end_offset != end:
        return None
    known = state.find_epoch_mark(kafka_partition, frontier.log_start_offset, end)
    seen = {
        f.leader_epoch for f in state.all_looks if (f.kafka_partition, f.last_stable_offset) == (kafka_partition, end)
    }
    if known is not None and known.leader_epoch < now and now not in seen:
        return known
    return None
