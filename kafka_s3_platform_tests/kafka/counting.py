"""Counts the requests that reach a broker, by what they ask: the round trips that a call costs."""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLiar, KafkaLies
from kafka_s3_platform_tests.store.http_proxy import running

_NAMES = {
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    16: "ListGroups",
    29: "DescribeAcls",
    32: "DescribeConfigs",
}


class CountingBroker(KafkaLiar):
    """An honest proxy before a broker. `asked` has the requests of librdkafka's clients, but not those to connect."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, KafkaLies("honest"))
        self.asked: Counter[str] = Counter()

    def rewritten(self, request: bytes, answer: bytes) -> bytes:
        api, _, _, length = struct.unpack_from(">hhih", request)
        if api in _NAMES and request[10 : 10 + length] == b"rdkafka":
            self.asked[_NAMES[api]] += 1
        return super().rewritten(request, answer)


@contextmanager
def counting_broker(upstream: str) -> Iterator[CountingBroker]:
    """A running proxy before the broker at `upstream`."""
    with running(CountingBroker(upstream)) as server:
        yield server
