"""Chooses an executor's reader."""

import logging

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.record_reader import RecordReader, Throttle

logger = logging.getLogger(__name__)


def new_reader(
    settings: KafkaSettings,
    topic: str,
    throttle: Throttle | None = None,
    *,
    allow_gaps: bool = False,
    skip_unreadable: bool = False,
) -> RecordReader:
    """Return our own, quick reader, or confluent-kafka's if the compiled kernel cannot be loaded or kept.

    Unreadable records raise IntegrityError; with `skip_unreadable` they are listed in `ReadEnd.unreadable` and
    `RangeRead.failures`, and reading goes on. The kernel is imported only here, because this takes up to a second,
    which the code location need not spend.
    """
    try:
        from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
    except (ImportError, RuntimeError) as err:
        logger.warning("confluent-kafka reads, several times slower: the quick reader cannot be loaded (%s)", err)
        return ConfluentReader(settings, topic, throttle, allow_gaps=allow_gaps, skip_unreadable=skip_unreadable)
    return FetchReader(settings, topic, throttle, allow_gaps=allow_gaps, skip_unreadable=skip_unreadable)
