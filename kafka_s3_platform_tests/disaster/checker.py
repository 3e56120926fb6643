"""Everything that a cluster held before it was lost, and what a new one holds of it now.

It reads by librdkafka alone, and knows nothing of the platform: each committed record with its key, value, headers,
time and kafka partition, in order; no record of an aborted transaction; the configs and ACLs of each topic; the
versions and ids of the registry; and the record that each group was to read next.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

READ_SECONDS = 60.0
MOST_VERDICTS = 20

Place = tuple[str, int]
"""Topic and kafka partition."""

Headers = tuple[tuple[str, bytes | None], ...]

CHANGED = {"cleanup.policy": "compact"}
"""A config that a new topic does not get, since it would remove restored records. The restore says so."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a consumer sees of a record, besides its offset. `timestamp` is in epoch ms."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


@dataclass
class Known:
    """The truth about the lost cluster.

    `records` are the committed ones of each kafka partition by offset. `next_offsets` are those that a group has
    committed. `topics` has the number of kafka partitions and the own configs, `acls` those of topics, as sets of
    comparable values. `schemas` are the registry's versions: subject and number -> id and text.
    """

    records: dict[Place, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    aborted_count: int = 0
    next_offsets: dict[str, dict[Place, int]] = field(default_factory=dict)
    topics: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    acls: frozenset[tuple[str, ...]] = frozenset()
    schemas: Mapping[tuple[str, int], tuple[int, str]] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        return sum(map(len, self.records.values()))

    def list_records(self, place: Place, start: int = 0) -> list[Record]:
        """List the committed records of a kafka partition from a source offset on, in order."""
        return [record for offset, record in sorted(self.records.get(place, {}).items()) if offset >= start]


def describe_topics(servers: str, names: Sequence[str]) -> dict[str, tuple[int, dict[str, str]]]:
    """Return the number of kafka partitions of each topic, and the configs that are its own."""
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_topics(timeout=30).topics
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names if name in listed]
    own: dict[str, dict[str, str]] = {}
    for resource, future in (admin.describe_configs(resources) if resources else {}).items():
        entries = future.result(30).values()
        topic_configs = (e for e in entries if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
        own[resource.name] = {entry.name: entry.value for entry in topic_configs}
    return {name: (len(listed[name].partitions), own[name]) for name in names if name in listed}


def list_acls(servers: str) -> frozenset[tuple[str, ...]]:
    """Return all ACLs of topics."""
    anyone: Any = None  # the stubs do not know that None is anything
    anything = AclBindingFilter(
        ResourceType.TOPIC, anyone, ResourcePatternType.ANY, anyone, anyone, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": servers})
    bindings: list[Any] = admin.describe_acls(anything).result(30)
    return frozenset(
        (b.name, b.resource_pattern_type.name, b.principal, b.host, b.operation.name, b.permission_type.name)
        for b in bindings
    )


def check_topics(known: Known, servers: str) -> Iterator[str]:
    """Compare kafka partitions, configs and ACLs."""
    now = describe_topics(servers, [*known.topics])
    for name, (count, configs) in known.topics.items():
        if name not in now:
            yield f"{name} is not there"
            continue
        if now[name][0] != count:
            yield f"{name} has {now[name][0]} kafka partitions, not {count}"
        for config, value in configs.items():
            wanted = "delete" if CHANGED.get(config) == value else value
            if now[name][1].get(config) != wanted:
                yield f"{name} has {config}={now[name][1].get(config)}, not {wanted}"
    acls = list_acls(servers)
    yield from (f"the ACL {' '.join(acl)} is not there" for acl in sorted(known.acls - acls))
    yield from (f"the ACL {' '.join(acl)} was not there" for acl in sorted(acls - known.acls))


def check_records(known: Known, servers: str) -> Iterator[str]:
    """Compare every record of every kafka partition, in order."""
    places = [(name, number) for name, (count, _) in known.topics.items() for number in range(count)]
    found = read_all(servers, places)
    for place in places:
        yield from compare(f"{place[0]}-{place[1]}", known.list_records(place), found[place])


def compare(what: str, wanted: Sequence[Record], found: Sequence[Record]) -> Iterator[str]:
    if len(wanted) != len(found):
        yield f"{what} has {len(found):,} records, not {len(wanted):,}"
    pairs = zip(wanted, found, strict=False)
    differing = next(((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    if differing is not None:
        number, (one, other) = differing
        yield f"{what}: record {number} is {other}, not {one}"


def check_registry(known: Known, versions: Mapping[tuple[str, int], Mapping[str, Any]]) -> Iterator[str]:
    """Compare versions with ids and texts."""
    now = {place: (schema["id"], schema["schema"]) for place, schema in versions.items()}
    for place in known.schemas.keys() | now.keys():
        if known.schemas.get(place) != now.get(place):
            yield f"version {place[1]} of subject {place[0]} is {now.get(place)}, not {known.schemas.get(place)}"


def check_groups(known: Known, servers: str) -> Iterator[str]:
    """Let each group go on, and compare the records that it reads with those that it had not read."""
    for group, offsets in known.next_offsets.items():
        found = go_on(servers, group, offsets)
        for place, offset in offsets.items():
            what = f"group {group} in {place[0]}-{place[1]}"
            yield from compare(what, known.list_records(place, offset), found[place])


def read_all(servers: str, places: Sequence[Place]) -> dict[Place, list[Record]]:
    """Read kafka partitions from their begin to their end, as a `read_committed` consumer of no group."""
    consumer = _new_consumer(servers, "disaster-checker")
    try:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
        return _read_to_ends(consumer, places)
    finally:
        consumer.close()


def go_on(servers: str, group: str, places: Mapping[Place, int]) -> dict[Place, list[Record]]:
    """Read what a group has not read yet, as its consumer does. It fails where nothing is committed."""
    consumer = _new_consumer(servers, group)
    try:
        consumer.subscribe(sorted({topic for topic, _ in places}))
        return _read_to_ends(consumer, [*places])
    finally:
        consumer.close()


def _new_consumer(servers: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )


def _read_to_ends(consumer: Consumer, places: Sequence[Place]) -> dict[Place, list[Record]]:
    records: dict[Place, list[Record]] = {place: [] for place in places}
    unfinished = set(places)
    deadline = time.monotonic() + READ_SECONDS
    while unfinished:
        # It waits for so many messages, or for the whole time.
        messages = consumer.consume(10_000, timeout=0.5)
        if messages:
            deadline = time.monotonic() + READ_SECONDS
        elif time.monotonic() > deadline:
            raise TimeoutError(f"no record and no end for {READ_SECONDS:.0f} s: {sorted(unfinished)}")
        for message in messages:
            place = find_place(message)
            error = message.error()
            if error is None:
                records[place].append(make_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                unfinished.discard(place)
            else:
                raise RuntimeError(f"{place[0]}-{place[1]}: {error}")
    return records


def find_place(message: Message) -> Place:
    """Return topic and kafka partition."""
    topic, kafka_partition = message.topic(), message.partition()
    assert topic is not None
    assert kafka_partition is not None
    return topic, kafka_partition


def make_record(message: Message) -> Record:
    """Return what a consumer sees of a message."""
    headers: Any = tuple(message.headers() or ())
    return Record(message.key(), message.value(), headers, message.timestamp()[1])
