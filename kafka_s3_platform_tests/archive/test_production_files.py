"""Files as they run in production with other tools, loaded as they are and archived: the objects are what those write.

Changed are only the addresses of the test's servers, the paths of secrets, and what one plain broker has not.
"""

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import match_topics
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.archive.values import framed
from kafka_s3_platform_tests.conftest import REPOSITORY, Lab
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, produce

PRODUCTION = REPOSITORY / "kafka_s3_platform_tests" / "golden" / "production"
MINUTE = timedelta(minutes=1)
HOUR_12 = "year=2026/month=01/day=01/hour=12"
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "string"}, {"name": "settled_at", "type": "long"}],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}
CHANGE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Row"], "default": None},
        {"name": "op", "type": "string"},
    ],
}
INVOICE = {"type": "record", "name": "Invoice", "fields": [{"name": "n", "type": "int"}]}


def texts(*values: str | None, every: timedelta = timedelta(), **more: Any) -> list[Sent]:
    return [Sent(None if v is None else v.encode(), b"k", NOON + n * every, **more) for n, v in enumerate(values)]


@dataclass(frozen=True)
class Case:
    """A file, what its topics get, and key -> content of the objects that its sink writes of that.

    `world` are the replacements in its text besides those of addresses and of secrets. Values with a schema are framed.
    """

    file: str
    bucket: str
    topics: Mapping[str, Sequence[Any]]
    objects: Mapping[str, Any]
    schema: Any = None
    world: Mapping[str, str] = field(default_factory=dict)
    letters: int = 0


OWNERS = ("CDC", "AUDIT_AWS", "AIVEN", "LENSES", "CEPH")
"""The beginnings of the variables that the files name."""

SECRETS = {
    "credentials.properties": (("access-key", "secret-key"), ("accessKey", "secretKey")),
    "s3.properties": (("id", "secret"),),
}
STORE_URL = '"store.url": "https://minio.example", "tasks.max"'
CASES = [
    Case(
        "strimzi-orders.yaml",
        "lake-raw-orders",
        {"orders.v1": texts('{"n":0}', '{"n": 1}', None, "broken", '{"n":4}', every=5 * MINUTE)},
        {
            f"landing/kafka/orders.v1/{HOUR_12}/orders.v1+0+0000000000.json.gz": [{"n": 0}, {"n": 1}],
            f"landing/kafka/orders.v1/{HOUR_12}/orders.v1+0+0000000004.json.gz": [{"n": 4}],
        },
        world={"    s3.region:": "    store.url: https://minio.example\n    s3.region:"},
        letters=1,
    ),
    Case(
        "msk-connect-clicks.json",
        "clicks-raw",
        {"clicks.web": texts('{"a": 1}', "any text"), "clicks.app": texts("x")},
        {
            "topics/clicks.web/partition=0/clicks.web+0+0000000000.jsonl.gz": b'{"a": 1}\nany text\n',
            "topics/clicks.app/partition=0/clicks.app+0+0000000000.jsonl.gz": b"x\n",
        },
        world={'"tasks.max"': STORE_URL},
    ),
    Case(
        "platform-payments.json",
        "payments-lake",
        {
            "payments.settled": [
                {"id": "a", "settled_at": 1_767_265_200_000},
                {"id": "b", "settled_at": 1_767_265_260_000},
                # a day later in Berlin
                {"id": "c", "settled_at": 1_767_310_200_000},
            ]
        },
        {
            "topics/payments.settled/year=2026/month=01/day=01/payments.settled+0+0000000000.snappy.parquet": [
                {"id": "a", "settled_at": 1_767_265_200_000},
                {"id": "b", "settled_at": 1_767_265_260_000},
            ],
            "topics/payments.settled/year=2026/month=01/day=02/payments.settled+0+0000000002.snappy.parquet": [
                {"id": "c", "settled_at": 1_767_310_200_000}
            ],
        },
        PAYMENT,
    ),
    Case(
        "debezium-inventory.json",
        "cdc-raw",
        {
            "inventory.public.customers": [
                {"before": None, "after": {"id": 1, "name": "Ada"}, "op": "c"},
                {"before": {"id": 1, "name": "Ada"}, "after": {"id": 1, "name": "Ada L."}, "op": "u"},
                {"before": {"id": 1, "name": "Ada L."}, "after": None, "op": "d"},
                None,
            ]
        },
        {
            "cdc/inventory_customers/dt=2026-01-01/hr=12/inventory_customers+0+0000000000.avro": [
                {"id": 1, "name": "Ada", "_kafka_ts": NOON},
                {"id": 1, "name": "Ada L.", "_kafka_ts": NOON},
            ]
        },
        CHANGE,
    ),
    Case(
        "cloud-audit.json",
        "audit-archive",
        {"audit.events": texts('{"who":"a"}', "broken", '{"who":"b"}', every=6 * MINUTE)},
        {
            f"audit/audit.events/{HOUR_12}/audit.events+0+0000000000.json.gz": [{"who": "a"}],
            f"audit/audit.events/{HOUR_12}/audit.events+0+0000000002.json.gz": [{"who": "b"}],
        },
        world={
            '"kafka.api.key": "${env:CCLOUD_KEY}",': "",
            '"kafka.api.secret": "${env:CCLOUD_SECRET}",': "",
            '"tasks.max"': f'"errors.deadletterqueue.topic.replication.factor": "1", {STORE_URL}',
        },
        letters=1,
    ),
    Case(
        "aiven-telemetry.json",
        "telemetry-archive",
        {"telemetry": texts("1,2", '"3"')},
        {"tele/telemetry/2026-01-01/0000000000-00000000000000000000.csv.gz": b'1,2\n"3"\n'},
        world={'"aws.s3.region"': '"aws.s3.endpoint": "https://minio.example", "aws.s3.region"'},
    ),
    Case(
        "lenses-sensors.properties",
        "sensors-lake",
        {"sensors": texts('{"t":1}', '{"t":2}', '{"t":3}', every=MINUTE / 2)},
        {
            "iot/sensors/0/00000000000000000000.json": [{"t": 1}, {"t": 2}],
            "iot/sensors/0/00000000000000000002.json": [{"t": 3}],
        },
        world={"tasks.max": "connect.s3.custom.endpoint=https://minio.example\ntasks.max"},
    ),
    Case(
        "standalone-logs.properties",
        "logs-backup",
        {"app.logs": texts("one", "two", "three")},
        {
            "backup/app.logs/year=2026/month=01/day=01/hour=04/app.logs-0-0000000000.log": b"one\ntwo\n",
            "backup/app.logs/year=2026/month=01/day=01/hour=04/app.logs-0-0000000002.log": b"three\n",
        },
        world={"tasks.max": "store.url=https://minio.example\ntasks.max"},
    ),
    Case(
        "fields-shipments.json",
        "shipments",
        {
            "shipments": texts(
                '{"region":"eu","carrier":"dhl","phone":"123","internal_note":"x"}',
                '{"region":"us","carrier":"ups","phone":"456"}',
                headers=[("h", b"v")],
            )
        },
        {
            f"topics/shipments/region={region}/carrier={carrier}/shipments+0+000000000{offset}.{kind}json": content
            for offset, region, carrier in ((0, "eu", "dhl"), (1, "us", "ups"))
            for kind, content in (
                ("", [{"region": region, "carrier": carrier, "phone": ""}]),
                ("keys.", ["k"]),
                ("headers.", [{"headers": [{"key": "h", "value": "v"}]}]),
            )
        },
    ),
    Case(
        "cfk-invoices.yml",
        "invoices-archive",
        {"invoices": [{"n": n} for n in range(4)]},
        {
            "topics/invoices/partition=0/invoices+0+0000000000.avro": [{"n": 0}, {"n": 1}, {"n": 2}],
            "topics/invoices/partition=0/invoices+0+0000000003.avro": [{"n": 3}],
        },
        INVOICE,
    ),
]


def decode(key: str, body: bytes) -> Any:
    if key.endswith(".gz"):
        body = gzip.decompress(body)
    if ".json" in key and ".jsonl" not in key:
        return [json.loads(line) for line in body.splitlines()]
    if key.endswith(".avro"):
        return list(fastavro.reader(io.BytesIO(body)))
    return pq.read_table(io.BytesIO(body)).to_pylist() if key.endswith(".parquet") else body


def write_file(lab: Lab, case: Case, folder: Path, login: tuple[str, str]) -> Path:
    """Write the file into a folder of connector files with the addresses of the test, and the secrets that it names."""
    text = (PRODUCTION / case.file).read_text()
    for old, new in case.world.items():
        assert old in text
        text = text.replace(old, new, 1)
    for host in ("minio", "ceph", "s3gw"):
        text = text.replace(f"https://{host}.example", lab.store.endpoint_url or "")
    for secrets in ("/opt/kafka/external-configuration/lake", "/etc/kafka/secrets", "/mnt/secrets/s3"):
        text = text.replace(secrets, str(folder))
    if case.schema:
        text = text.replace("http://registry.example", lab.fixture("registry").url)
    for name, names in SECRETS.items():
        lines = [f"{key}={value}" for pair in names for key, value in zip(pair, login, strict=True)]
        (folder / name).write_text("\n".join(lines))
    (folder / "worker.properties").write_text(
        f"bootstrap.servers={lab.kafka.bootstrap_servers}\nconfig.providers=file,env\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    (folder / case.file).write_text(text)
    return folder / case.file


def produce_all(lab: Lab, case: Case) -> None:
    for topic, values in case.topics.items():
        lab.create(topic)
        if case.schema:
            [key] = framed(lab.fixture("registry"), f"{topic}-key", KEY, [{"id": 1}])
            bodies = iter(framed(lab.fixture("registry"), topic, case.schema, filter(None, values)))
            produce(lab.kafka, topic, [Sent(next(bodies) if value else None, key) for value in values])
        else:
            produce(lab.kafka, topic, values)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_file_of_production_is_archived_unchanged_as_its_own_sink_does_it(
    lab: Lab, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab.store.access_key_id is not None
    assert lab.store.secret_access_key is not None
    login = (lab.store.access_key_id.get_secret_value(), lab.store.secret_access_key.get_secret_value())
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), login, strict=True):
        monkeypatch.setenv(name, value)
    path = write_file(lab, case, tmp_path, login)
    lab.s3.create_bucket(Bucket=case.bucket)
    produce_all(lab, case)

    env = {f"{owner}_KEY": login[0] for owner in OWNERS} | {f"{owner}_SECRET": login[1] for owner in OWNERS}
    config = load_connector(path, path.parent / "worker.properties", env)
    assert config.store.bucket == case.bucket
    with ClusterAdmin(lab.kafka) as admin:
        topics = config.topics or match_topics(config, admin.list_topics())
    assert sorted(topics) == sorted(case.topics)
    reports = [
        archive_topic(ArchiveRequest(config, topic, f"run-{uuid4()}", None), InProcessRunner()) for topic in topics
    ]
    for report in reports:
        report.raise_failure()
    store = ObjectStore(config.store)
    segments = chain.from_iterable(TopicIndex.of(config, topic).open().segments for topic in topics)
    keys = chain.from_iterable(segment.keys for segment in segments)
    assert {key: decode(key, store.get(key)) for key in keys} == case.objects
    assert sum(report.dead_letter_count for report in reports) == case.letters
