"""`kafka-s3 groups` and `kafka-s3 verify --against`, as a script calls them."""

import json

from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets, read_committed_offsets
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_group, delete_records
from kafka_s3_platform_tests.support import NOON, Sent, produce

FAILED = 1


def test_groups_of_a_restore_are_shown_set_and_set_back(kafka_s3: KafkaS3, lab: Lab) -> None:
    group, target = f"{lab.topic}-app", f"{lab.topic}.restored"
    lab.create_topic(2)
    lab.produce([Sent(timestamp=NOON)] * 5)
    own = {"archive.consumer.groups": group}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **own)
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, group, lab.topic, {0: 3, 1: 0})
        parsed(kafka_s3("archive", "c", "--json"))
        to_target = ["--topic", lab.topic, "--to-topic", target, "--create-topic", "--restore-id", "r1"]
        parsed(kafka_s3("restore", "c", *to_target, "--json"))
        assert parsed(kafka_s3("verify", "c", "--topic", lab.topic, "--against", target, "--json"))["ok"]
        delete_group(admin, group)

        shown = parsed(kafka_s3("groups", "r1", "--json"))
        assert [(o["target_offset"], o["precision"]) for o in shown["topics"][0]["offsets"]] == [
            (3, "exact"),
            (0, "exact"),
        ]
        assert not shown["applied"]
        checked = kafka_s3("groups", "r1", "--apply", "--dry-run")
        assert checked.stdout.endswith("could be committed; nothing is changed\n"), checked.stderr
        assert read_committed_offsets(admin, group, target) == {}

        applied = parsed(kafka_s3("groups", "r1", "--apply", "--json"))
        assert read_committed_offsets(admin, group, target) == {0: 3, 1: 0}
        file = kafka_s3.folder / applied["rollback_file"]
        assert json.loads(file.read_bytes())["topics"][target]["groups"] == {group: {"0": None, "1": None}}

        kafka_s3("groups", "r1", "--rollback", applied["rollback_file"], status=0)
        assert read_committed_offsets(admin, group, target) == {}

    unknown = kafka_s3("groups", "r2")
    assert (unknown.returncode, unknown.stdout) == (FAILED, "")
    assert "no connector here has a restore r2" in unknown.stderr


def test_offsets_that_have_no_place_are_told_where_others_are_committed(kafka_s3: KafkaS3, lab: Lab) -> None:
    group, target = f"{lab.topic}-app", f"{lab.topic}.restored"
    lab.create_topic(2)
    lab.produce([Sent(kafka_partition=p) for p in (0, 0, 1, 1)])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **{"archive.consumer.groups": group})
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, group, lab.topic, {0: 1, 1: 1})
        parsed(kafka_s3("archive", "c", "--json"))
        own = ["--topic", lab.topic, "--to-topic", target, "--create-topic", "--restore-id", "r1"]
        parsed(kafka_s3("restore", "c", *own, "--kafka-partitions", "0", "--json"))
        applied = kafka_s3("groups", "r1", "--apply", "--allow-approximate", status=0).stdout
        assert read_committed_offsets(admin, group, target) == {0: 1}
    assert "1 offset committed and read back, 1 not committed, having no place at the target; to undo: " in applied


def test_a_topic_that_differs_from_the_archive_is_told_by_the_exit_status(kafka_s3: KafkaS3, lab: Lab) -> None:
    other = lab.create(f"{lab.topic}.other")
    lab.create_topic()
    lab.produce([Sent(b"a"), Sent(b"b")])
    produce(lab.kafka, other, [Sent(b"a")])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    parsed(kafka_s3("archive", "c", "--json"))

    found = kafka_s3("verify", "c", "--topic", lab.topic, "--against", other, status=FAILED)
    assert "NOT the same; 1 of 2 archived records found in order" in found.stdout
    assert "the first that was not is source offset 1" in found.stdout

    worker = kafka_s3.folder / "other.properties"
    worker.write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n")
    window = ["--to-offset", "1", "--target-worker", str(worker)]
    first = ["verify", "c", "--topic", lab.topic, "--against", other, *window]
    assert parsed(kafka_s3(*first, "--exactly", "--json"))["exact"]

    produce(lab.kafka, other, [Sent(b"a"), Sent(b"theirs")])
    found = kafka_s3(*first, "--exactly", status=FAILED)
    told = "all is there, and other records too; 1 of 1 archived records found in order, 1 once more, 1 other records"
    assert told in found.stdout
    assert parsed(kafka_s3(*first, "--json"))["ok"]
    nothing = kafka_s3("verify", "c", "--topic", lab.topic, "--against", lab.topic, "--from-offset", "99", "--exactly")
    assert nothing.returncode == FAILED, nothing.stderr
    assert "nothing was compared, since nothing is archived in the window" in nothing.stdout

    delete_records(lab.kafka, lab.topic, 1)
    found = kafka_s3("verify", "c", "--topic", lab.topic, "--against", lab.topic)
    assert "all that was compared is there; 1 of 1 archived records found in order, 0 once more, 0" in found.stdout
