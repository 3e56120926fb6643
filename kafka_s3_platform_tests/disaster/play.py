"""A cluster is filled, archived, deleted, and restored into an empty one by one command. Each phase is timed.

Twelve topics in five formats, with transactions, headers, tombstones, configs and ACLs; a Schema Registry; six groups
in the middle of reading. `checker` judges.
"""

import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import fastavro
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_s3_platform.core.defs.resources import SPARK_VARIABLE
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import REPOSITORY, TEST_BROKER, free_port_settings, stopped_at_exit
from kafka_s3_platform_tests.disaster.checker import (
    Known,
    Place,
    Record,
    check_groups,
    check_records,
    check_registry,
    check_topics,
    describe_topics,
    find_place,
    list_acls,
    read_all,
)
from kafka_s3_platform_tests.kafka.guarded import guarded_properties
from kafka_s3_platform_tests.registries.importing_registry import ImportingRegistry
from kafka_s3_platform_tests.store.http_proxy import running

RESTORE_ID = "disaster"
BATCH = 200
"""Records of a transaction."""
POLL_SECONDS = 0.3

LONGEST_DELAY = 8.0
"""So many seconds at most pass between a number of records in the target, and a kill."""

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"what","type":"string"}]}'
JSON_SCHEMA = '{"title":"Stock","type":"object","properties":{"id":{"type":"integer"},"what":{"type":"string"}}}'
PROTOBUF = 'syntax = "proto3"; message Click { int64 id = 1; string what = 2; }'
UNUSED = '{"type":"record","name":"Unused","fields":[{"name":"a","type":"int"}]}'
"""A schema that no record names."""

R = TypeVar("R")


def write_avro(schema_id: int, number: int, text: str) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, schema_id))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, json.loads(AVRO), {"id": number, "what": text})
    return out.getvalue()


def write_json_schema(schema_id: int, number: int, text: str) -> bytes:
    return struct.pack(">bI", 0, schema_id) + json.dumps({"id": number, "what": text}).encode()


def write_protobuf(schema_id: int, number: int, text: str) -> bytes:
    message = b"\x08" + _write_varint(number) + b"\x12" + _write_varint(len(text.encode())) + text.encode()
    return struct.pack(">bI", 0, schema_id) + b"\x00" + message


def _write_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def write_json(_: int, number: int, text: str) -> bytes:
    return json.dumps({"id": number, "what": text}).encode()


def write_bytes(_: int, number: int, text: str) -> bytes:
    return struct.pack(">q", number) + text.encode("utf-16")


@dataclass(frozen=True)
class Topic:
    """A topic of the lost cluster. `write` makes a value of schema id, number and text.

    `schema` is the type and the text of its schema. `readers` are users that may read it.
    """

    name: str
    kafka_partitions: int
    write: Callable[[int, int, str], bytes]
    schema: tuple[str, str] | None = None
    is_transactional: bool = False
    configs: dict[str, str] = field(default_factory=dict)
    readers: tuple[str, ...] = ()


AN_AVRO, A_JSON_SCHEMA, A_PROTOBUF = ("AVRO", AVRO), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTOBUF)
TOPICS = (
    Topic("orders", 6, write_avro, AN_AVRO, is_transactional=True, readers=("billing", "shipping")),
    Topic("orders.changes", 3, write_avro, AN_AVRO, configs={"cleanup.policy": "compact"}),
    Topic("customers", 4, write_avro, AN_AVRO, configs={"segment.ms": "3600000"}, readers=("billing",)),
    Topic("stock", 3, write_json_schema, A_JSON_SCHEMA, is_transactional=True),
    Topic("prices", 2, write_json_schema, A_JSON_SCHEMA, configs={"max.message.bytes": "2000000"}),
    Topic("clicks", 8, write_protobuf, A_PROTOBUF, configs={"compression.type": "zstd"}),
    Topic("views", 4, write_protobuf, A_PROTOBUF),
    Topic("logs.web", 4, write_json, readers=("search",)),
    Topic("logs.app", 2, write_json, configs={"retention.ms": "-1"}),
    Topic("audit", 1, write_json, is_transactional=True, readers=("auditor",)),
    Topic("images", 2, write_bytes),
    Topic("signals", 5, write_bytes, configs={"delete.retention.ms": "3600000"}),
)
WITH_REGISTRY = [topic for topic in TOPICS if topic.schema]

GROUPS: dict[str, tuple[tuple[str, ...], float]] = {
    "billing": (("orders", "customers"), 0.4),
    "shipping": (("orders",), 0.9),
    "search": (("logs.web", "logs.app", "clicks"), 0.2),
    "warehouse": (("stock", "prices", "images", "signals", "views"), 0.5),
    "auditor": (("audit", "orders.changes"), 1.0),
    "everything": (tuple(topic.name for topic in TOPICS), 0.6),
}
"""The topics of each group, and about which part of their records it has read."""


class Phases:
    """Seconds of each phase, and what it is about. `tell` gets a line as each begins and ends."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell

    def run(self, name: str, do: Callable[[], R]) -> R:
        self._tell(f"{name} ...")
        started = time.monotonic()
        result = do()
        self.seconds[name] = time.monotonic() - started
        self._tell(f"{name}: {self.seconds[name]:.1f} s")
        return result


@dataclass(frozen=True)
class Moment:
    """A moment to kill a restore: so many `seconds` after the target has so many records."""

    records: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What came of it. `verdicts` are sentences about what did not come back as it was."""

    known: Known
    seconds: dict[str, float]
    verdicts: list[str]
    report: dict[str, Any]


@dataclass(frozen=True)
class Site:
    """The folder with the connector files, and the brokers and registries of before and after.

    `new` also has the store. `lose_registry` stops the old registry.
    """

    folder: Path
    old: StackSettings
    new: StackSettings
    old_registry: ImportingRegistry
    new_registry: ImportingRegistry
    lose_registry: Callable[[], None]


def play(records: int, seed: int, kills: int = 0, tell: Callable[[str], object] = print) -> Outcome:
    """Play it all with so many records a topic. So many times the restore is killed at a random moment."""
    phases = Phases(tell)
    draw = random.Random(seed)
    with ExitStack() as stack:
        site = phases.run("start a cluster, a registry and a store", lambda: stack.enter_context(started_site()))
        known = phases.run(f"produce to {len(TOPICS)} topics", lambda: fill(site, records, draw))
        phases.run(f"read in {len(GROUPS)} groups", lambda: read_in_groups(site, known))
        write_connectors(site)
        for name in ("with-registry", "without-registry"):
            phases.run(f"archive connector {name}", partial(run_command, site, "archive", name, "--until-now"))
        phases.run("archive the registry", lambda: run_command(site, "registry", "archive", "with-registry"))
        phases.run("lose the cluster and its registry", lambda: lose(site))
        phases.run("start an empty cluster", lambda: embedded.start_servers((Broker(site.new),)))
        # a third before the first record; in order, since what was sent stays
        parts = sorted(max(0.0, draw.uniform(-0.5, 1)) for _ in range(kills))
        moments = [Moment(int(part * known.record_count), draw.uniform(0, LONGEST_DELAY)) for part in parts]
        tell("\n".join(phases.run(f"kill it {kills} times", lambda: [kill_restore(site, at) for at in moments])))
        report = phases.run("kafka-s3 restore", lambda: restore(site))
        servers = site.new.bootstrap_servers
        verdicts = phases.run("check topics, configs and ACLs", lambda: [*check_topics(known, servers)])
        verdicts += phases.run("check every record", lambda: [*check_records(known, servers)])
        verdicts += phases.run("check the registry", lambda: [*check_registry(known, site.new_registry.versions)])
        verdicts += phases.run("let the groups go on", lambda: [*check_groups(known, servers)])
    return Outcome(known, phases.seconds, verdicts, report)


@contextmanager
def started_site() -> Iterator[Site]:
    """Start a broker with an authorizer, a store and a registry. The second broker and registry are empty.

    The store is in the stack of the second broker's folder, since the first one's is deleted.
    """
    cache = StackSettings.from_environment().cache
    with tempfile.TemporaryDirectory(prefix="disaster-") as name, ExitStack() as stack:
        folder = Path(name)
        settings = []
        for side in ("old", "new"):
            ports = free_port_settings()
            guarded = guarded_properties(ports["kafka_port"], ports["kafka_controller_port"], ports["registry_port"])
            properties = {**TEST_BROKER, **guarded}
            own = StackSettings(data_dir=folder / side, cache=cache, kafka_properties=properties, **ports)
            stack.enter_context(stopped_at_exit(own))
            settings.append(own)
        old, new = settings
        embedded.start_servers((Broker(old),))
        embedded.start_servers((SeaweedFS(new),))
        SeaweedFS(new).create_bucket()
        stack.enter_context(lost := ExitStack())
        registries = lost.enter_context(running(ImportingRegistry())), stack.enter_context(running(ImportingRegistry()))
        (folder / "connectors").mkdir()
        yield Site(folder, old, new, *registries, lose_registry=lost.close)


def fill(site: Site, records: int, draw: random.Random) -> Known:
    """Create the topics, and produce to them. Return all that a consumer may see, and what the registry has."""
    known = Known()
    servers = site.old.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    new_topics = [NewTopic(t.name, t.kafka_partitions, 1, config=t.configs) for t in TOPICS]
    for future in admin.create_topics(new_topics).values():
        future.result(30)
    bindings = [_bind(topic.name, reader) for topic in TOPICS for reader in topic.readers]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    registry = site.old_registry
    ids = {
        t.name: registry.register(f"{t.name}-value", t.schema[1], schemaType=t.schema[0]) for t in TOPICS if t.schema
    }
    registry.register("unused-value", UNUSED)
    registry.configs["orders-value"] = {"compatibilityLevel": "FULL"}
    for topic in TOPICS:
        produce(servers, topic, ids.get(topic.name, 0), records, draw, known)
    known.topics = describe_topics(servers, [topic.name for topic in TOPICS])
    known.acls = list_acls(servers)
    known.schemas = {place: (schema["id"], schema["schema"]) for place, schema in registry.versions.items()}
    return known


def _bind(topic: str, reader: str) -> AclBinding:
    kind, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, kind, f"User:{reader}", "*", AclOperation.READ, allow)


def produce(servers: str, topic: Topic, schema_id: int, count: int, draw: random.Random, known: Known) -> None:
    """Produce records of the last 30 hours. Every fifth transaction is aborted."""
    own = {"transactional.id": f"writer-{topic.name}"} if topic.is_transactional else {"enable.idempotence": True}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 2, **own})
    if topic.is_transactional:
        producer.init_transactions(30)
    begun = datetime.now(timezone.utc) - timedelta(hours=30)
    for first in range(0, count, BATCH):
        batch: list[tuple[Place, int, Record]] = []
        if topic.is_transactional:
            producer.begin_transaction()
        for number in range(first, min(first + BATCH, count)):
            moment = begun + timedelta(hours=29) * number / count
            record = _draw_record(topic, schema_id, number, int(moment.timestamp() * 1000), draw)
            _send(producer, topic, record, number % topic.kafka_partitions, batch)
        is_aborted = topic.is_transactional and first // BATCH % 5 == 3
        if is_aborted:
            producer.flush(30)
            producer.abort_transaction(30)
            known.aborted_count += len(batch)
            continue
        producer.flush(30)
        if topic.is_transactional:
            producer.commit_transaction(30)
        for place, offset, record in batch:
            known.records[place][offset] = record


def _send(
    producer: Producer, topic: Topic, record: Record, kafka_partition: int, batch: list[tuple[Place, int, Record]]
) -> None:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"{topic.name}: {error}")
        batch.append((find_place(message), message.offset() or 0, record))

    producer.produce(
        topic.name,
        record.value,
        record.key,
        partition=kafka_partition,
        headers=list(record.headers),
        timestamp=record.timestamp,
        on_delivery=note,
    )


def _draw_record(topic: Topic, schema_id: int, number: int, timestamp: int, draw: random.Random) -> Record:
    """Draw a record: some have no key, an empty one, no value (a tombstone), an empty value, or odd headers."""
    key = draw.choice([b"", None, *(b"key-%d" % draw.randrange(500) for _ in range(8))])
    if topic.configs.get("cleanup.policy") == "compact":
        key = b"key-%d" % number
    value = None if draw.random() < 0.05 else topic.write(schema_id, number, "ä" * draw.randrange(80))
    if topic.schema is None and draw.random() < 0.02:
        value = b""
    headers = draw.choice([(), (("trace", b"%d" % number),), (("a", b"1"), ("a", None), ("", b""), ("a", b"1"))])
    return Record(key, value, headers, timestamp)


def read_in_groups(site: Site, known: Known) -> None:
    """Let each group read a part of its topics, and commit where it is in each kafka partition."""
    for group, (topics, part) in GROUPS.items():
        places = [(t.name, n) for t in TOPICS if t.name in topics for n in range(t.kafka_partitions)]
        wanted = int(part * sum(len(known.records[place]) for place in places))
        consumer = Consumer(
            {
                "bootstrap.servers": site.old.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([*topics])
        next_offsets = dict.fromkeys(places, 0)
        while wanted:
            messages = consumer.consume(min(wanted, 1000), timeout=30)
            for message in messages:
                next_offsets[find_place(message)] = (message.offset() or 0) + 1
            if not messages:
                raise TimeoutError(f"group {group} read {wanted} records less than there are")
            wanted -= len(messages)
        positions = [TopicPartition(*place, offset) for place, offset in next_offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()
        known.next_offsets[group] = next_offsets


def write_connectors(site: Site) -> None:
    """Write the files of two connectors, the worker files of both clusters, and where the new registry is."""
    keys = {
        "s3.bucket.name": site.new.bucket,
        "store.url": site.new.s3_endpoint,
        "aws.access.key.id": site.new.aws_access_key_id,
        "aws.secret.access.key": site.new.aws_secret_access_key,
        "archive.consumer.groups": ".*",
        "archive.allowed.lateness.ms": "0",
        "archive.start.hour": f"{datetime.now(timezone.utc) - timedelta(hours=40):%Y-%m-%dT%H:00}",
        "flush.size": "1000000",
    }
    registry = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": site.old_registry.endpoint,
    }
    named = ",".join(topic.name for topic in WITH_REGISTRY)
    others = "|".join(topic.name.replace(".", r"\.") for topic in TOPICS if not topic.schema)
    files = {"with-registry": {"topics": named, **registry}, "without-registry": {"topics.regex": others}}
    folder = site.folder / "connectors"
    for name, own in files.items():
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "topics.dir": name, **keys, **own}))
    (folder / "worker.properties").write_text(f"bootstrap.servers={site.old.bootstrap_servers}\n")
    (site.folder / "new.properties").write_text(f"bootstrap.servers={site.new.bootstrap_servers}\n")
    (site.folder / "registry.properties").write_text(f"schema.registry.url={site.new_registry.endpoint}\n")


def run_command(site: Site, *arguments: str) -> str:
    """Run `kafka-s3` as a shell does. Return what it prints."""
    with started_command(site, *arguments) as process:
        out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"kafka-s3 {' '.join(arguments)}: exit status {process.returncode}\n{out}{err}")
    return out


@contextmanager
def started_command(site: Site, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Start `kafka-s3` in a process group of its own, which is killed in the end."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_", "PYTHON"))}
    spark = {name: value for name, value in os.environ.items() if name == SPARK_VARIABLE}
    process = subprocess.Popen(
        [sys.executable, "-m", "kafka_s3_platform.cli", *arguments],
        cwd=site.folder,
        env={**given, **spark, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def lose(site: Site) -> None:
    """Kill the broker, and delete its data. Its registry is gone with it."""
    process = Broker(site.old).daemon.process()
    if process is None:
        raise RuntimeError("the broker does not run")
    process.kill()
    process.wait(30)
    shutil.rmtree(site.old.data_dir / "kafka")
    site.lose_registry()


def list_arguments() -> list[str]:
    """List the arguments of the one command that restores all into the empty cluster."""
    options = ["--all-topics", "--to-topic", "{topic}", "--create-topic", "--restore-acls", "--groups"]
    target = ["--target-worker", "new.properties", "--to-registry", "registry.properties"]
    connectors = ["with-registry", "without-registry"]
    return ["restore", *connectors, *options, *target, "--restore-id", RESTORE_ID, "--json"]


def restore(site: Site) -> dict[str, Any]:
    """Restore all. Return the report."""
    report: dict[str, Any] = json.loads(run_command(site, *list_arguments()))
    return report


def kill_restore(site: Site, moment: Moment) -> str:
    """Kill the restore with all of its processes at this moment, unless it has ended. Say how far it was."""
    with started_command(site, *list_arguments()) as process:
        while runs_on(process, POLL_SECONDS) and count_log_records(site) < moment.records:
            pass
        runs_on(process, moment.seconds)
    places = [(t.name, n) for t in TOPICS for n in range(t.kafka_partitions)]
    there = describe_topics(site.new.bootstrap_servers, [topic.name for topic in TOPICS])
    records = read_all(site.new.bootstrap_servers, [place for place in places if place[0] in there])
    end = "killed" if process.returncode < 0 else "it had ended"
    at = f"{moment.seconds:.1f} s after {moment.records:,} records"
    return f"{at} {end}: {len(there)} topics, {sum(map(len, records.values())):,} committed records"


def runs_on(process: "subprocess.Popen[str]", seconds: float) -> bool:
    """Wait for the end of the process, so many seconds at most. Return True if it still runs."""
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def count_log_records(site: Site) -> int:
    """Count what the logs of the new cluster's topics hold, also what is not committed, and marks of transactions."""
    servers = site.new.bootstrap_servers
    there = describe_topics(servers, [topic.name for topic in TOPICS])
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "counts", "enable.auto.commit": False})
    try:
        places = [TopicPartition(t.name, n) for t in TOPICS if t.name in there for n in range(t.kafka_partitions)]
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    except KafkaException:
        # of a topic that is just created
        return 0
    finally:
        consumer.close()
