"""What one look finds of restores under way, and of an archive whose hours are merged."""

import re
import socket
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ErrorCode
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.model.health import (
    ConnectorHealth,
    EndedRun,
    FailedRun,
    Proof,
    RunHistory,
    RunningRestore,
    TopicHealth,
)
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.text import make_anchor
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.operate.monitoring.lookout import HealthReport
from kafka_s3_platform.operate.monitoring.metrics import render_metrics
from kafka_s3_platform.operate.monitoring.overview import Overviews
from kafka_s3_platform.operate.monitoring.status_page import StatusPage, render_status_page
from kafka_s3_platform.operate.status.concerns import CONDITIONS, list_concerns
from kafka_s3_platform_tests.conftest import REPOSITORY, Lab, copy_home
from kafka_s3_platform_tests.defs.running import topic_of
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    archived,
    compact_day,
)


@pytest.fixture
def home(tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Dagster home of the test's own."""
    copied = copy_home(fresh_home, tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(copied))
    return copied


def render_page(report: HealthReport, opened: Collection[str] | None = None) -> str:
    return render_status_page(StatusPage(report, "http://dagster", "/hours", NOON, 30.0, opened=opened))


def test_a_restore_under_way_tells_how_far_it_is(home: Path, lab: Lab) -> None:
    config = lab.archive([Sent(kafka_partition=p) for p in (0, 0, 1)], kafka_partitions=2)
    topic = config.topics[0]
    run = dg.DagsterRun(
        job_name="restore__c",
        status=dg.DagsterRunStatus.STARTED,
        asset_selection=frozenset([topic_of(config).key("restored")]),
        run_config={"ops": {"restored__c": {"config": {"how": {"restore_id": "mine"}}}}},
    )
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_run(run)
    overviews = Overviews(20.0, watches=True)
    looks: list[ConnectorHealth] = []

    def look() -> None:
        looks.extend(overviews.take([config]))

    look()
    asked = RestoreRequest(config, topic, f"{topic}.restored", "mine", run.run_id, create_topic=True)
    restore(ArchiveSource(asked), InterleavedRunner(look))
    found = [each.history.restores for each in looks if each.history]
    assert found[0] == (RunningRestore(run.run_id, "mine"),), "there is no plan yet"
    sent = RunningRestore(run.run_id, "mine", topic, f"{topic}.restored", 3, 3)
    assert found[-1] == (sent,), "all is sent, and is being read back"
    page = render_page(HealthReport((looks[-1],)))
    assert "3 records sent, reading back" in page
    assert f'href="http://dagster/runs/{run.run_id}"' in page


def test_a_store_that_hangs_holds_up_no_other(home: Path, lab: Lab) -> None:
    config = lab.archive([Sent()])
    restoring = dg.DagsterRun(job_name="restore__c", status=dg.DagsterRunStatus.STARTED)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_run(restoring)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = config.store.model_copy(update={"endpoint_url": url})
        [hangs] = Overviews(3.0).take([config.model_copy(update={"store": store})])
        assert not hangs.is_known
        assert hangs.history is not None, hangs.history_error
        assert hangs.history.restores == (RunningRestore(restoring.run_id, restoring.run_id),), "Dagster answers"
        # the store is still waited for
        [found] = Overviews(5.0, watches=True).take([config])
        assert found.is_known


def test_a_storage_of_dagster_that_does_not_answer_is_no_health(home: Path, lab: Lab) -> None:
    config = lab.archive([Sent()])
    for database in home.rglob("*.db"):
        database.write_bytes(b"no database")
    [found] = Overviews(20.0).take([config])
    assert (found.is_known, found.is_well) == (True, False)
    report = HealthReport((found,), looked_at=NOON)
    [reason] = [concern.text for concern in report.concerns if concern.check == "dagster"]
    assert reason.startswith("c: nothing requests its runs, and which of them failed is not known: [KS-DAGSTER]")
    assert b'kafka_s3_dagster_up{connector="c"} 0.0' in render_metrics(report, "")[0]


def test_a_look_ends_in_time_though_topics_are_not_listed(home: Path, lab: Lab) -> None:
    config = lab.archive([Sent()])
    [topic] = config.topics
    by_pattern = config.model_copy(update={"topics": (), "topics_regex": re.escape(topic)})
    [found] = Overviews(5.0).take([by_pattern])
    assert [each.topic for each in found.topics] == [topic]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = config.store.model_copy(update={"endpoint_url": url})
        began = time.monotonic()
        [found] = Overviews(2.0).take([by_pattern.model_copy(update={"store": store})])
        assert time.monotonic() - began < 20
    assert ([each.topic for each in found.topics], found.is_store_up) == ([topic], False)


def test_a_connector_that_was_removed_is_told_until_its_assets_are_wiped(home: Path) -> None:
    key = dg.AssetKey(["flights", "kafka", "flights"])
    overviews = Overviews(20.0)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(dg.AssetObservation(key))
        assert overviews.take([], (), {"flights"}) == [], "its file is there"
        [removed] = overviews.take([], (), set())
        instance.wipe_assets([key])
    [concern] = list_concerns([removed])
    assert concern.text.startswith("flights/flights: It was archived, and is not any more: no connector file")
    assert removed.is_well, "it may have been meant"
    page = render_page(HealthReport((removed,)))
    assert "<b>flights/flights</b>: It was archived" in page
    assert "0 connectors" in page
    assert b'"flights"' not in render_metrics(HealthReport((removed,)), "")[0]
    assert overviews.take([], (), set()) == []


def test_an_opened_table_is_in_the_address_of_the_page() -> None:
    groups = tuple(ConnectorHealth(name, NOON, (TopicHealth("t"),)) for name in ("a", "b"))
    page = render_page(HealthReport(groups))
    assert page.count("<table") == 2, "of few topics, all tables are open"
    assert '<a href="?open=b#a" aria-expanded="true">' in page
    closed = render_page(HealthReport(groups), opened=["b"])
    assert closed.count("<table") == 1
    assert '<a href="?open=a&amp;open=b#a" aria-expanded="false">' in closed
    assert '<a href="?open=#b" aria-expanded="true">' in closed


def test_what_is_merged_into_days_is_counted_once(home: Path, lab: Lab) -> None:
    hours = [NOON + n * HOUR for n in range(3)]
    config = lab.archive([Sent(b"v" * 10, timestamp=hour) for hour in hours], allowed_lateness_ms=0)
    overviews = Overviews(20.0, watches=True)
    [before] = [topic.totals for each in overviews.take([config]) for topic in each.topics]
    compact_day(CompactRequest(config, config.topics[0], NOON.date(), "merge"), InProcessRunner())
    [after] = [topic.totals for each in overviews.take([config]) for topic in each.topics]
    assert before is not None
    assert after is not None
    assert (before.records, before.record_bytes, before.segments) == (3, 30, 3)
    assert (after.records, after.record_bytes, after.segments) == (3, 30, 1)
    assert (before.day_segments, after.day_segments) == (0, 1)


def test_what_came_yesterday_is_counted_by_the_hours_of_records(home: Path, lab: Lab) -> None:
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    config = lab.archive([Sent(timestamp=yesterday), Sent(timestamp=yesterday), Sent(timestamp=NOON)])
    found = Overviews(20.0, watches=True).take([config])
    [totals] = [topic.totals for each in found for topic in each.topics if topic.totals]
    assert (totals.records, totals.yesterday_records) == (3, 2)
    page = render_page(HealthReport(tuple(found)))
    assert "<b>3</b><span>records archived</span>" in page
    assert "<b>2</b><span>of them of yesterday (UTC)</span>" in page
    assert "in 2 hourly and 0 merged objects" in page
    assert "<b>0 of 0</b><span>runs of the last 24 hours failed</span>" in page


def test_the_groups_and_the_registry_of_a_connector_are_shown_with_their_ages(home: Path, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(timestamp=NOON)])
    without = lab.connector()
    archived(without)
    [health] = Overviews(20.0, watches=True).take([without])
    assert "Archived beside records: 0 consumer groups<" in render_page(HealthReport((health,)))
    with ClusterAdmin(lab.kafka) as admin:
        for name in ("app-1", "app-2"):
            publish_offsets(admin, f"{lab.topic}-{name}", lab.topic, {0: 1})
    config = lab.connector(consumer_groups=(f"{lab.topic}-.*",))
    archived(config)
    [health] = Overviews(20.0, watches=True).take([config])
    runs = RunHistory(ended=(EndedRun("registry", NOON - 3 * HOUR, 1.0, is_success=False),))
    unread = TopicHealth("unread", store_error="no answer")
    new = TopicHealth("without-index", unresolved_offsets=0)
    registry = "the last run of registry failed 3 h 0 min ago<"
    for topics, groups in (
        ((*health.topics, new), "2 consumer groups, the oldest 0 s ago"),
        ((*health.topics, unread), "2 consumer groups, the oldest 0 s ago, but for 1 topic not known"),
        ((unread,), "consumer groups not known"),
    ):
        shown = render_page(HealthReport((replace(health, topics=topics, history=runs),)))
        assert f"Archived beside records: {groups}; {registry}" in shown


def test_what_the_archive_holds_is_not_told_as_nothing_where_no_index_is_read() -> None:
    proof = Proof(NOON, "restore", 7)
    silent = TopicHealth("t", store_error="no answer", proof=proof)
    without_index = TopicHealth("new", unresolved_offsets=0)
    one, both = (
        render_page(HealthReport((ConnectorHealth("c", NOON, topics, history=RunHistory()),)))
        for topics in ((silent,), (silent, without_index))
    )
    assert one.count("<b>not known</b>") == 3, "of records, those of yesterday, and bytes"
    assert "<b>0</b><span>records archived, but for 1 topic not known</span>" in both


def test_late_hours_of_a_topic_that_is_new_here_are_a_failure_after_half_an_hour(
    home: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = (datetime.now(timezone.utc) - timedelta(hours=20)).replace(minute=0, second=0, microsecond=0)
    config = lab.fill([Sent(timestamp=hour)], start_hour=hour)
    overviews = Overviews(20.0, watches=True)
    new, later = (list_failures(overviews, config, minutes, monkeypatch) for minutes in (30, 0))
    assert (new, ["The oldest" in failure for failure in later]) == ([], [True])
    assert list_failures(Overviews(20.0), config, 30, monkeypatch) == later, "a command has watched nothing"


def list_failures(
    overviews: Overviews, config: ConnectorConfig, first_minutes: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setattr("kafka_s3_platform.core.status.risk.FIRST_MINUTES", timedelta(minutes=first_minutes))
    return [concern.text for concern in list_concerns(overviews.take([config])) if concern.check]


def test_a_topic_whose_index_was_not_read_is_not_told_to_have_no_complete_hour() -> None:
    # as the last ones of many topics, after Kafka did not answer for some in a row
    silent = TopicHealth("t", kafka_error="Kafka does not answer")
    found = ConnectorHealth("c", NOON, (silent,), evidence_error="the store answers slowly")
    page = render_page(HealthReport((found,)))
    assert page.count(">not known</span>") == 5, "of the state, of the risk, of both hours and of the proof"


def test_what_is_not_known_and_what_failed_name_the_runbook_by_their_codes() -> None:
    failed = FailedRun("r", "archive", NOON, "[KS-STORE-BUCKET] no bucket b", is_over=False)
    defect = FailedRun("s", "archive", NOON, "ZeroDivisionError: division by zero", is_over=False)
    silent = TopicHealth("t", kafka_error="topic t: [KS-KAFKA-DOWN] no answer")
    found = (
        ConnectorHealth("c", NOON, (silent,), history=RunHistory((failed,))),
        ConnectorHealth("d", NOON, history=RunHistory((defect,))),
    )
    page = render_page(HealthReport(found))
    named = re.findall(r"<code>(docs/runbook\.md#[^<]+)", page)
    codes = (ErrorCode.KAFKA_DOWN, ErrorCode.STORE_BUCKET, ErrorCode.OTHER)
    assert named == [code.section for code in codes]


@pytest.mark.parametrize("section", sorted({c.section for c in CONDITIONS.values() if c.section}))
def test_the_sections_of_conditions_are_in_the_docs(section: str) -> None:
    document, _, anchor = section.partition("#")
    headings = re.findall(r"^#+ (.*)", (REPOSITORY / document).read_text(), re.MULTILINE)
    assert anchor in map(make_anchor, headings)
