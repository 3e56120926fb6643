"""Runs a restore in a process that a test kills."""

from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.replay import task
from kafka_s3_platform.restore.replay import transactions as marker
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform_tests.support import InProcessRunner


def run_restore(asked: RestoreRequest | ForeignSource, checkpoint_records: int, transaction_records: int) -> None:
    """The numbers: after how many records it notes how far it came, and how many a transaction has."""
    task.CHECKPOINT_RECORDS = checkpoint_records
    marker.TRANSACTION_RECORDS = transaction_records
    if isinstance(asked, ForeignSource):
        restore(asked, InProcessRunner())
    else:
        restore(ArchiveSource(asked), InProcessRunner())
