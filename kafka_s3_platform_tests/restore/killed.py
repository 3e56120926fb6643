"""Runs a pickled RestoreRequest in this process, which a test kills: `python -m ... FILE CHECKPOINT_RECORDS`."""

import pickle
import sys
from pathlib import Path

from kafka_s3_platform.restore import replay
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform_tests.support import InProcessRunner

if __name__ == "__main__":
    replay.CHECKPOINT_RECORDS = int(sys.argv[2])
    restore(pickle.loads(Path(sys.argv[1]).read_bytes()), InProcessRunner())  # noqa: S301 - the test wrote it
