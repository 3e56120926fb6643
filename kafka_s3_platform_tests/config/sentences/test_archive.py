"""What is said of Connect's runtime, groups, headers and folders, shown by an archive of a file that sets it all."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.config.keys.clients import WITHOUT_MEANING_PROPERTIES
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.mapping import ALL_KEYS
from kafka_s3_platform.connect.config.worker import WORKER_WITHOUT_MEANING_KEYS
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform_tests.archive.values import lines
from kafka_s3_platform_tests.config.sentences.test_same_settings import name_one
from kafka_s3_platform_tests.conftest import Lab, connector_keys
from kafka_s3_platform_tests.support import NOON, InterleavedRunner, Sent, archived, stored

HEADERS = (("a", b"\xff\xfe"), ("a", b""), ("", None), ("b", b"007"))
REST_PORT = 18083


def load(lab: Lab, folder: Path, **keys: str) -> ConnectorConfig:
    """The connector of a file that sets every key without meaning, as its worker does."""
    odd = {name_one(key): "odd" for key in ALL_KEYS if key.support is Support.WITHOUT_MEANING}
    odd |= {f"consumer.override.{name_one(key)}": "odd" for key in WITHOUT_MEANING_PROPERTIES}
    own = {"name": "c", "topics": lab.topic, **connector_keys(lab.store), "archive.start.hour": "2025-12-01T00:00"}
    worker = {name_one(key): "odd" for key in WORKER_WITHOUT_MEANING_KEYS}
    worker |= {"bootstrap.servers": lab.kafka.bootstrap_servers, "listeners": f"http://127.0.0.1:{REST_PORT}"}
    (folder / "worker.properties").write_text("".join(f"{name}={value}\n" for name, value in worker.items()))
    (folder / "c.json").write_text(json.dumps(odd | own | keys))
    return load_connector(folder / "c.json", folder / "worker.properties", {})


@dataclass(frozen=True)
class Traces:
    """What there is of topics and groups at the broker, and of ports on which this process listens."""

    topics: frozenset[str]
    groups: frozenset[str]
    ports: frozenset[int]


def traces(kafka: KafkaSettings) -> Traces:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    groups = client.list_consumer_groups().result(30).valid
    listening = (c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN)
    return Traces(
        frozenset(client.list_topics(timeout=30).topics),
        frozenset(group.group_id for group in groups),
        frozenset(address[1] for address in listening),
    )


def test_an_archive_forms_no_group_keeps_no_topic_and_listens_nowhere(lab: Lab, tmp_path: Path) -> None:
    lab.create_topic()
    lab.produce([Sent(b"v", b"k")])
    config = load(lab, tmp_path)
    before = traces(lab.kafka)
    during: list[Traces] = []
    runner = InterleavedRunner(lambda: during.append(traces(lab.kafka)))
    assert archive_topic(ArchiveRequest(config, lab.topic, "run", None), runner).record_count == 1
    assert [*during, traces(lab.kafka)] == [before, before]
    assert REST_PORT not in before.ports


def test_header_values_keys_and_values_are_archived_as_the_bytes_that_they_are(lab: Lab, tmp_path: Path) -> None:
    lab.create_topic()
    lab.produce([Sent(b"\x00\xfe", b"\xff", headers=HEADERS)])
    config = load(lab, tmp_path, **{"header.converter.schemas.enable": "true"})
    archived(config)
    (row,) = stored(config).to_pylist()
    assert [(h["key"], h["value"]) for h in row["headers"]] == list(HEADERS)
    assert (row["key"], row["value"]) == (b"\xff", b"\x00\xfe")


def test_an_object_holds_one_folder_and_goes_on_when_records_of_another_lie_between(lab: Lab, tmp_path: Path) -> None:
    lab.create_topic()
    lab.produce([Sent(b'{"n":%d}' % n) for n in (1, 2, 1, 2, 2)])
    json_of_fields = {"format.class": "JsonFormat", "input.data.format": "JSON"}
    config = load(
        lab, tmp_path, **json_of_fields, **{"partitioner.class": "FieldPartitioner", "partition.field.name": "n"}
    )
    archived(config)
    found = {key.split("/")[-2]: body for key, body in lines(config).items()}
    assert found == {"n=1": [b'{"n":1}'] * 2, "n=2": [b'{"n":2}'] * 3}


def test_a_folder_that_names_no_time_is_that_of_records_out_of_range_too(lab: Lab, tmp_path: Path) -> None:
    lab.create_topic()
    lab.produce([Sent(b'{"n":1}'), Sent(b'{"n":1}', timestamp=NOON - timedelta(days=900))])
    fields = {"partitioner.class": "FieldPartitioner", "partition.field.name": "n"}
    named = {"format.class": "JsonFormat", "input.data.format": "JSON", "archive.out.of.range.folder": "apart"}
    config = load(lab, tmp_path, **named, **fields)
    archived(config)
    assert {key.split("/")[-2] for key in lines(config)} == {"n=1"}
