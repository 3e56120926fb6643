from datetime import datetime, timezone

import pytest
from pydantic import SecretStr

from examples.demo import FLIGHTS, TOPIC, ensure_flights, read_flights
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform_tests.conftest import Lab


def test_every_flight_of_january_is_a_record_in_the_order_of_departure() -> None:
    flights = read_flights()
    first = next(flights)
    times, keys, headers = [first.timestamp_ms], {first.key}, set(first.headers)
    for flight in flights:
        times.append(flight.timestamp_ms)
        keys.add(flight.key)
        headers.update(flight.headers)
    assert len(times) == FLIGHTS
    assert times == sorted(times)
    assert datetime.fromtimestamp(times[0] / 1000, timezone.utc) == datetime(2013, 1, 1, 10, 15, tzinfo=timezone.utc)
    assert None in keys
    assert ("cancelled", None) in headers
    assert first.value.startswith(b'{"year":2013,"month":1,"day":1,"dep_time":517,')


def test_a_fatal_error_of_the_producer_is_told_with_the_topic(lab: Lab) -> None:
    """The first record that the broker refuses is fatal to a producer that must leave no gap."""
    lab.create(TOPIC, 4, max_message_bytes=100)
    gapless = KafkaSettings(
        bootstrap_servers=lab.kafka.bootstrap_servers, producer={"enable.gapless.guarantee": SecretStr("true")}
    )
    with pytest.raises(PermanentError, match=f"the flights to topic {TOPIC}: .* unable to satisfy gap-less guarantee"):
        ensure_flights(gapless)
