"""Runs the code location's jobs from the command line, on the instance that the UI shows."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import click
import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from kafka_s3_platform.config.files import find_connectors_folder, load_connectors
from kafka_s3_platform.config.keys.table import find_nearest
from kafka_s3_platform.config.parse import read_connector_file
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.definitions import defs
from kafka_s3_platform.defs.archive.checks import list_index_checks
from kafka_s3_platform.defs.failures import FAILURE_TAG, RETRIES_TAG
from kafka_s3_platform.defs.processes import describe_place, make_process_tags
from kafka_s3_platform.defs.restore.request import allow_paths
from kafka_s3_platform.defs.runs import find_unfinished
from kafka_s3_platform.defs.tick import MAX_UNANSWERED
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.defs.topics.discovery import find_gone_topics, find_topics_folder, resolve_now
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    ConfigError,
    PermanentError,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.local.processes import lock_folder

topic_option = click.option("--topic", metavar="T", help="Use only this topic of the connector. Default: all of them.")

R = TypeVar("R")

PARTITION_KEY = "partition_key"

NO_ANSWER = (BrokerUnavailableError, StoreUnavailableError)

_INTERRUPTS = frozenset({"KeyboardInterrupt", "DagsterExecutionInterruptedError"})


@dataclass(frozen=True)
class RunOutcome:
    """A run that succeeded. Each event is the metadata of an hour, of a day or (partition key None) of the run."""

    topic: str
    run_id: str
    events: tuple[dict[str, Any], ...]


def find_connector(name: str) -> ConnectorConfig:
    """Find the sink or source connector of that name. Files of other connectors may be broken.

    Raises:
        ConfigError: the connector's file does not load, or there is no such connector.
    """
    files = load_connectors(find_connectors_folder(os.environ), os.environ)
    configs = {config.name: config for config in files.connectors}
    if name in configs:
        return configs[name]
    if broken := [problem for path, problem in files.broken.items() if name in _read_names(path)]:
        raise ConfigError("\n".join(dict.fromkeys(broken)))
    raise ConfigError(_suggest_name(f"no connector file declares {name}", name, list(configs)) + files.reservation)


def _read_names(path: Path) -> set[str]:
    """Return the names that the connector of a broken file may have."""
    try:
        return {read_connector_file(path).name}
    except ConfigError:
        return {path.stem}


def find_archived_topics(connector: str, topic: str | None, *, at_kafka: bool = False) -> list[ArchivedTopic]:
    """Find the connector's topics, or the named topic. ConfigError if it does not exist.

    With `at_kafka`, leave out topics that `topics.regex` found earlier and that Kafka no longer has.
    """
    found = find_connector(connector)
    if found.source is not None:
        raise ConfigError(
            f"connector {connector} is a source: it reads objects that others wrote, and archives nothing itself. "
            f"Restore them with `kafka-s3 restore {connector}`; name a sink connector for everything else"
        )
    folder = find_topics_folder()
    config = resolve_now(found, folder)
    if topic is not None and topic not in config.topics:
        raise ConfigError(_suggest_name(f"connector {connector} does not archive topic {topic}", topic, config.topics))
    gone = find_gone_topics(config, folder) if at_kafka and topic is None else frozenset()
    return [ArchivedTopic(config, name) for name in config.topics if topic in (None, name) and name not in gone]


class RunInterruptedError(TransientError):
    """Somebody stopped the run, and with it the command."""


def try_each(
    topics: Sequence[ArchivedTopic], do: Callable[[ArchivedTopic], R]
) -> tuple[list[R], dict[str, PlatformError]]:
    """Do something for each topic. Return the results, and the errors by topic. A failure stops no other topic.

    But topics share a cluster and a store: after MAX_UNANSWERED topics in a row without an answer, the rest is not
    tried. If all topics fail there is nothing to show, and this raises what `raise_failures` raises.
    """
    done: list[R] = []
    failures: dict[str, PlatformError] = {}
    unanswered = 0
    for topic in topics:
        if unanswered == MAX_UNANSWERED:
            failures[topic.topic] = TransientError("not tried, since the topics before it got no answer")
            continue
        try:
            done.append(do(topic))
            unanswered = 0
        except RunInterruptedError:
            raise
        except PlatformError as err:
            failures[topic.topic] = err
            unanswered = unanswered + 1 if isinstance(err, NO_ANSWER) else 0
    if not done:
        raise_failures(failures)
    return done, failures


def raise_failures(failures: Mapping[str, PlatformError]) -> None:
    """Raise the errors of `try_each`: a single one as it is, several as one error. It is transient only if all are."""
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        may_pass = all(isinstance(err, TransientError) for err in failures.values())
        message = "\n".join(f"{topic}: {err}" for topic, err in failures.items())
        raise (TransientError if may_pass else PermanentError)(message)


def find_native_topics(connector: str, topic: str | None, verb: str) -> list[ArchivedTopic]:
    """Find archived topics. ConfigError, which names `verb`, if the platform cannot read the objects of a topic."""
    found = find_archived_topics(connector, topic)
    for other in (t for t in found if not t.is_native):
        raise ConfigError(
            f"connector {connector} writes objects of format {other.config.layout.format}, which this version cannot "
            f"{verb}: they stay as they were written. Only EnvelopeParquetFormat can. What was archived in an envelope "
            f"before can: by the same file with format.class=EnvelopeParquetFormat, or without format.class, of the "
            f"same connector name"
        )
    return found


def run_job(
    topic: ArchivedTopic,
    job_name: str,
    key: dg.AssetKey,
    partition_keys: Sequence[str] = (),
    ops: Mapping[str, dg.Config] | None = None,
    *,
    only_looks: bool = False,
) -> RunOutcome:
    """Run one asset of a job in this process, on the contiguous `partition_keys` or without any.

    A run that `only_looks` changes nothing and may run beside other runs of its topic.

    Raises TransientError or PermanentError with the message of the error that ended the run.
    """
    run_id = str(uuid4())
    tags = {RETRIES_TAG: "0", **make_process_tags(run_id)}
    if partition_keys:
        tags |= {
            ASSET_PARTITION_RANGE_START_TAG: partition_keys[0],
            ASSET_PARTITION_RANGE_END_TAG: partition_keys[-1],
        }
    job = defs().resolve_job_def(job_name)
    with open_instance() as found, allow_paths():
        if not only_looks:
            _refuse_overlap(found, topic, key)
        result = job.get_subset(
            asset_selection=frozenset([key]), asset_check_selection=frozenset(list_index_checks(key))
        ).execute_in_process(
            run_config=dg.RunConfig(ops=dict(ops or {}), loggers={"console": {"config": {"log_level": "CRITICAL"}}}),
            instance=found,
            run_id=run_id,
            tags=tags,
            raise_on_error=False,
        )
        if not result.success:
            raise _make_error(result, found)
    return RunOutcome(topic.topic, result.run_id, tuple(_find_events(result, key)))


def open_instance() -> dg.DagsterInstance:
    """Open the instance of DAGSTER_HOME, or else of the `dagster.yaml` in this folder, as `dagster dev` does.

    Only one process at a time does so. If two create the databases of a fresh home at once, these get two revisions.
    """
    home = os.environ.get("DAGSTER_HOME")
    if home and Path(home).is_dir():
        with lock_folder(Path(home) / "kafka_s3_lock"):
            return dg.DagsterInstance.get()
    if home:
        return dg.DagsterInstance.get()
    if Path("dagster.yaml").exists():
        with lock_folder(Path(".dagster") / "kafka_s3_lock"):
            return dg.DagsterInstance.from_config(str(Path.cwd()))
    click.echo("DAGSTER_HOME is not set and there is no dagster.yaml here: the UI will not show this run", err=True)
    return dg.DagsterInstance.ephemeral()


def convert_metadata(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Return the metadata as JSON values."""
    return {name.removeprefix("dagster/"): _convert_value(value) for name, value in metadata.items()}


def _convert_value(value: dg.MetadataValue) -> Any:
    if isinstance(value, dg.TableMetadataValue):
        return [dict(record.data) for record in value.records]
    return value.value


def _refuse_overlap(found: dg.DagsterInstance, topic: ArchivedTopic, key: dg.AssetKey) -> None:
    """Refuse a run if another one changes the topic. Pools hold back only runs that the daemon starts, not this one."""
    changing = [topic.key("hourly"), topic.key("daily")]
    keys = changing if key in changing else [key]
    runs = [run for each in keys for run in find_unfinished(found, each)]
    if runs:
        raise TransientError(
            f"topic {topic.topic}: run {runs[0].run_id} is queued or under way {describe_place(runs[0])}; try again "
            f"when it ended. If its process is gone, terminate it in the UI"
        )


def _find_events(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[dict[str, Any]]:
    found = []
    for event in result.all_events:
        if event.is_step_materialization:
            reported: Any = event.step_materialization_data.materialization
        elif event.is_asset_observation:
            reported = event.asset_observation_data.asset_observation
        else:
            continue
        if reported.asset_key == key:
            found.append({PARTITION_KEY: reported.partition, **convert_metadata(reported.metadata)})
    return found


def _make_error(result: dg.ExecuteInProcessResult, found: dg.DagsterInstance) -> Exception:
    """Return the platform's error that ended the run, or a new error with Dagster's text for any other error."""
    failed = next((e for e in result.all_events if e.is_step_failure), None)
    if failed is None:
        return PermanentError(f"run {result.run_id} failed before its first step; Dagster's UI shows why")
    data = failed.step_failure_data
    if data.error and data.error.cls_name in _INTERRUPTS:
        return RunInterruptedError(
            f"run {result.run_id} was interrupted. What it had committed stays; run the command again to go on, a "
            f"restore with its --restore-id ({result.run_id}, where none was given)"
        )
    said = data.user_failure_data.description if data.user_failure_data else None
    message = f"run {result.run_id}: {said or (data.error.to_string() if data.error else 'failed')}"
    run = found.get_run_by_id(result.run_id)
    is_transient = run is not None and run.tags.get(FAILURE_TAG) == "transient"
    if not is_transient:
        return PermanentError(message)
    name = data.user_failure_data.metadata["error"].value if data.user_failure_data else None
    return next((kind for kind in NO_ANSWER if kind.__name__ == name), TransientError)(message)


def _suggest_name(what: str, name: str, known: Sequence[str]) -> str:
    near = find_nearest(name, known)
    return f"{what}; " + (f"did you mean {near}?" if near else f"there are: {', '.join(known) or 'none'}")
