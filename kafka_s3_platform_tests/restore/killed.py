"""Runs a pickled RestoreRequest or ForeignSource in this process, which a test kills or stops.

`python -m kafka_s3_platform_tests.restore.killed FILE CHECKPOINT_RECORDS [TRANSACTION_RECORDS]`
"""

import pickle
import sys
from pathlib import Path

from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.replay import at_least_once
from kafka_s3_platform.restore.replay import transactions as marker
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform_tests.support import InProcessRunner

if __name__ == "__main__":
    at_least_once.CHECKPOINT_RECORDS = int(sys.argv[2])
    if len(sys.argv) > 3:
        marker.TRANSACTION_RECORDS = int(sys.argv[3])
    asked = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 - the test wrote it
    if isinstance(asked, ForeignSource):
        restore(asked, InProcessRunner())
    else:
        restore(ArchiveSource(asked), InProcessRunner())
