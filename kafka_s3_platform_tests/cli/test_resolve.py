"""`kafka-s3 resolve`: what is unresolved, and the decision about it."""

from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import Sent, archived, snapshot


def test_what_is_unresolved_is_listed_decided_about_and_gone(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"1"), Sent(b"{"), Sent(b"2")])
    by_field = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    }
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **by_field)
    assert "no run has recorded unresolved offsets" in kafka_s3("resolve", "c").stdout
    failed = kafka_s3("archive", "c", status=1)
    listed = kafka_s3("resolve", "c").stdout
    assert "kafka partition 0 [1, 2): VALUE_CONVERTER: " in listed
    skip = f"kafka-s3 resolve c --topic {lab.topic} --kafka-partition 0 --offsets 1:2 --skip"
    assert f"    to do without them: {skip}\n" in listed
    assert f"To do without them:\n  {skip}\n" in failed.stderr
    told = f"{lab.topic}: 1 offset could not be archived; to see them: kafka-s3 resolve c"
    assert told in kafka_s3("show", "c").stdout
    assert told in kafka_s3("show", "c", "--hours").stdout
    place = ["resolve", "c", "--topic", lab.topic, "--kafka-partition", "0"]
    dry = kafka_s3(*place, "--offsets", "1:2", "--skip", "--dry-run")
    assert "1 gap would be recorded; 1 offset of the log left out of the archive" in dry.stdout
    [gap] = parsed(kafka_s3(*place, "--offsets", "1:2", "--skip", "--json"))["gaps"]
    assert (gap["start_offset"], gap["end_offset"], gap["reason"]) == (1, 2, "skipped")
    assert "no run has recorded unresolved offsets" in kafka_s3("resolve", "c").stdout
    assert kafka_s3("archive", "c").returncode == 0
    shown = kafka_s3("show", "c").stdout
    assert f"{lab.topic}: offsets that count as archived, and are not in this archive: 1 skipped\n" in shown
    for wrong in (
        [],
        ["--skip"],
        ["--offsets", "1:2"],
        ["--offsets", "1:2", "--begin-at", "2"],
        ["--offsets", "2:1", "--skip"],
    ):
        assert kafka_s3(*place, *wrong).returncode == 2


def test_where_no_epoch_tells_where_a_log_was_truncated_the_decision_says_so(
    kafka_s3_without_spark: KafkaS3, lab: Lab
) -> None:
    """The index as it is when the log has lost offsets 3 to 9, of which no leader epoch is known."""
    config = lab.fill([Sent()] * 3)
    archived(config)
    snapshot(config).commit(Change(added=(Scan(0, 3, 10, 7, None, 1),)))
    lab.produce([Sent()] * 2)
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, lab.topic)
    place = ["resolve", "c", "--topic", lab.topic, "--kafka-partition", "0"]
    first, gap, doubt = kafka_s3_without_spark(*place, "--accept-truncation", "--dry-run").stdout.splitlines()
    stays_out = "2 offsets of the log left out of the archive, and so the next 5 that are written, up to offset 10"
    assert first == f"{lab.topic}: 1 gap would be recorded; {stays_out}"
    assert gap == "  kafka partition 0 [3, 10): truncated"
    assert doubt.startswith("No leader epoch shows the place of the truncation: the gap begins at its lowest possible")
