"""The commands on real Kafka, S3 and Spark, as a script calls them."""

import json
import shlex
import signal
import subprocess
import sys
from datetime import timedelta

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.restore.evidence import EvidenceFolder
from kafka_s3_platform.core.spark.progress import Snapshot, call_with_progress
from kafka_s3_platform_tests.cli.conftest import KafkaS3, make_environment, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.kafka.topics import delete_records, records_of
from kafka_s3_platform_tests.support import HOUR, NOON, Sent


@pytest.fixture
def topic(kafka_s3: KafkaS3, lab: Lab) -> str:
    """Three hours of records, two an hour, the second of each without a value."""
    lab.create_topic(kafka_partitions=2)
    times = [NOON + n * HOUR + timedelta(minutes=1) for n in range(3)]
    sent = [Sent(value, b"k", t, (("h", None),), p) for t in times for p, value in ((0, b"v"), (1, None))]
    lab.produce(sent)
    lateness = {"archive.allowed.lateness.ms": "0"}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **lateness)
    return lab.topic


def press_ctrl_c(snapshot: Snapshot) -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_run_with_one_sentence_and_the_command_that_goes_on(kafka_s3: KafkaS3, topic: str) -> None:
    with call_with_progress(press_ctrl_c):
        found = kafka_s3("archive", "c")
    assert (found.returncode, found.stdout) == (130, "")
    said, again = found.stderr.strip().split("; go on with: kafka-s3 ")
    assert "hourly__c - " not in said, "what Dagster puts before each message"
    assert "was interrupted, and what it had committed stays" in said
    kafka_s3(*shlex.split(again))
    to_target = ["--topic", topic, "--to-topic", f"{topic}.restored", "--create-topic"]
    with call_with_progress(press_ctrl_c):
        found = kafka_s3("restore", "c", *to_target)
    assert found.returncode == 130
    again = found.stderr.rpartition("; go on with: kafka-s3 ")[2].strip()
    restored = parsed(kafka_s3(*shlex.split(again), "--json"))
    assert (restored["restore_id"], restored["records"]) == (shlex.split(again)[-1], 6)


def test_an_hour_that_is_archived_alone_says_why_it_is_not_complete(kafka_s3: KafkaS3, topic: str) -> None:
    """Whether Dagster's own command or ours archives it."""
    asset = ["--select", f"c/hourly/{topic}", "--partition", "2026-01-01-12:00"]
    command = [sys.executable, "-m", "dagster", "asset", "materialize", *asset, "-m", "kafka_s3_platform.definitions"]
    env = make_environment(kafka_s3.folder)
    found = subprocess.run(command, cwd=kafka_s3.folder, env=env, capture_output=True, text=True, check=False)
    why = "archived, not complete before the topic is archived up to where its log ends once the hour"
    assert (found.returncode, found.stderr.count(f"{topic}, hour 2026-01-01-12:00: {why}")) == (0, 1)
    alone = kafka_s3("archive", "c", "--from", "2026-01-01T13", "--to", "2026-01-01T14")
    assert (alone.returncode, alone.stdout.count(why)) == (0, 1)
    assert "not complete" not in kafka_s3("archive", "c").stdout
    again = kafka_s3("archive", "c", "--from", "2026-01-01T12", "--to", "2026-01-01T14")
    assert (again.returncode, again.stdout.count("complete"), again.stdout.count("not")) == (0, 2, 0)


@pytest.mark.parametrize(("timeout", "status"), [("1200000", 1), ("700000", 0)])
def test_a_dry_run_sees_that_brokers_take_no_transactions_so_long(
    kafka_s3: KafkaS3, topic: str, timeout: str, status: int
) -> None:
    assert kafka_s3("archive", "c").returncode == 0
    worker = kafka_s3.folder / "connectors" / "worker.properties"
    worker.write_text(f"{worker.read_text()}producer.transaction.timeout.ms={timeout}\n")
    planned = kafka_s3("restore", "c", "--topic", topic, "--to-topic", "x", "--create-topic", "--dry-run")
    told = f"the transaction timeout is {timeout} ms, but a broker has transaction.max.timeout.ms=900000."
    assert (planned.returncode, told in planned.stdout + planned.stderr) == (status, status == 1)


def test_a_merged_day_says_what_of_it_is_out_of_range(kafka_s3: KafkaS3, lab: Lab, topic: str) -> None:
    """The archive began at 14:00, and its start was moved back afterwards."""
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, topic, **{"archive.start.hour": "2026-01-01T14:00"})
    assert kafka_s3("archive", "c").returncode == 0
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, topic)
    found = kafka_s3("compact", "c", "--day", "2026-01-01")
    assert f"{topic}: 2026-01-01 holds 2 records in 2 objects, 2 merged, up to 4 records out" in found.stdout
    [day] = parsed(kafka_s3("compact", "c", "--day", "2026-01-01", "--json"))["runs"][0]["days"]
    assert (found.returncode, day["out_of_range_records"], day["partition_row_count"]) == (0, 4, 2)


def test_archive_compact_restore_verify_and_vacuum_one_after_the_other(
    kafka_s3: KafkaS3, topic: str, kafka_settings: KafkaSettings
) -> None:
    hours = ["--from", "2026-01-01T12", "--to", "2026-01-01T14"]
    [archived] = parsed(kafka_s3("archive", "c", *hours, "--json"))["runs"]
    assert [h["partition_key"] for h in archived["hours"]] == ["2026-01-01-12:00", "2026-01-01-13:00"]
    assert [h["partition_row_count"] for h in archived["hours"]] == [2, 2]
    assert all(uri.startswith("s3://") for h in archived["hours"] for uri in h["uris"])

    [rest] = parsed(kafka_s3("archive", "c", "--until-now", "--json"))["runs"]
    assert rest["totals"]["records"] == 2

    [compacted] = parsed(kafka_s3("compact", "c", "--day", "2026-01-01", "--json"))["runs"]
    [day] = compacted["days"]
    assert (day["partition_row_count"], day["merged_objects"], day["hourly_objects_left"]) == (6, 6, 0)

    target = f"{topic}.restored"
    to_target = ["--topic", topic, "--to-topic", target, "--create-topic"]
    planned = parsed(kafka_s3("restore", "c", *to_target, "--dry-run", "--json"))
    assert (planned["records"], planned["dry_run"], planned["refusals"]) == (6, True, [])
    assert last_proof(kafka_s3) is None
    window = ["--from", "2026-01-01T13:00", "--restore-id", "mine"]
    restored = parsed(kafka_s3("restore", "c", *to_target, *window, "--json"))
    assert (restored["records"], restored["verified"], restored["restore_id"]) == (4, True, "mine")
    assert [len(records_of(kafka_settings, target, p)) for p in (0, 1)] == [2, 2]
    assert shown_hours(kafka_s3, topic) == set(), "a restore is of no hour"
    assert last_proof(kafka_s3) == ("restore", 4)

    [verified] = parsed(kafka_s3("verify", "c", "--deep", "--json"))["topics"]
    assert (verified["ok"], verified["record_count"], verified["deep"]) == (True, 6, True)
    assert last_proof(kafka_s3) == ("verification", 6)
    [cleaned] = parsed(kafka_s3("vacuum", "c", "--dry-run", "--json"))["topics"]
    assert (cleaned["removed"], cleaned["aborted_uploads"]) == ([], [])
    [looked_at] = parsed(kafka_s3("vacuum", "c", "--index-put-back", "--json"))["topics"]
    assert looked_at == {"topic": topic, "set_aside": []}

    runs = runs_of(kafka_s3)
    assert {archived["run_id"], rest["run_id"], compacted["run_id"], restored["run_id"]} <= runs.keys()
    assert set(runs.values()) == {dg.DagsterRunStatus.SUCCESS}


def test_a_verification_counts_also_if_dagster_is_broken(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent()])
    config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    assert kafka_s3("archive", "c", "--until-now").returncode == 0
    (kafka_s3.folder / "dagster" / "dagster.yaml").write_text("storage: {sqlite: {base_dir: /proc/nowhere}}\n")
    verified = kafka_s3("verify", "c", "--deep", "--json", status=0)
    assert json.loads(verified.stdout)["topics"][0]["ok"]
    assert present(EvidenceFolder(config).read_newest()).standing.proofs[lab.topic].records == 1


def last_proof(kafka_s3: KafkaS3) -> tuple[str, int] | None:
    """How the only topic was proven last, and by how many records."""
    [connector] = json.loads(kafka_s3("health", "--json").stdout)["connectors"]
    [found] = connector["topics"]
    return found["last_proven"] and (found["last_proven"]["how"], found["last_proven"]["records"])


def runs_of(kafka_s3: KafkaS3) -> dict[str, dg.DagsterRunStatus]:
    """The runs that the UI of the same DAGSTER_HOME shows."""
    with dg.DagsterInstance.from_config(str(kafka_s3.folder / "dagster")) as instance:
        return {run.run_id: run.status for run in instance.get_runs()}


def shown_hours(kafka_s3: KafkaS3, topic: str) -> set[str]:
    """The hours that the UI shows as restored."""
    with dg.DagsterInstance.from_config(str(kafka_s3.folder / "dagster")) as instance:
        return instance.get_materialized_partitions(dg.AssetKey(["c", "restored", topic]))


def test_what_is_archived_is_shown_day_by_day(kafka_s3: KafkaS3, topic: str) -> None:
    assert kafka_s3("show", "c").stdout == f"{topic}: nothing is archived yet\n"
    parsed(kafka_s3("archive", "c", "--json"))
    [shown] = parsed(kafka_s3("show", "c", "--json"))["topics"]
    [day] = shown["days"]
    assert (day["day"], day["records"], day["objects"], day["merged"]) == ("2026-01-01", 6, 6, False)
    assert (day["hours"], day["complete_hours"]) == (24, 24)
    [head, columns, row] = kafka_s3("show", "c").stdout.splitlines()
    assert head.startswith(f"{topic}: 6 records in 6 objects of ")
    assert columns.startswith("DAY         COMPLETE HOURS  RECORDS")
    assert row.split()[:6] == ["2026-01-01", "24", "of", "24", "6", "0"]
    assert row.endswith("no")


def test_each_hour_of_a_day_has_a_mark(kafka_s3: KafkaS3, topic: str, lab: Lab) -> None:
    assert kafka_s3("show", "c", "--hours").stdout == f"{topic}: nothing is archived yet\n"
    assert kafka_s3("show", "c", "--days", "3").returncode == 2
    parsed(kafka_s3("archive", "c", "--from", "2026-01-01T12", "--to", "2026-01-01T13", "--json"))
    [head, columns, row, *legend, rest] = kafka_s3("show", "c", "--hours").stdout.splitlines()
    assert head == f"{topic}: hours of UTC"
    assert legend == ["  ~ archived in part, or not known to be complete", "  . nothing archived"]
    assert columns.split() == ["DAY", "00", "06", "12", "18", "COMPLETE", "RECORDS", "LATE"]
    assert row.split() == ["2026-01-01", f"{'.' * 12}~{'.' * 11}", *["0", "of", "24", "2", "0"]]
    assert rest.startswith(f"{topic}: nothing is archived of 2026-01-02 to ")
    delete_records(lab.kafka, topic, 2)
    allowed = {"archive.allowed.lateness.ms": "0", "archive.allow.gaps": "true"}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, topic, **allowed)
    parsed(kafka_s3("archive", "c", "--json"))
    [_, _, row, *legend, _, lost] = kafka_s3("show", "c", "--hours").stdout.splitlines()
    # in order, what is lost was of hour 12; else it may have been of any
    assert [line[2] for line in legend] == ["!", "*"]
    assert row.split() == ["2026-01-01", f"{'*' * 12}!{'*' * 11}", "24", "of", "24", "5", "0"]
    assert lost.endswith("not in this archive: 1 retention")
    [shown] = parsed(kafka_s3("show", "c", "--hours", "--days", "9" * 20, "--json"))["topics"]
    [beside] = [hour for hour in shown["hours"] if hour["state"] == "gap"]
    assert (beside["hour"], beside["complete"], beside["records"]) == ("2026-01-01T12:00:00+00:00", True, 2)


def test_a_restore_takes_windows_limits_and_what_is_thawed(
    kafka_s3: KafkaS3, topic: str, kafka_settings: KafkaSettings
) -> None:
    parsed(kafka_s3("archive", "c", "--json"))
    window = ["--from", "2026-01-01T12:30", "--to", "2026-01-01T14:00:01", "--from-offset", "0:2"]
    rates = ["--records-per-second", "1000", "--bytes-per-second", "1e6", "--allow-unsendable-timestamps"]
    thaw = ["--thaw-days", "3", "--thaw-tier", "Bulk", "--thaw-seconds", "60"]
    to_target = ["--topic", topic, "--to-topic", f"{topic}.restored", "--create-topic", *rates, *thaw]
    restored = parsed(kafka_s3("restore", "c", *to_target, *window, "--json"))
    assert restored["records"] == 1, "kafka partition 0 has none from offset 2 on in the window"
    assert [len(records_of(kafka_settings, f"{topic}.restored", p)) for p in (0, 1)] == [0, 1]
    assert restored["terms"]["from_time"] == "2026-01-01T12:30:00+00:00"


def test_without_json_people_are_told_the_same(kafka_s3_process: KafkaS3, topic: str) -> None:
    found = kafka_s3_process("archive", "c", "--from", "2026-01-01T12", "--to", "2026-01-01T13", status=0)
    assert "2026-01-01-12:00" in found.stdout
    assert "2 records" in found.stdout
    assert "Traceback" not in found.stderr


def test_a_refused_restore_names_the_options_that_allow_it(kafka_s3: KafkaS3, topic: str) -> None:
    assert kafka_s3("archive", "c").returncode == 0
    for target, allows in ((topic, "--allow-source-topic"), (f"{topic}.absent", "--create-topic")):
        found = kafka_s3("restore", "c", "--topic", topic, "--to-topic", target, "--dry-run", status=1)
        assert f"{topic} -> {target}: the restore of 6 records would be refused\n" in found.stdout
        assert allows in found.stdout
        assert allows.strip("-").replace("-", "_") in found.stdout


def test_a_restore_takes_files_by_any_path(kafka_s3: KafkaS3, topic: str, kafka_settings: KafkaSettings) -> None:
    """Of a person at the machine, that is: the config of a run in the UI names files of one folder."""
    assert kafka_s3("archive", "c").returncode == 0
    worker, outgoing = kafka_s3.folder / "other.properties", kafka_s3.folder / "keys"
    worker.write_text(f"bootstrap.servers={kafka_settings.bootstrap_servers}\n")
    outgoing.write_text("transforms=d\ntransforms.d.type=DropHeaders\ntransforms.d.headers=x\n")
    files = ["--target-worker", str(worker), "--outgoing", outgoing.name]
    to_target = ["--topic", topic, "--to-topic", f"{topic}.restored", "--create-topic"]
    planned = parsed(kafka_s3("restore", "c", *to_target, *files, "--dry-run", "--json"))
    assert (planned["records"], planned["exact"], planned["refusals"]) == (6, False, [])


def test_restoring_what_is_not_archived_fails_for_good(kafka_s3: KafkaS3, topic: str) -> None:
    found = kafka_s3("restore", "c", "--topic", topic, "--to-topic", topic, status=1)
    assert topic in found.stderr
    assert "Traceback" not in found.stderr
