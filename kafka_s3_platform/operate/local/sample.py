"""Records to try the platform with: page views, as JSON."""

import json
import time

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform.operate.local.settings import StackSettings

SAMPLE_HOURS = 2
"""The times of the records are evenly spread over so many hours before now."""

_FLUSH_SECONDS = 60
_MOST_QUEUED = 50_000
"""Below librdkafka's own limit, at which it would refuse a record."""
_PAGES = ("/", "/docs", "/prices", "/about")


def produce_sample(settings: StackSettings, topic: str, count: int) -> None:
    """Send `count` records to a topic of the embedded stack: the key is a user, a header the version of the value.

    Raises:
        TransientError: the broker did not take all of them in time.
    """
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True})
    now_ms = time.time_ns() // 1_000_000
    span_ms = SAMPLE_HOURS * 3_600_000
    try:
        for number in range(count):
            value = {"view": number, "page": _PAGES[number % len(_PAGES)], "seconds": number % 90}
            producer.produce(
                topic,
                json.dumps(value).encode(),
                key=f"user-{number % 50}".encode(),
                headers=[("version", b"1")],
                timestamp=now_ms - span_ms + span_ms * number // count,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            while len(producer) > _MOST_QUEUED:
                producer.poll(0.1)
    except (BufferError, KafkaException) as err:
        raise TransientError(f"topic {topic}: the sample was not sent: {err}. Run the command again") from err
    if missing_count := producer.flush(_FLUSH_SECONDS) + len(errors):
        reason = errors[0].str() if errors else f"{_FLUSH_SECONDS} s are over"
        raise TransientError(f"topic {topic}: {missing_count} records of the sample were not taken: {reason}")
