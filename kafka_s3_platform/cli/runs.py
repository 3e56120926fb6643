"""Runs the code location's jobs from the command line, on the UI's instance."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from uuid import uuid4

import dagster as dg

from kafka_s3_platform.cli.messages import MESSAGES, print_result
from kafka_s3_platform.connect.config.files import find_connector, suggest_name
from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.failures import FAILURES, RETRIES_TAG
from kafka_s3_platform.core.defs.processes import (
    describe_end,
    describe_place,
    extend_life,
    find_unfinished_runs,
    make_process_tags,
)
from kafka_s3_platform.core.defs.restore.values import allow_paths
from kafka_s3_platform.core.defs.runs import is_changing
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import (
    ConfigError,
    ErrorCode,
    PermanentError,
    PlatformError,
    TransientError,
    find_code,
)
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.work import FAILURE_TAG, FIRST_WINDOW_TAG, LAST_WINDOW_TAG, PICKED_TAG
from kafka_s3_platform.core.model.silence import NO_ANSWER, try_each
from kafka_s3_platform.core.model.silence import raise_failures as raise_failures  # noqa: PLC0414 - for the commands
from kafka_s3_platform.core.status.discovery import find_gone_topics, find_topics_folder, resolve_now
from kafka_s3_platform.definitions import defs
from kafka_s3_platform.operate.instance.home import find_instance

logger = logging.getLogger(__name__)

R = TypeVar("R")

PARTITION_KEY = "partition_key"

_INTERRUPTS = frozenset({"KeyboardInterrupt", "DagsterExecutionInterruptedError"})


@dataclass(frozen=True)
class RunOutcome:
    """A successful run. Each event is the metadata of an hour, of a day or (partition key None) of the run."""

    topic: str
    run_id: str
    events: tuple[dict[str, Any], ...]


RunsOfTopics = tuple[list[RunOutcome], dict[str, PlatformError]]
"""The outcomes of successful topics, and the errors of the others by topic."""


def find_archived_topics(connector: str, topic: str | None, *, at_kafka: bool = False) -> list[TopicAssets]:
    """Find the connector's topics, or the named topic. Raises ConfigError if it does not exist.

    With `at_kafka`, leave out topics of `topics.regex` that Kafka no longer has.
    """
    config = find_connector(connector, os.environ)
    if config.source is not None:
        raise ConfigError(
            f"connector {connector} is a source: it reads objects that others wrote, and archives nothing itself. "
            f"Restore them with `kafka-s3 restore {connector} --topic T --to-topic T2`; with --dry-run --exact, it "
            f"reads each object and sends nothing, which verifies them. Name a sink connector for everything else"
        )
    folder = find_topics_folder()
    config = resolve_now(config, folder)
    if topic is not None and topic not in config.topics:
        raise ConfigError(suggest_name(f"connector {connector} does not archive topic {topic}", topic, config.topics))
    gone_topics = find_gone_topics(config, folder) if at_kafka and topic is None else frozenset()
    return [TopicAssets(config, name) for name in config.topics if topic in (None, name) and name not in gone_topics]


class RunInterruptedError(KeyboardInterrupt):
    """Somebody stopped the run, and with it the command."""


def try_topics(
    topics: Sequence[TopicAssets], do: Callable[[TopicAssets], R]
) -> tuple[list[R], dict[str, PlatformError]]:
    """Do something for each topic, as `try_each` does. Return the results, and the errors by topic.

    If all topics fail, raise as `raise_failures` does.
    """
    by_name = {topic.topic: topic for topic in topics}
    results, failures = try_each(by_name, lambda name: do(by_name[name]))
    if not results:
        raise_failures(failures)
    return [*results.values()], failures


def print_topics(
    topics: Sequence[TopicAssets],
    describe: Callable[[TopicAssets], tuple[dict[str, Any], Iterable[str]]],
    as_json: bool,
    **facts: Any,
) -> None:
    """Call `describe` for each topic, and print all its JSON values, or all lines.

    `facts` come before the topics in the JSON. After the others are printed, raises the errors of failed topics.
    """
    results, failures = try_topics(topics, describe)
    lines = [line for _, topic_lines in results for line in topic_lines]
    print_result({**facts, "topics": [document for document, _ in results]}, as_json, lines)
    raise_failures(failures)


def find_native_topics(connector: str, topic: str | None, verb: str) -> list[TopicAssets]:
    """Find archived topics. Raises ConfigError with `verb` if their objects are not in the native format."""
    topics = find_archived_topics(connector, topic)
    for foreign_topic in (t for t in topics if not t.is_native):
        raise ConfigError(
            f"connector {connector} writes objects of format {foreign_topic.config.layout.format}, which this version "
            f"cannot {verb}: they stay as they were written. Only EnvelopeParquetFormat can. What was archived in an "
            f"envelope before can: by the same file with format.class=EnvelopeParquetFormat, or without format.class, "
            f"of the same connector name"
        )
    return topics


def run_topics(kind: Literal["archive", "compact"], topics: Sequence[TopicAssets], keys: Sequence[str]) -> RunsOfTopics:
    """Archive hours, or compact days, of topics of one connector. `keys` are the first and the last one.

    Without keys, archive everything up to now. Return as `run_assets` does, and raise an error if no topic succeeds.
    """
    by_key = {topic.key("hourly" if kind == "archive" else "daily"): topic.topic for topic in topics}
    outcomes, failures = run_assets(by_key, make_op_name(kind, topics[0].config.name), keys)
    if not outcomes:
        raise_failures(failures)
    return outcomes, failures


def run_assets(
    topics: Mapping[dg.AssetKey, str],
    job_name: str,
    partition_keys: Sequence[str] = (),
    ops: Mapping[str, dg.Config] | None = None,
    *,
    only_looks: bool = False,
    run_id: str | None = None,
    is_together: bool = False,
) -> RunsOfTopics:
    """Run assets, each of a topic, as one run of a job in this process.

    The run covers the contiguous `partition_keys`, if there are any. Without a `run_id` it gets a new one. With
    `only_looks` it changes nothing, and may run beside other runs of its topics. If the topics are `is_together`, none
    is run while another run changes one of them. Returns the outcomes, and the errors by topic: a TransientError or
    PermanentError with the message of the failure, or the topic's part of it.
    """
    with open_instance() as instance, allow_paths():
        busy = {} if only_looks else _find_overlaps(instance, topics)
        free = [key for key in topics if key not in busy]
        failures = {topics[key]: err for key, err in busy.items()}
        if not free or (busy and is_together):
            return [], failures
        result = _execute(instance, run_id or str(uuid4()), job_name, free, partition_keys, ops or {})
        errors = {} if result.success else _make_errors(result, instance, free)
    events_by_key = {key: _find_events(result, key) for key in free if key not in errors}
    outcomes = [RunOutcome(topics[key], result.run_id, tuple(events)) for key, events in events_by_key.items()]
    return outcomes, {**failures, **{topics.get(key, key.path[-1]): err for key, err in errors.items()}}


def _execute(
    instance: dg.DagsterInstance,
    run_id: str,
    job_name: str,
    keys: Sequence[dg.AssetKey],
    partition_keys: Sequence[str],
    ops: Mapping[str, dg.Config],
) -> dg.ExecuteInProcessResult:
    """Execute the job for these assets and their checks in this process. A failure is part of the result."""
    extend_life(instance, run_id)
    tags = {RETRIES_TAG: "0", **make_process_tags(run_id)}
    if len(keys) == 1:
        tags[PICKED_TAG] = keys[0].to_user_string()
    if partition_keys:
        tags |= {
            FIRST_WINDOW_TAG: partition_keys[0],
            LAST_WINDOW_TAG: partition_keys[-1],
        }
    level = "INFO" if MESSAGES.is_verbose else "CRITICAL"
    job = defs().resolve_job_def(job_name)
    # A restore of several connectors is a run of the first one's job.
    own_keys = frozenset(keys).intersection(job.asset_layer.executable_asset_keys)
    checks = frozenset(check for key in own_keys for check in list_index_checks(key))
    job = job.get_subset(asset_selection=own_keys, asset_check_selection=checks)
    return job.execute_in_process(
        run_config=dg.RunConfig(ops=dict(ops), loggers={"console": {"config": {"log_level": level}}}),
        instance=instance,
        run_id=run_id,
        tags=tags,
        raise_on_error=False,
    )


def open_instance() -> dg.DagsterInstance:
    """Open the UI's instance or, if there is none, an instance that lasts as long as this process."""
    instance = find_instance()
    if instance is not None:
        return instance
    logger.warning("DAGSTER_HOME is not set and there is no dagster.yaml here: the UI will not show this run")
    return dg.DagsterInstance.ephemeral()


def convert_metadata(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Return the metadata as JSON values."""
    return {name.removeprefix("dagster/"): _convert_value(value) for name, value in metadata.items()}


def _convert_value(value: dg.MetadataValue) -> Any:
    """Return a value of Dagster's metadata as JSON."""
    if isinstance(value, dg.TableMetadataValue):
        return [dict(record.data) for record in value.records]
    return value.value


def _find_overlaps(instance: dg.DagsterInstance, topics: Mapping[dg.AssetKey, str]) -> dict[dg.AssetKey, PlatformError]:
    """Return an error for each topic that another run is changing. Pools hold back only the daemon's runs."""
    unfinished = find_unfinished_runs(instance)
    busy: dict[dg.AssetKey, PlatformError] = {}
    for key, topic in topics.items():
        run = next((run for run in unfinished if any(is_changing(run, asset) for asset in _list_changing(key))), None)
        if run is not None:
            busy[key] = TransientError(
                f"topic {topic}: run {run.run_id} is queued or under way {describe_place(run)}; try again when it "
                f"ended{describe_end(instance, run)}"
            )
    return busy


def _list_changing(key: dg.AssetKey) -> list[dg.AssetKey]:
    """Return the assets of the topic that no other run may change during this one."""
    changing = ("hourly", "daily")
    if len(key.path) < len(("connector", "group", "topic")) or key.path[1] not in changing:
        return [key]
    return [dg.AssetKey([key.path[0], group, *key.path[2:]]) for group in changing]


def _find_events(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[dict[str, Any]]:
    """Return the metadata that the run reported about an asset, one mapping for each hour or day."""
    events = []
    for event in result.all_events:
        if event.is_step_materialization:
            reported: Any = event.step_materialization_data.materialization
        elif event.is_asset_observation:
            reported = event.asset_observation_data.asset_observation
        else:
            continue
        if reported.asset_key == key:
            events.append({PARTITION_KEY: reported.partition, **convert_metadata(reported.metadata)})
    return events


def _make_errors(
    result: dg.ExecuteInProcessResult, instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, PlatformError]:
    """Return the run's errors by asset. An asset without an error is done.

    Any other error becomes one of the platform's, with Dagster's text. Raises RunInterruptedError.
    """
    _raise_interrupt(result)
    failed_step = next((e for e in result.all_events if e.is_step_failure), None)
    if failed_step is None:
        err = PermanentError(f"run {result.run_id} failed before its first step; Dagster's UI shows why")
        return dict.fromkeys(keys, err)
    data = failed_step.step_failure_data
    failure = data.user_failure_data
    if failure and FAILURES in failure.metadata:
        by_asset: Any = failure.metadata[FAILURES].value
        # It may name assets that are none of `keys`: a restore that goes on keeps the topics that it began with.
        errors = ((dg.AssetKey.from_user_string(name), details) for name, details in by_asset.items())
        return {key: _make_error(result.run_id, **details) for key, details in errors}
    description = failure.description if failure else None
    run = instance.get_run_by_id(result.run_id)
    kind = run.tags.get(FAILURE_TAG, "") if run else ""
    text = description or (data.error.to_string() if data.error else "failed")
    return dict.fromkeys(keys, _make_error(result.run_id, kind, text))


def _raise_interrupt(result: dg.ExecuteInProcessResult) -> None:
    """Raise RunInterruptedError if Ctrl-C ended the run, in a step or between its steps."""
    steps = [e.step_failure_data.error for e in result.all_events if e.is_step_failure]
    jobs = [e.job_failure_data.error for e in result.all_events if e.is_job_failure]
    if any(error and error.cls_name in _INTERRUPTS for error in (*steps, *jobs)):
        raise RunInterruptedError(f"run {result.run_id} was interrupted, and what it had committed stays")


def _make_error(run_id: str, kind: str, message: str) -> PlatformError:
    """Make an error whose class decides the command's exit status, and whether other topics are tried."""
    text = f"run {run_id}: {message}"
    if kind != "transient":
        return PermanentError(text)
    code = find_code(message)
    server = "" if code is None or code is ErrorCode.KAFKA_TRANSACTION else code.rpartition("-")[0]
    return next((cls for cls in NO_ANSWER if cls.code.startswith(f"{server}-")), TransientError)(text)
