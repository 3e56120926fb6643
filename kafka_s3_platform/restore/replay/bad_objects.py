"""Decides once about bad objects to leave out, before the first record of a restore is sent."""

from kafka_s3_platform.restore.replay.spec import ReplayTask
from kafka_s3_platform.restore.source.left_out import save_left_out
from kafka_s3_platform.store.objects import ObjectStore


def decide_left_out(task: ReplayTask, store: ObjectStore, sent_below: int) -> None:
    """Read the whole stream to find the bad objects to leave out, unless an earlier try did so.

    Raises:
        IntegrityError: the target may hold records of a bad object, since it holds those below `sent_below`.
    """
    if task.sent.behavior_on_error == "fail" or task.left_out(store) is not None:
        return
    bad = task.stream.bad_objects(store)
    save_left_out(task.beside(store), task.documents.left_out, task.plan_digest, bad, sent_below)
