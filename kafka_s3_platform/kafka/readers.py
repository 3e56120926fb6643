"""Which reader an executor uses."""

import logging
from typing import Literal

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.kafka.reader import ClosableReader, ConfluentReader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.offsets import OffsetRange

logger = logging.getLogger(__name__)


def new_reader(
    settings: KafkaSettings,
    topic: str,
    throttle: Throttle | None = None,
    *,
    allow_gaps: bool = False,
    skip_unreadable: bool = False,
) -> ClosableReader:
    """The quick reader, or confluent-kafka's where its compiled kernel cannot be loaded or kept.

    What cannot be read as it is raises IntegrityError; with `skip_unreadable` it is told in `ReadEnd.unreadable` and
    `RangeRead.failures`, and reading goes on.

    numba is only loaded here: it takes a second, which the code location need not spend.
    """
    try:
        from kafka_s3_platform.kafka.fetch_reader import FetchReader
    except (ImportError, RuntimeError) as err:
        logger.warning("confluent-kafka reads, several times slower: the quick reader cannot be loaded (%s)", err)
        return ConfluentReader(settings, topic, throttle, allow_gaps=allow_gaps, skip_unreadable=skip_unreadable)
    return FetchReader(settings, topic, throttle, allow_gaps=allow_gaps, skip_unreadable=skip_unreadable)


def is_aborted(settings: KafkaSettings, topic: str, kafka_partition: int, offset: int) -> bool:
    """Whether the log holds a record at `offset`, which lies below its last stable offset, that was aborted.

    False also where there is no record: a control record's offset, or one that compaction has taken.
    """

    def has_record(isolation_level: Literal["read_committed", "read_uncommitted"]) -> bool:
        with ConfluentReader(settings, topic, isolation_level=isolation_level) as reader:
            return any(b.num_rows for b in reader.read(kafka_partition, OffsetRange(offset, offset + 1)))

    return not has_record("read_committed") and has_record("read_uncommitted")
