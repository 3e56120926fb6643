"""Records to try the platform with: page views, as JSON."""

import json
from datetime import datetime

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform.operate.local.settings import StackSettings

_FLUSH_SECONDS = 60
_MOST_QUEUED = 50_000
"""Below librdkafka's own limit, at which it would refuse a record."""
_PAGES = ("/", "/docs", "/prices", "/über-uns")


def produce_sample(settings: StackSettings, topic: str, count: int, start: datetime, end: datetime) -> None:
    """Send `count` records to a topic of the embedded stack, with times spread evenly over `[start, end)`.

    The key is a user, or null for each 17th record. The headers are the version of the value, and a referrer, which is
    null in two of three records.

    Raises:
        TransientError: the broker did not take all records in time.
    """
    errors: list[KafkaError] = []
    # All that matters in librdkafka's log is also reported as an error.
    keys = {"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True, "log_level": 2}
    producer = Producer(keys)
    start_ms, end_ms = (int(moment.timestamp() * 1000) for moment in (start, end))
    try:
        for number in range(count):
            value = {"view": number, "page": _PAGES[number % len(_PAGES)], "seconds": number % 90}
            producer.produce(
                topic,
                json.dumps(value, ensure_ascii=False).encode(),
                key=f"user-{number % 50}".encode() if number % 17 else None,
                headers=[("version", b"1"), ("referrer", None if number % 3 else b"https://example.com/")],
                timestamp=start_ms + (end_ms - start_ms) * number // count,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            while len(producer) > _MOST_QUEUED:
                producer.poll(0.1)
    except (BufferError, KafkaException) as err:
        raise TransientError(f"topic {topic}: the sample was not sent: {err}. Run the command again") from err
    if missing_count := producer.flush(_FLUSH_SECONDS) + len(errors):
        reason = errors[0].str() if errors else f"{_FLUSH_SECONDS} s are over"
        raise TransientError(f"topic {topic}: {missing_count} records of the sample were not taken: {reason}")
