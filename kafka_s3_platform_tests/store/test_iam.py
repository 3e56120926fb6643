"""The policies of deploy/terraform against every request of real runs, those of the index's library included."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager

from kafka_s3_platform.core.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.evidence import Evidence, EvidenceFolder
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.verify.against_topic import compare_with_topic
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance, SegmentUpload
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform.operate.groups.group_offsets import read_finished_restore, translate_groups
from kafka_s3_platform.operate.rehearsal.rehearse import Rehearsal
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.store.http_proxy import HttpRequest
from kafka_s3_platform_tests.store.rights import actions, beyond, compare, policy, unused
from kafka_s3_platform_tests.store.servers import Recorder
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    connector,
    produce,
    snapshot,
)

PART = 5_242_880
DAY = date(2026, 1, 1)


@pytest.fixture
def config(lab: Lab, recorder: Recorder) -> ConnectorConfig:
    """A connector whose topic has an hour of more than one part, and one that is small."""
    lab.create_topic()
    noise = random.Random(1)
    large = [Sent(noise.randbytes(900_000), b"k", NOON + n * timedelta(seconds=1)) for n in range(12)]
    lab.produce([*large, Sent(b"small", b"k", NOON + HOUR)])
    store = lab.store.model_copy(update={"endpoint_url": recorder.endpoint, "part_size": PART})
    return connector(lab.kafka, store, lab.topic)


def requests_of(recorder: Recorder, run: Callable[[], object]) -> list[HttpRequest]:
    recorder.requests.clear()
    run()
    return list(recorder.requests)


def compacted(config: ConnectorConfig) -> None:
    compact_day(CompactRequest(config, config.topics[0], DAY, "compact-run"), InProcessRunner())


def of_hours_and_days(config: ConnectorConfig) -> None:
    """An archive with a merged day, and an hour that came late."""
    archived(config)
    compacted(config)
    produce(config.kafka, config.topics[0], [Sent(b"late", b"k", NOON)])
    archived(config)


def given_up(config: ConnectorConfig) -> None:
    """An upload of an hour, and one of a day, that is aborted when its first part is sent."""
    for folder in (config.layout.topics_dir, config.layout.daily_dir):
        provenance = Provenance("c", "t", "id", "index", "run", 1)
        upload = SegmentUpload(ObjectStore(config.store), f"{folder}/x/key", provenance)
        upload.write(b"x" * (PART + 1))
        upload.abort()


def commits_to_a_checkpoint(config: ConnectorConfig, endpoint: str) -> None:
    """As many commits as it takes for a checkpoint, the next one; all but the last by another way, unrecorded."""
    unrecorded = config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": endpoint})})
    table = snapshot(unrecorded).connector_snapshot.handle.table
    table.alter.set_table_properties({"delta.checkpointInterval": str(table.version() + 3)})
    snapshot(unrecorded).commit(Change())
    snapshot(config).commit(Change())


def test_archive_and_compaction_do_what_their_policy_allows_and_never_delete(
    config: ConnectorConfig, recorder: Recorder, store_settings: StoreSettings
) -> None:
    def run() -> None:
        archived(config)
        compacted(config)
        given_up(config)
        commits_to_a_checkpoint(config, store_settings.endpoint_url or "")
        assert EvidenceFolder(config).read_newest(), "what a look reads"

    unrecorded = config.store.model_copy(update={"endpoint_url": store_settings.endpoint_url})
    evidenced(config.model_copy(update={"store": unrecorded}))

    done = actions(requests_of(recorder, run))
    assert compare(done, policy("archive")) == (set(), set())
    assert not any("Delete" in action for action, _ in done)


def test_tags_and_acls_take_the_rights_of_their_own(config: ConnectorConfig, recorder: Recorder) -> None:
    store = config.store.model_copy(update={"tagging": True, "canned_acl": "bucket-owner-full-control"})
    tagged = config.model_copy(update={"store": store})

    def run() -> None:
        archived(tagged)
        compacted(tagged)
        restored(tagged)

    done = actions(requests_of(recorder, run))
    assert beyond(done, policy("archive") | policy("restore") | policy("options")) == set()
    assert unused(done, policy("options")) == set()


def evidenced(config: ConnectorConfig) -> None:
    moment = datetime.now(timezone.utc)
    evidence = Evidence(
        kind="verification",
        connector=config.name,
        bucket=config.store.bucket,
        started_at=moment,
        finished_at=moment,
        seconds=0.0,
        topics=(),
    )
    EvidenceFolder(config).add(evidence, None)


def test_verify_reads_the_archive_and_writes_evidence(config: ConnectorConfig, recorder: Recorder) -> None:
    of_hours_and_days(config)
    against = RestoreRequest(config, topic := config.topics[0], topic, "against", "x")

    def run() -> None:
        assert verify_archive(config, topic, True, InProcessRunner()).ok
        assert compare_with_topic(against, InProcessRunner()).ok
        evidenced(config)
        evidenced(config)

    done = actions(requests_of(recorder, run))
    assert compare(done, policy("verify")) == (set(), set())


def restored(config: ConnectorConfig) -> None:
    topic = config.topics[0]
    given = {"to_topic": f"{topic}-restored", "restore_id": "r1", "run_id": "x", "create_topic": True}
    restore(ArchiveSource(RestoreRequest(config, topic, **given)), InProcessRunner())  # type: ignore[arg-type]


def test_restore_reads_the_archive_and_writes_its_plan(config: ConnectorConfig, recorder: Recorder) -> None:
    of_hours_and_days(config)
    done = actions(requests_of(recorder, lambda: restored(config)))
    assert compare(done, policy("restore")) == (set(), set())


def test_a_rehearsal_does_what_a_restore_may_and_deletes_its_own_documents(
    config: ConnectorConfig, recorder: Recorder
) -> None:
    archived(config)
    requests = requests_of(recorder, lambda: Rehearsal(config).run(config.kafka, InProcessRunner(), is_ephemeral=False))
    done = actions(requests)
    assert beyond(done, policy("restore") | policy("rehearse")) == set()
    assert unused(done, policy("rehearse")) == set()
    written = {request.key for request in requests if request.method == "PUT"}
    deleted = {request.key for request in requests if request.method == "DELETE"}
    assert deleted
    assert {key for key in written - deleted if "write-check" not in key} == {"_restore/evidence=c/000001.json"}


def test_the_archive_is_only_read_where_restores_have_a_bucket_of_their_own(
    config: ConnectorConfig, recorder: Recorder, s3_client: Any
) -> None:
    bucket = f"{config.store.bucket}-restores"
    s3_client.create_bucket(Bucket=bucket)
    archived(config)
    own = config.model_copy(update={"archive": config.archive.model_copy(update={"restore_bucket": bucket})})
    requests = requests_of(recorder, lambda: restored(own))
    found = read_finished_restore(own, "r1")

    written = [r.target for r in requests if r.method not in ("GET", "HEAD")]
    assert len(written) > 3
    assert all(target.startswith(f"/{bucket}/_restore/") for target in written)
    assert found is not None
    assert found[1].verified
    s3_client.delete_bucket(Bucket=bucket)


def test_translating_the_offsets_of_groups_does_what_a_restore_may_and_writes_nothing(
    config: ConnectorConfig, recorder: Recorder
) -> None:
    own = config.model_copy(update={"archive": config.archive.model_copy(update={"consumer_groups": ("g",)})})
    with ClusterAdmin(config.kafka) as admin:
        publish_offsets(admin, "g", config.topics[0], {0: 5})
        archived(own)
        restored(own)

        def run() -> None:
            found = present(read_finished_restore(own, "r1"))
            [translation] = translate_groups(own, *found, admin)
            assert [o.target_offset for o in translation.offsets] == [5]

        done = actions(requests_of(recorder, run))
    assert beyond(done, policy("restore") - {g for g in policy("restore") if g[0] == "s3:PutObject"}) == set()


def _leave_orphans(store: ObjectStore, index_dir: str, key: str, offset: str) -> None:
    """An object and an unfinished upload that no run committed, beside the object of `key`."""
    found = present(store.head(key))
    writer = present(Provenance.of(found))
    orphan = key.replace(offset, "+0000000099")
    closed = replace(writer, epoch=0, index_dir=index_dir)
    store.put_new(orphan, b"orphan", closed.metadata(orphan))
    unfinished = key.replace(offset, "+0000000098")
    store.upload_part(unfinished, store.create_upload(unfinished, {}), 1, b"part")


def test_vacuum_deletes_within_its_policy(config: ConnectorConfig, recorder: Recorder) -> None:
    of_hours_and_days(config)
    store, topic = ObjectStore(config.store), config.topics[0]
    for segment in snapshot(config).segments:
        _leave_orphans(store, config.archive.index_dir, segment.key, f"+{segment.start_offset:010d}")
    done = actions(requests_of(recorder, lambda: vacuum_topic(config, topic, "vacuum-run", timedelta(0), False)))
    assert compare(done, policy("vacuum")) == (set(), set())


def test_the_upkeep_of_an_index_touches_nothing_but_the_index(config: ConnectorConfig, recorder: Recorder) -> None:
    of_hours_and_days(config)
    requests = requests_of(recorder, lambda: keep_up_index(config, dry_run=False, retention=timedelta()))
    done = actions(requests)
    assert compare(done, policy("upkeep")) == (set(), set())
    deleted = [request.key for request in requests if request.method == "DELETE"]
    assert deleted
    assert all(key.startswith("_index/connector=c/") for key in deleted)
    assert archived(config).record_count == 0


def test_what_runs_print_takes_the_rights_of_its_policy(
    store_settings: StoreSettings, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by a run, read by the webserver, and deleted with the run."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", present(store_settings.access_key_id).get_secret_value())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", present(store_settings.secret_access_key).get_secret_value())
    run, step = "run", ["run", "compute_logs", "step"]

    def open_logs(process: str) -> S3ComputeLogManager:
        return S3ComputeLogManager(
            store_settings.bucket, local_dir=str(tmp_path / process), endpoint_url=recorder.endpoint, region="us-east-1"
        )

    def print_read_and_delete() -> None:
        with open_logs("run").open_log_stream(step, ComputeIOType.STDERR) as stream:
            assert stream is not None
            stream.write("said")
        assert open_logs("webserver").get_log_data(step).stderr == b"said"
        open_logs("sensor").delete_logs(prefix=[run])

    done = actions(requests_of(recorder, print_read_and_delete))
    allowed = frozenset((action, resource.replace("LOGS", "BUCKET")) for action, resource in policy("logs"))
    assert compare(done, allowed) == (set(), set())


def test_a_request_outside_of_a_policy_is_found() -> None:
    done = actions([HttpRequest("DELETE", "/bucket/topics/t/key", {}, b"")])
    assert beyond(done, policy("archive")) == {("s3:DeleteObject", "arn:aws:s3:::BUCKET/topics/t/key")}
    assert beyond({("s3:GetObject", "arn:aws:s3:::BUCKET/other")}, policy("restore")) != set()
