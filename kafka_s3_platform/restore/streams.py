"""One Spark task sends streams of a restore one after the other, and meanwhile reads back earlier ones."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.replay import target_log
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.restore.replay.task import replay
from kafka_s3_platform.restore.verify.read_back import VerifiedStream, verify_stream
from kafka_s3_platform.spark.runner import Attempt

logger = logging.getLogger(__name__)

OWN_END_SECONDS = 2.0
"""Longest wait for the ends of our own transactions in the log. Transactions of others are awaited at the end."""


@dataclass(frozen=True)
class ReplayedStream:
    """A stream sent to its end. `verified` is None if it is still to be read back."""

    result: ReplayResult
    verified: VerifiedStream | None


def replay_streams(tasks: Sequence[ReplayTask], attempt: Attempt) -> list[ReplayedStream]:
    """Send the streams, and read each back while the next one is sent. Raises the errors of `replay`."""
    with ThreadPoolExecutor(1, thread_name_prefix="restore-verify") as pool:
        try:
            sent = [(replay(task, attempt), pool.submit(_try_verify, task, attempt)) for task in tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [ReplayedStream(result, verifying.result()) for result, verifying in sent]


def _try_verify(task: ReplayTask, attempt: Attempt) -> VerifiedStream | None:
    """Read the stream back. A failure is repeated at the end, and counts there."""
    if not task.is_read_back_early:
        return None
    try:
        with ClusterAdmin(task.kafka) as admin:
            seconds = min(OWN_END_SECONDS, target_log.STABLE_SECONDS)
            target_log.await_settled_logs(admin, task.to_topic, [task.kafka_partition], seconds)
        return verify_stream(task, attempt)
    except PlatformError as err:
        logger.info("restore %s is read back again at the end: %s", task.where, err)
        return None
