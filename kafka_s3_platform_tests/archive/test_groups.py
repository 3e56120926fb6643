"""Offsets of consumer groups in the archive: noted by each run, never lost by one that sees none."""

import logging
from datetime import datetime, timezone

import pytest

from kafka_s3_platform.core.archive.reserve import match_replaced_groups, observe_groups
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_group
from kafka_s3_platform_tests.support import Sent, archived, snapshot


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Archives the groups `<topic>-app...`; kafka partition 2 is idle, 0 and 1 hold five records each."""
    lab.create_topic(3)
    lab.produce([Sent(kafka_partition=p) for p in (0, 1) for _ in range(5)])
    return lab.connector(consumer_groups=(f"{lab.topic}-app.*",))


def committed(config: ConnectorConfig, group: str, offsets: dict[int, int], metadata: str = "") -> str:
    """`offsets` committed in the name of group `<topic>-<group>`."""
    topic = config.topics[0]
    with ClusterAdmin(config.kafka) as admin:
        publish_offsets(admin, f"{topic}-{group}", topic, offsets, dict.fromkeys(offsets, metadata))
    return f"{topic}-{group}"


def noted(config: ConnectorConfig) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in snapshot(config).state.groups:
        found.setdefault(row.group_id.removeprefix(f"{config.topics[0]}-"), {})[row.kafka_partition] = (
            row.committed_offset
        )
    return found


def test_a_run_notes_what_the_chosen_groups_have_committed_idle_kafka_partitions_included(
    config: ConnectorConfig,
) -> None:
    committed(config, "app-1", {0: 3, 2: 0}, "note")
    committed(config, "app-2", {1: 5})
    committed(config, "other", {0: 1})

    archived(config)

    assert noted(config) == {"app-1": {0: 3, 2: 0}, "app-2": {1: 5}}
    row = snapshot(config).state.groups[0]
    assert (row.metadata, row.group_state) == ("note", "EMPTY")
    frontier = snapshot(config).state.frontiers[0]
    assert row.observed_at <= frontier.observed_at


def test_a_run_that_reads_nothing_new_notes_them_too_in_place_of_the_earlier_ones(config: ConnectorConfig) -> None:
    committed(config, "app-1", {0: 3})
    committed(config, "app-2", {0: 1, 1: 1})
    archived(config)
    committed(config, "app-1", {0: 5, 1: 2})

    archived(config)

    assert noted(config) == {"app-1": {0: 5, 1: 2}, "app-2": {0: 1, 1: 1}}


def test_groups_that_are_not_there_any_more_keep_what_was_noted(
    config: ConnectorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    group = committed(config, "app-1", {0: 3})
    archived(config)
    with ClusterAdmin(config.kafka) as admin:
        delete_group(admin, group)

    with caplog.at_level(logging.WARNING):
        archived(config)

    assert noted(config) == {"app-1": {0: 3}}
    assert "no consumer group is named" in caplog.text
    assert "earlier ones stay" in caplog.text


def test_a_group_that_vanished_does_not_take_others_with_it(config: ConnectorConfig) -> None:
    group = committed(config, "app-1", {0: 3})
    committed(config, "app-2", {0: 1})
    archived(config)
    with ClusterAdmin(config.kafka) as admin:
        delete_group(admin, group)
    committed(config, "app-2", {0: 4})

    archived(config)

    assert noted(config) == {"app-1": {0: 3}, "app-2": {0: 4}}


def test_without_the_key_no_group_is_asked_for(config: ConnectorConfig) -> None:
    committed(config, "app-1", {0: 3})
    none = config.model_copy(update={"archive": config.archive.model_copy(update={"consumer_groups": ()})})

    archived(none)

    assert noted(none) == {}


def test_a_cluster_that_does_not_answer_is_logged_and_replaces_nothing(
    config: ConnectorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    committed(config, "app-1", {0: 3})
    archived(config)
    state = snapshot(config).state

    with ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1) as admin:
        rows = observe_groups(admin, config, {config.topics[0]: (0, 1, 2)}, datetime.now(timezone.utc))

    assert rows == {config.topics[0]: []}
    assert list(match_replaced_groups(state, rows[config.topics[0]])) == []
    assert "were not archived" in caplog.text


def test_only_the_rows_of_groups_that_were_listed_are_replaced(config: ConnectorConfig) -> None:
    committed(config, "app-it's", {0: 3})
    archived(config)
    state = snapshot(config).state

    assert list(match_replaced_groups(state, state.groups)) == [
        f"(kind = 'group' AND period = 'state' AND group_id = '{config.topics[0]}-app-it''s')"
    ]
    assert list(match_replaced_groups(IndexState(), state.groups)) == []
