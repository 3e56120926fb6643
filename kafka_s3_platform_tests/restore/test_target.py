from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from kafka_s3_platform.model.segment import TopicGeneration
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.selection import first_ms, select
from kafka_s3_platform.restore.target import FOREVER_MS, TargetConfigs, findings, new_topic_configs
from kafka_s3_platform_tests.restore.test_selection import NOON, planned, request

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
AGE_MS = first_ms(NOW) - first_ms(NOON)
DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(FOREVER_MS),
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
}


def plan(archived: dict[str, str] | None = None, newest: datetime = NOON) -> RestorePlan:
    return RestorePlan(
        restore_id="r",
        terms={"to_topic": "u"},
        source=TopicGeneration("t", "id", (0,), tuple((archived or {}).items())),
        index_version=1,
        selection=select(request(), [0]),
        objects=(planned(0, (0, 5), (first_ms(NOON), first_ms(newest))),),
        gaps=(),
        allow_unsendable_timestamps=False,
        created_at="",
    )


def said(configs: dict[str, str], of: RestorePlan) -> list[tuple[bool, str]]:
    return [(f.refuses, f.text) for f in findings(of, TargetConfigs("u", DEFAULTS | configs, NOW))]


def test_a_target_that_keeps_everything_gives_no_finding() -> None:
    assert said({}, plan()) == []


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"retention.ms": str(AGE_MS - 1)},
        {"retention.bytes": "49"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": str(AGE_MS - 1)},
    ],
)
def test_what_would_lose_or_change_records_is_refused_by_its_config(configs: dict[str, str]) -> None:
    ((refuses, text),) = said(configs, plan())

    assert refuses
    assert next(iter(configs)) in text


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": str(AGE_MS)},
        {"retention.bytes": "50"},
        {"message.timestamp.before.max.ms": str(AGE_MS)},
        {"cleanup.policy": "", "retention.ms": "1"},
    ],
)
def test_a_limit_that_holds_the_records_is_fine(configs: dict[str, str]) -> None:
    assert said(configs, plan()) == []


def test_records_further_ahead_than_the_broker_allows_are_refused() -> None:
    ahead = plan(newest=NOW + timedelta(hours=2))

    ((refuses, text),) = said({}, ahead)

    assert refuses
    assert "message.timestamp.after.max.ms=3600000" in text


def test_a_smaller_message_limit_than_the_source_had_is_only_told() -> None:
    assert [r for r, _ in said({"max.message.bytes": "1000"}, plan())] == [False]


def test_a_new_topic_takes_the_archived_configs_and_keeps_what_is_restored() -> None:
    archived = {
        "cleanup.policy": "compact",
        "retention.ms": str(AGE_MS - 1),
        "segment.bytes": "1048576",
        "min.insync.replicas": "2",
        "message.timestamp.type": "LogAppendTime",
    }

    configs, told = new_topic_configs(plan(archived), NOW)

    assert configs == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "1048576",
        "message.timestamp.type": "CreateTime",
    }
    assert len(told) == 3


def test_an_archived_retention_that_still_holds_the_records_is_kept() -> None:
    archived = {"retention.ms": str(AGE_MS + 1), "retention.bytes": "1000"}

    configs, told = new_topic_configs(plan(archived), NOW)

    assert (configs["retention.ms"], configs["retention.bytes"], told) == (str(AGE_MS + 1), "1000", [])


def test_a_new_topic_accepts_records_that_are_far_ahead() -> None:
    configs, _ = new_topic_configs(plan(newest=NOW + timedelta(days=400)), NOW)

    assert configs["message.timestamp.after.max.ms"] == str(FOREVER_MS)


def test_the_plan_comes_back_from_its_object_with_the_same_digest() -> None:
    given = plan({"a": "b"})

    assert RestorePlan.from_json(given.to_json(), "k") == replace(given, terms=dict(given.terms))
