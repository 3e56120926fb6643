"""`python -m bench.fleet_run`: one run of Dagster for many topics, from the lag sensor's tick to the last event.

CPU seconds are of this process, Spark's JVM and its Python workers; the embedded broker's and store's are not in it.
The session of Spark has started before; its start is told beside. The instance is on disk, with the event log of
`dagster.yaml`.
"""

import argparse
import json
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
from dagster._serdes import serialize_value
from dagster_shared.yaml_utils import load_yaml_from_path

from bench.archive import connector, started_session
from bench.fleet import create_topics, produce
from bench.measure import Usage, measured
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import RETRIES_TAG
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StartedSpark:
    """The resource of the assets, with a session that has started."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def make_runner(self) -> SparkRunner:
        """Return a runner of tasks on that session."""
        return SparkRunner(lambda: self._session)


def main() -> None:
    """Fill the last closed hour of the topics, tick, run what the tick asks for, tick again, and print the costs."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_run", description=__doc__)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--kafka-partitions", type=int, default=4)
    parser.add_argument("--records", type=int, default=50, help="of each kafka partition")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    name = f"fleet-{uuid4().hex[:8]}"
    topics = tuple(f"{name}.{n}" for n in range(given.topics))
    create_topics(stack.bootstrap_servers, topics, given.kafka_partitions)
    hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 2 * HOUR
    produce(stack.bootstrap_servers, topics, given.kafka_partitions, given.records, to_epoch_ms(hour))
    config = connector(name, topics[0]).model_copy(update={"topics": topics})
    archive = config.archive.model_copy(update={"start_hour": hour - timedelta(days=1)})
    config = config.model_copy(update={"archive": archive})
    with measured() as starting:
        session, _ = started_session()
    _print_row("what", "runs", "CPU s", "wall s")
    _print_row("---", "---", "---", "---")
    _print_usage("start of Spark", "", starting)
    with tempfile.TemporaryDirectory() as home:
        _write_instance(Path(home))
        with dg.DagsterInstance.from_config(home) as instance:
            _measure(config, session, instance)
    session.stop()


def _measure(config: ConnectorConfig, session: "SparkSession", instance: dg.DagsterInstance) -> None:
    with measured() as usage:
        definitions = build_definitions([config], autostart=False)
        definitions.get_repository_def()
    _print_usage("definitions", "", usage)
    with measured() as usage:
        cursor, asked = _tick(definitions, config.name, instance, None)
    _print_usage("tick", str(len(asked)), usage)
    run_ids = []
    with measured() as usage:
        for request in asked:
            job = definitions.resolve_job_def(str(request.job_name)).get_subset(
                asset_selection=frozenset(request.asset_selection or ()),
                asset_check_selection=frozenset(request.asset_check_keys or ()),
            )
            found = job.execute_in_process(
                instance=instance,
                tags={RETRIES_TAG: "0", **request.tags},
                resources={"spark": StartedSpark(session)},
                run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
            )
            run_ids.append(found.run_id)
    _print_usage("run", str(len(run_ids)), usage)
    with measured() as usage:
        _, again = _tick(definitions, config.name, instance, cursor)
    _print_usage("next tick", str(len(again)), usage)
    _print_storage(instance, run_ids)


def _tick(
    definitions: dg.Definitions, name: str, instance: dg.DagsterInstance, cursor: str | None
) -> tuple[str | None, list[dg.RunRequest]]:
    [sensor] = [s for s in definitions.get_repository_def().sensor_defs if s.name.startswith("lag__")]
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, definitions=definitions, sensor_name=sensor.name
    ) as context:
        found = sensor(context)
    if not isinstance(found, dg.SensorResult):
        raise TypeError(f"{name}: the sensor returned {type(found).__name__}")
    return found.cursor, list(found.run_requests or ())


def _write_instance(home: Path) -> None:
    given = load_yaml_from_path("dagster.yaml")
    if not isinstance(given, dict):
        raise TypeError("dagster.yaml holds no keys")
    kept = {key: given[key] for key in ("run_storage", "event_log_storage", "schedule_storage", "telemetry")}
    (home / "dagster.yaml").write_text(json.dumps(kept).replace(".dagster", str(home)))


def _print_storage(instance: dg.DagsterInstance, run_ids: list[str]) -> None:
    events = [event for run_id in run_ids for event in instance.all_logs(run_id)]
    size = sum(len(serialize_value(event)) for event in events)
    runs = [run for run in map(instance.get_run_by_id, run_ids) if run is not None]
    body = sum(len(serialize_value(run)) for run in runs)
    tags = sum(len(key) + len(value) for run in runs for key, value in run.tags.items())
    by_kind: dict[str, list[int]] = {}
    for event in events:
        kind = event.dagster_event.event_type_value if event.dagster_event else "log message"
        by_kind.setdefault(kind, []).append(len(serialize_value(event)))
    hours = len(by_kind["ASSET_MATERIALIZATION"])
    print(
        f"\n{hours} topic-hours: {len(events) / hours:.2f} event rows and {size / hours / 1000:.2f} kB of events each;"
    )
    print(f"{body / hours / 1000:.2f} kB of the run and {tags / hours:.0f} bytes of its tags each")
    for kind, sizes in sorted(by_kind.items(), key=lambda item: -sum(item[1])):
        print(f"- {kind}: {len(sizes)} of {sum(sizes) / len(sizes):,.0f} bytes")


def _print_usage(what: str, runs: str, usage: Usage) -> None:
    _print_row(what, runs, f"{usage.cpu_seconds:.1f}", f"{usage.seconds:.1f}")


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
