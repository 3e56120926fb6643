"""What the page, the concerns and the metrics say of rehearsals: came back, not all, overdue, never, not known."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kafka_s3_platform.cli.operating.health import _judge, make_document
from kafka_s3_platform.core.model.health import ConnectorHealth, Level, Proof, Risk, TopicHealth
from kafka_s3_platform.core.model.turns import RehearsedHours, TopicTurns
from kafka_s3_platform.operate.monitoring.lookout import HealthReport
from kafka_s3_platform.operate.monitoring.metrics import render_metrics
from kafka_s3_platform.operate.status.concerns import list_concerns
from kafka_s3_platform_tests.monitoring.test_overview import render_page
from kafka_s3_platform_tests.support import HOUR, NOON

DAY = timedelta(days=1)


def make_turns(*rehearsed: RehearsedHours, due_at: datetime = NOON + DAY) -> TopicTurns:
    return TopicTurns(NOON - DAY, 30, 4, 4_000, due_at, rehearsed)


CAME_BACK = RehearsedHours(NOON - 9 * HOUR, NOON - 6 * HOUR, NOON - HOUR)
LOST = RehearsedHours(NOON - 4 * HOUR, NOON - 3 * HOUR, NOON - HOUR, "object o is damaged, missing or replaced")
ARCHIVED = TopicHealth("t", risk=Risk(Level.FINE, ""), newest_complete=NOON, unresolved_offsets=0, is_rehearsed=True)
PROVEN = replace(
    ARCHIVED, proof=Proof(NOON - HOUR, "rehearsal", 30), turns=make_turns(CAME_BACK), return_seconds=7200.0
)


def say(topic: TopicHealth, **facts: str) -> list[tuple[str, str]]:
    concerns = list_concerns([ConnectorHealth("c", NOON, (topic,), **facts)])  # type: ignore[arg-type]
    return [(concern.kind, concern.text) for concern in concerns]


def test_of_what_came_back_in_time_nothing_has_to_be_said() -> None:
    assert say(PROVEN) == []
    assert PROVEN.is_well


@pytest.mark.parametrize(
    ("topic", "kind", "told"),
    [
        (
            replace(PROVEN, turns=make_turns(CAME_BACK, LOST)),
            "broken",
            "c/t: 1 hour did not come back when rehearsed, the first of 2026-01-01 08:00 UTC: object o is damaged",
        ),
        (
            replace(PROVEN, turns=make_turns(CAME_BACK, due_at=NOON - DAY)),
            "unproven",
            "c/t: not rehearsed since it was due, 2025-12-31",
        ),
        (ARCHIVED, "unproven", "c/t: was never rehearsed"),
    ],
    ids=["lost", "overdue", "never"],
)
def test_what_did_not_come_back_or_had_no_turn_is_said(topic: TopicHealth, kind: str, told: str) -> None:
    [(found, text)] = say(topic)
    assert (found, text[: len(told)]) == (kind, told)
    assert topic.is_well == (kind == "unproven")


def test_without_a_rehearsal_that_was_asked_for_or_an_hour_that_is_complete_none_is_missed() -> None:
    assert say(replace(ARCHIVED, is_rehearsed=False)) == say(replace(ARCHIVED, newest_complete=None)) == []


def test_evidence_that_cannot_be_read_is_not_known_and_a_silent_store_is_said_once() -> None:
    topic = replace(ARCHIVED, is_rehearsed=False)
    assert [kind for kind, _ in say(topic, evidence_error="[KS-ARCHIVE-DATA] 000001.json is no evidence")] == [
        "unknown"
    ]
    unread = ConnectorHealth("c", NOON, (topic,), evidence_error="[KS-ARCHIVE-DATA] 000001.json is no evidence")
    assert not unread.is_well, "an hour may not have come back"
    assert "of 1 connector it is not known what came back" in _judge([unread]).text
    assert make_document(unread)["evidence_error"] == unread.evidence_error
    silent = replace(topic, store_error="[KS-STORE-DOWN] no answer")
    assert [text for _, text in say(silent, evidence_error="[KS-STORE-DOWN] no list")] == [
        "c/t: not known: [KS-STORE-DOWN] no answer"
    ]


def test_the_page_tells_what_would_come_back_how_soon_and_when_it_was_proven() -> None:
    never = replace(ARCHIVED, topic="u")
    page = render_page(HealthReport((ConnectorHealth("c", NOON, (PROVEN, never)),), looked_at=NOON))
    assert "2026-01-01, 75% in 30 d; all in 2 h 0 min" in re.sub("</?span[^>]*>", "", page)
    assert "topics were proven to come back<" in page
    assert "<b>3 of 4</b><span>hours came back in rehearsals within their period</span>" in page
    assert "<b>2 h 0 min</b><span>for a restore of all, as measured, but for 1 topic not known</span>" in page
    lost = replace(PROVEN, turns=make_turns(LOST))
    red = render_page(HealthReport((ConnectorHealth("c", NOON, (lost,)),), looked_at=NOON))
    assert "at risk: 1" in red
    assert "1 hour failed</span>" in red
    assert "topics were proven to come back, but not all hours of 1<" in red


def test_the_metrics_are_absent_where_nothing_is_known() -> None:
    def expose(topic: TopicHealth) -> dict[str, str]:
        text = render_metrics(HealthReport((ConnectorHealth("c", NOON, (topic,)),)), "")[0].decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if "rehears" in line or "restore_est" in line)
        return {name.partition("{")[0]: value for name, _, value in lines if not name.startswith("#")}

    assert expose(replace(ARCHIVED, is_rehearsed=False)) == {}
    assert expose(ARCHIVED) == {"kafka_s3_rehearsal_due_timestamp_seconds": "0.0"}
    exposed = expose(replace(PROVEN, turns=make_turns(CAME_BACK, LOST)))
    assert exposed["kafka_s3_rehearsal_failed_hours"] == "1.0"
    assert exposed["kafka_s3_restore_estimate_seconds"] == "7200.0"
    assert float(exposed["kafka_s3_rehearsal_due_timestamp_seconds"]) == (NOON + DAY).timestamp()
