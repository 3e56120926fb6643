"""An evening of an operator: thirty topics, much of it wrong at once. What is told first has to be done first."""

import html
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.operate.alerts.findings import make_check_findings, read_failed_checks
from kafka_s3_platform.operate.alerts.incidents import update_incidents
from kafka_s3_platform.operate.alerts.message import make_message
from kafka_s3_platform.operate.monitoring.checks import make_checks, run_checks
from kafka_s3_platform.operate.monitoring.lookout import HealthReport
from kafka_s3_platform.operate.monitoring.metrics import render_metrics
from kafka_s3_platform.operate.monitoring.overview import Overviews, load_all
from kafka_s3_platform.operate.monitoring.status_page import StatusPage, render_status_page
from kafka_s3_platform.operate.status.concerns import list_concerns
from kafka_s3_platform_tests.cli.conftest import (  # noqa: F401
    KafkaS3,
    kafka_s3_without_spark,
    make_environment,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import evaluated, pass_minutes, tick
from kafka_s3_platform_tests.support import Sent, produce

LATE_HOURS = 30
KEPT = timedelta(hours=31, minutes=45)


@pytest.fixture
def scene(kafka_s3_without_spark: KafkaS3, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:  # noqa: F811
    """`web` and `shop` have 13 topics each, `crm` has a wrong secret, `iot` a store that hangs. Two files do not load.

    The file of `legacy`, and a topic of `web`, were removed.
    All topics are 30 hours late. Of `web.n12`, Kafka keeps the oldest for less than two hours more.
    """
    monkeypatch.setenv("DAGSTER_HOME", str(kafka_s3_without_spark.folder / "dagster"))
    monkeypatch.chdir(kafka_s3_without_spark.folder)
    prefix = lab.topic
    oldest = datetime.now(timezone.utc) - timedelta(hours=LATE_HOURS)
    # what is left is reckoned from the start of the hour of the oldest record
    since_hour = oldest - oldest.replace(minute=0, second=0, microsecond=0)
    names = {"web": 13, "shop": 13, "crm": 2, "iot": 2}
    for name, count in names.items():
        for n in range(count):
            kept = KEPT + since_hour if (name, n) == ("web", 12) else timedelta(days=30)
            topic = lab.create(f"{prefix}.{name}.n{n}", retention_ms=int(kept / timedelta(milliseconds=1)))
            produce(lab.kafka, topic, [Sent(timestamp=oldest)])
    folder = kafka_s3_without_spark.folder / "connectors"
    start = (oldest - timedelta(hours=1)).strftime("%Y-%m-%dT%H:00")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, "t", **{"archive.start.hour": start})
        keys = json.loads((folder / "c.json").read_text())
        (folder / "c.json").unlink()
        more: dict[str, dict[str, str]] = {
            "crm": {"aws.secret.access.key": "wrong"},
            "iot": {"store.url": f"http://127.0.0.1:{silent.getsockname()[1]}"},
            "web": {"timezone": "Europe/Berlin"},
        }
        for name, count in names.items():
            deleted = [f"{prefix}.gone"] if name == "shop" else []
            topics = ",".join([*(f"{prefix}.{name}.n{n}" for n in range(count)), *deleted])
            about = {"name": name, "topics": topics, "topics.dir": name, **more.get(name, {})}
            (folder / f"{name}.json").write_text(json.dumps({**keys, **about}))
        for name in ("billing", "audit"):
            (folder / f"{name}.json").write_text(json.dumps({**keys, "name": name, "flush.size": "1k"}))
        with dg.DagsterInstance.from_config(str(kafka_s3_without_spark.folder / "dagster")) as instance:
            for path in (["legacy", "kafka", f"{prefix}.web.n0"], ["web", "kafka", f"{prefix}.dropped"]):
                instance.report_runless_asset_event(dg.AssetObservation(dg.AssetKey(path)))
        yield prefix


def list_truths(scene: str) -> tuple[str, ...]:
    """What is so, the nearest loss first, then causes, then what is late, and in the end what was removed."""
    return (
        rf"web/{scene}\.web\.n12: .*Kafka keeps the oldest for 1 h \d+ min more",
        "iot: its object store does not answer",
        "audit: not known: .*'1k' is no whole number",
        "billing: not known: .*'1k' is no whole number",
        rf"crm/{scene}\.crm\.n0 and 1 more topic: not known: .*KS-STORE-",
        rf"iot/{scene}\.iot\.n0 and 1 more topic: not known: ",
        rf"shop/{scene}\.gone: not known: .*KS-KAFKA-TOPIC",
        rf"shop/{scene}\.shop\.n0 and 24 more topics: Not archived, or not complete: \d+ hours",
        rf"legacy/{scene}\.web\.n0: It was archived.* renamed to web, give it its old name back",
        rf"web/{scene}\.dropped: It was archived, and is not any more: the connector's file does not name it now",
    )


def test_the_nearest_loss_comes_first_then_causes_then_what_is_late(
    scene: str,
    kafka_s3_without_spark: KafkaS3,  # noqa: F811 - the fixture
) -> None:
    text, document = (start_health(kafka_s3_without_spark, *options) for options in ((), ("--json",)))
    configs, broken = load_all()
    connectors = Overviews(20.0, watches=True).take(configs, broken, {config.name for config in configs})
    now = datetime.now(timezone.utc)
    report = HealthReport(tuple(connectors), run_checks(make_checks(None, ()), connectors), now)
    truths = list_truths(scene)

    facts = StatusPage(report, "http://dagster", "/hours", now, 30.0)
    page = render_status_page(facts)
    match_each(truths, find_rows(page))
    check_page(page, connectors)
    check_filter(render_status_page(replace(facts, name_filter="WEB.n12")))
    # what is late is no failure in a topic's first half hour
    match_each((truths[0],), [concern.text for concern in report.concerns if concern.check == "at_risk"])
    check_metrics(render_metrics(report, "")[0].decode(), scene)

    printed = text.communicate(timeout=90)[0]
    assert text.returncode == 1, "and not that of a crash, though a thread still waits for a store"
    places = [printed.index(f"\n{concern.place}: ") for concern in list_concerns(connectors)]
    assert places == sorted(places)
    check_document(json.loads(document.communicate(timeout=90)[0]), scene)
    check_mails({config.name: config for config in configs}["web"], scene)


def start_health(kafka_s3: KafkaS3, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "health", *options]
    environment = make_environment(kafka_s3.folder)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def find_rows(page: str) -> list[str]:
    """The texts of what needs attention."""
    rows = re.findall(r"<li[^>]*>(.*?)</li>", page, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", row)).strip() for row in rows]


def match_each(patterns: Sequence[str], texts: Sequence[str]) -> None:
    assert len(texts) == len(patterns), texts
    for text, pattern in zip(texts, patterns, strict=True):
        assert re.match(pattern, text, re.DOTALL), (pattern, text)


def check_page(page: str, connectors: Sequence[ConnectorHealth]) -> None:
    """What is urgent stands above the tables, times have one zone, and no name of Python's is there."""
    assert page.index("Needs attention") < page.index("Last errors") < page.index("<h2>Topics</h2>")
    assert "Provenance(" not in page
    assert page.count('aria-expanded="true"') == 6
    assert page.count(">not loaded</span>") == 2
    # also of the connector that is in Berlin
    oldest = {topic.oldest_incomplete for each in connectors for topic in each.topics if topic.oldest_incomplete}
    assert {f"{hour:%Y-%m-%d %H:%M} UTC" for hour in oldest} == set(re.findall(r"The oldest, ([^,]+),", page))


def check_filter(page: str) -> None:
    assert page.count('data-of="Topic"') == 1


def check_metrics(exposed: str, scene: str) -> None:
    assert f'kafka_s3_at_risk_level{{connector="web",topic="{scene}.web.n12"}} 2.0' in exposed
    assert 'kafka_s3_store_up{connector="iot"} 0.0' in exposed
    assert "last_proven_timestamp_seconds{" not in exposed, "nothing came back yet"
    assert 'connector="legacy"' not in exposed


def check_document(document: dict[str, Any], scene: str) -> None:
    """The JSON has the same words, and what was removed."""
    connectors = {each["connector"]: each for each in document["connectors"]}
    assert {topic["at_risk"] for topic in connectors["web"]["topics"]} == {"yes"}
    assert {topic["at_risk"] for topic in connectors["iot"]["topics"]} == {None}
    assert {name for name, each in connectors.items() if each["is_removed"]} == {"legacy"}
    assert connectors["web"]["removed_topics"] == [f"{scene}.dropped"]


def check_mails(web: ConnectorConfig, scene: str) -> None:
    """The lag sensor's first mail is about the loss alone. Half an hour later, what is late is an alarm, too."""
    with dg.DagsterInstance.ephemeral() as instance:
        cursor, first = mail_after_tick(web, instance, None)
        assert f"topics: {scene}.web.n12\n" in first
        assert "Kafka keeps the oldest for 1 h" in first
        _, later = mail_after_tick(web, instance, pass_minutes(cursor, 31))
    assert later.index("Kafka keeps the oldest for 1 h") < later.index(f"{scene}.web.n0 and 11 more: ")
    assert later.count("Not archived, or not complete: ") == 2, "what is said of several topics is said once"


def mail_after_tick(config: ConnectorConfig, instance: dg.DagsterInstance, cursor: str | None) -> tuple[str, str]:
    """The sensor's cursor after a tick, and the mail of somebody who was told nothing before."""
    result = tick(config, f"lag__{config.name}", cursor, instance)
    for evaluation in evaluated(result):
        instance.report_runless_asset_event(evaluation)
    keys = {evaluation.asset_check_key for evaluation in evaluated(result)}
    findings = [*make_check_findings(read_failed_checks(instance, keys))]
    [incident] = update_incidents({}, findings, {}, datetime.now(timezone.utc)).values()
    return result.cursor or "", make_message(incident, None).text
