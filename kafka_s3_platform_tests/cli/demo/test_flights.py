from datetime import datetime, timezone

from kafka_s3_platform.cli.demo.flights import FLIGHTS, read_flights


def test_every_flight_of_2013_is_a_record_in_the_order_of_departure() -> None:
    found = list(read_flights())
    times = [f.timestamp_ms for f in found]
    assert len(found) == FLIGHTS
    assert times == sorted(times)
    assert datetime.fromtimestamp(times[0] / 1000, timezone.utc) == datetime(2013, 1, 1, 10, 15, tzinfo=timezone.utc)
    assert any(f.key is None for f in found)
    assert ("cancelled", None) in {header for f in found for header in f.headers}
    assert found[0].value.startswith(b'{"year":2013,"month":1,"day":1,"dep_time":517,')
