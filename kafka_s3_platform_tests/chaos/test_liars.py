"""The liars pass on what they do not change, byte for byte, and what they change is understood by the clients."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLiar, KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import KAFKA_LIES
from kafka_s3_platform_tests.chaos.lies import FETCH, FOREVER, MESSAGES, METADATA, Lie
from kafka_s3_platform_tests.chaos.store_liar import STORE_LIES, StoreLiar, StoreLies, kept_settings, lying_store
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import ask_offsets, produce, read, records_of


@pytest.fixture
def broker(lab: Lab) -> Iterator[KafkaLiar]:
    with lying_broker(lab.kafka.bootstrap_servers, KafkaLies(1)) as server:
        yield server


@pytest.fixture
def through(broker: KafkaLiar) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def store(lab: Lab) -> Iterator[StoreLiar]:
    with lying_store(lab.store, StoreLies(1)) as server:
        yield server


def objects(store_settings: StoreSettings, store: StoreLiar) -> ObjectStore:
    return ObjectStore(store_settings.model_copy(update=kept_settings(store)))


def test_an_honest_broker_is_passed_on(through: KafkaSettings, lab: Lab) -> None:
    lab.create(lab.topic, 2)
    produce(through, lab.topic, [b"%d" % n for n in range(20)])
    with ClusterAdmin(through) as admin, ClusterAdmin(lab.kafka) as straight:
        assert admin.describe_topic(lab.topic) == straight.describe_topic(lab.topic)
        found, known = admin.frontiers(lab.topic, [0, 1]), straight.frontiers(lab.topic, [0, 1])
    assert [(f.high_watermark, f.leader_epoch) for f in found.values()] == [
        (f.high_watermark, f.leader_epoch) for f in known.values()
    ]
    with FetchReader(through, lab.topic) as reader:
        table, end = read(reader, 0, 20)
    assert table.equals(records_of(lab.kafka, lab.topic))
    assert end.position == 20


def test_every_broker_address_is_the_proxy_s(through: KafkaSettings, broker: KafkaLiar) -> None:
    with ClusterAdmin(through) as admin:
        addresses = admin.describe_cluster().addresses
    assert {f"{host}:{port}" for host, port in addresses.values()} == {broker.bootstrap_servers}


@pytest.mark.parametrize(("api", "version"), [(FETCH, 12), (METADATA, 12)])
def test_what_was_understood_is_written_as_it_was_read(api: int, version: int) -> None:
    answers = MESSAGES[api][1]
    first = answers[version]()
    first.with_header(7)
    data = bytes(first.encode(header=True))
    assert bytes(answers[version].decode(data, header=True).encode(header=True)) == data


@pytest.mark.parametrize("kind", [k for k in KAFKA_LIES if k.startswith("ListOffsets") and "moment" not in k])
def test_a_lie_is_told_as_often_as_it_was_asked_for(
    kind: str, broker: KafkaLiar, through: KafkaSettings, lab: Lab
) -> None:
    lab.create(lab.topic, 1)
    produce(through, lab.topic, [b"v"] * 10)
    between = round(time.time() * 1000) + 2
    time.sleep(0.005)
    produce(through, lab.topic, [b"v"] * 10)
    broker.liar.lie(Lie(kind, KAFKA_LIES[kind], nth=2, times=1))
    with ClusterAdmin(through) as admin:
        for _ in range(2):
            # what becomes of a lie is for others to judge
            with suppress(PlatformError, ValueError):
                admin.frontiers(lab.topic, [0])
                ask_offsets(admin, lab.topic, [0], [1, between]).all_or_raise()
    assert broker.liar.told == {kind: 1}
    broker.liar.be_honest()


@pytest.mark.parametrize("kind", ["Fetch: batches in another order", "Fetch: batches twice"])
def test_batches_in_no_order_of_a_log_are_no_records_and_a_good_answer_heals(
    kind: str, broker: KafkaLiar, through: KafkaSettings, lab: Lab
) -> None:
    """librdkafka would pass over those that come too late, silently."""
    lab.create(lab.topic, 1)
    for n in range(4):
        produce(through, lab.topic, [b"%d" % n] * 5)
    broker.liar.lie(Lie(kind, KAFKA_LIES[kind], times=FOREVER))
    with FetchReader(through, lab.topic) as reader:
        with pytest.raises(BrokerUnavailableError, match=rf"{lab.topic}.*out of order"):
            read(reader, 0, 20)
        broker.liar.be_honest()
        assert read(reader, 0, 20)[0].num_rows == 20


def test_conditions_are_ignored_while_that_is_the_lie(lab: Lab, store: StoreLiar) -> None:
    client = objects(lab.store, store)
    client.put_new("a b+ü", b"first", {"m": "ü"})
    with pytest.raises(PreconditionError):
        client.put_new("a b+ü", b"second")
    store.liar.lie(Lie("ignored", STORE_LIES["store: conditions ignored"], times=FOREVER))
    client.put_new("a b+ü", b"second", {"m": "ü"})
    assert ObjectStore(lab.store).get("a b+ü") == b"second"
    store.liar.be_honest()
    with pytest.raises(PreconditionError):
        client.put_new("a b+ü", b"third")


def test_the_newest_objects_are_missing_from_a_list(lab: Lab, store: StoreLiar) -> None:
    client = objects(lab.store, store)
    store.liar.lie(Lie("left out", STORE_LIES["store: lists without the newest"]))
    for n in range(5):
        client.put_new(f"key-{n}", b"x")
    assert 2 <= len(list(client.list("key-"))) <= 4
    assert len(list(client.list("key-"))) == 5


def test_what_was_just_written_is_not_there_yet(lab: Lab, store: StoreLiar) -> None:
    client = objects(lab.store, store)
    store.liar.lie(Lie("fresh", STORE_LIES["store: not there yet"]))
    client.put_new("key", b"x")
    assert client.head("key") is None
    assert client.head("key") is not None


def test_a_request_arrives_again_after_its_answer(lab: Lab, store: StoreLiar) -> None:
    client = objects(lab.store, store)
    store.liar.lie(Lie("later", STORE_LIES["store: a request delivered again later"]))
    etag = client.put_new("key", b"x")
    store.settle()
    found = client.head("key")
    assert found is not None
    assert found.etag == etag
