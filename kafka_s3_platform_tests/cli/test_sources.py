"""Source connectors on the command line: their objects are restored, and nothing else can be done with them."""

import json
from collections.abc import Sequence

import pytest

from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_connector, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import NOON, Sent

SOURCE = {
    "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "AddPrefix",
    "transforms.AddPrefix.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.AddPrefix.regex": ".*",
    "transforms.AddPrefix.replacement": "copy_of_$0",
}


@pytest.mark.parametrize(
    "command",
    [
        ["archive", "c"],
        ["compact", "c", "--day", "2026-01-01"],
        ["vacuum", "c"],
        ["take-over", "c"],
        ["verify", "c"],
    ],
    ids=lambda command: command[0],
)
def test_a_source_connector_is_refused_by_name_for_all_but_a_restore(kafka_s3: KafkaS3, command: Sequence[str]) -> None:
    write_connector(kafka_s3, "t", **SOURCE)
    found = kafka_s3(*command)
    assert found.returncode != 0
    assert "connector c is a source" in found.stderr
    assert "kafka-s3 restore c" in found.stderr


def test_the_objects_of_a_source_connector_are_restored_where_its_router_says(kafka_s3: KafkaS3, lab: Lab) -> None:
    lines = b"".join(b'{"n":%d}\n' % n for n in range(5))
    key = f"topics/{lab.topic}/partition=0/{lab.topic}+0+0000000000.json"
    lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=lines)
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **SOURCE)
    own = kafka_s3.folder / "connectors" / "c.json"
    given = json.loads(own.read_text())
    own.write_text(json.dumps({k: v for k, v in given.items() if k != "topics"}))

    planned = kafka_s3("restore", "c", "--dry-run", "--json")
    assert (planned.returncode, json.loads(planned.stdout)["records"]) == (1, 0), planned.stderr
    assert "--create-topic" in json.loads(planned.stdout)["refusals"][0]

    for more in ("--dry-run", "--create-topic"):
        absent = kafka_s3("restore", "c", "--topic", "absent", more, status=1)
        assert "no object of topic absent was found" in absent.stderr
        assert f"s3://{lab.store.bucket}/topics/ (layout connect, partitioner Default, format json" in absent.stderr
        assert "such as topics/absent/partition=0/absent+0+0000000000.json" in absent.stderr

    restored = parsed(kafka_s3("restore", "c", "--restore-id", "mine", "--create-topic", "--json"))
    assert (restored["topic"], restored["to_topic"]) == (lab.topic, f"copy_of_{lab.topic}")
    assert (restored["records"], restored["verified"], restored["restore_id"]) == (5, True, "mine")
    found = records_of(lab.kafka, f"copy_of_{lab.topic}").column("value").to_pylist()
    assert found == [b'{"n":%d}' % n for n in range(5)]

    again = parsed(kafka_s3("restore", "c", "--restore-id", "mine", "--create-topic", "--json"))
    assert (again["already_finished"], again["sent_records"]) == (True, 5)

    later = json.loads(kafka_s3("restore", "c", "--restore-id", "later", "--after", "mine", "--json", status=3).stdout)
    assert (later["records"], later["objects"], later["after"], later["verified"]) == (0, 0, "mine", True)

    assert (
        "no record was to be restored, so none was compared"
        in kafka_s3("restore", "c", "--restore-id", "last", "--after", "later").stdout
    )

    assert "objects that others wrote tell of none" in kafka_s3("groups", "mine", status=1).stderr


def test_what_a_sink_has_written_in_connects_formats_is_restored_from_its_own_file(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b'{"n":%d}' % n, timestamp=NOON) for n in range(3)])
    lines = {k: v for k, v in SOURCE.items() if k.startswith(("format", "value"))}
    insert = {"transforms": "d", "transforms.d.type": "InsertField$Value", "transforms.d.static.field": "by"}
    keys = {**lines, **insert, "transforms.d.static.value": "us"}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **keys)
    assert kafka_s3("archive", "c", "--until-now").returncode == 0
    assert "--allow-source-topic" in kafka_s3("restore", "c", "--create-topic", status=1).stderr
    restored = parsed(kafka_s3("restore", "c", "--to-topic", "{topic}-copy", "--create-topic", "--json"))
    assert (restored["records"], restored["verified"]) == (3, True)
    found = records_of(lab.kafka, f"{lab.topic}-copy").column("value").to_pylist()
    assert [json.loads(value) for value in found] == [{"n": n, "by": "us"} for n in range(3)]


def test_a_restore_that_left_records_out_says_how_many_and_is_no_success(kafka_s3: KafkaS3, lab: Lab) -> None:
    cast = {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "n:int32"}
    values = {"some": [b'{"n":1}\n', b'{"n":[]}\n'], "all": [b'{"n":[]}\n', b'{"n":{}}\n']}
    for name, lines in values.items():
        topic = f"{lab.topic}-{name}"
        # An object for each record: a trial of the first object finds nothing that fails all records of a topic.
        for first, line in enumerate([b'{"n":0}\n' * (name == "some"), *lines]):
            key = f"topics/{topic}/partition=0/{topic}+0+{first:010d}.json"
            if line:
                lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=line)
    keys = {k: v for k, v in SOURCE.items() if not k.startswith("transforms")} | cast
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **keys, **{"behavior.on.error": "ignore"})
    some, everything = (
        kafka_s3("restore", "c", "--topic", f"{lab.topic}-{name}", "--to-topic", "{topic}-copy", "--create-topic")
        for name in values
    )
    assert some.returncode == 3, some.stderr
    assert "2 records restored" in some.stdout
    assert "not everything could be restored: 1 record failed and left out" in some.stdout
    assert everything.returncode == 1
    assert "none of the first 1 records" in everything.stderr
