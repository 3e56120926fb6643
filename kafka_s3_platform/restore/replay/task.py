"""One Spark task sends one source kafka partition of a restore, from the end of an earlier try.

`exactly_once` sends in transactions with a progress marker. A try begins by fencing earlier tries. Their records are
then either committed and counted by the marker, or aborted. A `read_committed` reader sees each record once, in order.

`at_least_once` sends without transactions. It is a few percent faster, and every reader sees the records at once. A try
waits for requests still in the network, compares the target with the archive, and resumes from there. An older run that
wakes up later can send records a second time, until it finds the checkpoint in the bucket changed.
"""

from dataclasses import replace

from kafka_s3_platform.restore.replay.at_least_once import replay_at_least_once
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint
from kafka_s3_platform.restore.replay.exactly_once import replay_exactly_once
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore


def replay(task: ReplayTask, attempt: Attempt) -> ReplayResult:
    """Send records missing in the target, in order. After an error the checkpoint records the task's progress.

    Raises:
        IntegrityError: an object of the archive is missing, replaced or damaged.
        PreflightError: the target rejected a record, or the progress marker is gone or another's.
        SupersededError: another run of this restore id is at work.
        LogTruncatedError: the target lost records that were delivered.
    """
    store = ObjectStore(task.stream.store)
    checkpoint = Checkpoint(task.beside(store), task.documents.checkpoint, f"{task.run_id}/{attempt.attempt_id}")
    send = replay_exactly_once if task.delivery == "exactly_once" else replay_at_least_once
    result = send(task, store, checkpoint, attempt)
    return replace(result, left_out=tuple(task.left_out(store) or ()))
