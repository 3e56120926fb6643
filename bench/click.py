"""What a materialization costs that is asked for in Dagster's UI, from the click to the end of the run.

`python -m bench.click` needs the embedded stack (`make up`). It starts `dagster dev`. CPU seconds are those of all its
processes, of the run, and of a warm Spark with its processes.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import psutil

from bench.measure import measured
from bench.start import WARM, WITHOUT_WARM_SPARK, fill_topic, find_servers, write_connector
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.reading.dataset import find_objects
from kafka_s3_platform_tests.dagster_ui import ENDED, LAUNCH_RUN, DagsterUI, run_dagster_dev

VARIANTS = {"a session of its own": WITHOUT_WARM_SPARK, WARM: {"KAFKA_S3_WARM_SPARK": "5"}}

LOOK = "query Look($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


def main() -> None:
    """Print one JSON object a click. The first click of each variant finds caches empty, and no warm Spark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1000)
    asked = parser.parse_args()
    topic = fill_topic(asked.records)
    os.environ.update(StackSettings.from_environment().environment())
    repository = Path.cwd()
    for name, variables in VARIANTS.items():
        os.chdir(repository)
        with tempfile.TemporaryDirectory() as folder:
            click(Path(folder), topic, asked.records, asked.rounds + 1, name, variables)


def click(home: Path, topic: str, records: int, clicks: int, name: str, variables: Mapping[str, str]) -> None:
    """Archive the topic's hour by as many connectors, each to where nobody has archived it yet."""
    connectors = [f"click-{uuid4().hex[:8]}" for _ in range(clicks)]
    for connector in connectors:
        write_connector(home / "connectors", connector, topic)
    for file in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(file, home)
    os.environ.update({**variables, "DAGSTER_HOME": str(home), "XDG_RUNTIME_DIR": str(home)})
    os.chdir(home)
    with run_dagster_dev(home / "log") as ui:
        for number, connector in enumerate(connectors):
            with measured(every=0.05, others=find_servers()) as usage:
                materialize(ui, connector, topic)
            found = {"seconds": round(usage.seconds, 1), "cpu_seconds": round(usage.cpu_seconds, 1)}
            archived = sum(segment.record_count for segment in find_objects(connector, None, EVERY_SEGMENT).segments)
            if archived != records:
                raise RuntimeError(f"{archived:,} of {records:,} records of {topic} were archived")
            print(json.dumps({"click": number, "with": name, **found}), flush=True)
        for pid in find_servers():
            psutil.Process(pid).terminate()


def materialize(ui: DagsterUI, connector: str, topic: str) -> None:
    """Ask for the topic's first hour, and wait until its run has ended well."""
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "kafka_s3_platform",
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": [connector, "hourly", topic]}],
    }
    tags = [{"key": "dagster/partition", "value": "2026-01-01-00:00"}]
    params = {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": tags}}
    launched = ui.query(LAUNCH_RUN, {"params": params})["launchRun"]
    if launched["__typename"] != "LaunchRunSuccess":
        raise RuntimeError(f"{topic} was not launched for {connector}: {launched}")
    run_id = launched["run"]["runId"]
    while (status := ui.query(LOOK, {"id": run_id})["runOrError"]["status"]) not in ENDED:
        time.sleep(0.5)
    if status != "SUCCESS":
        raise RuntimeError(f"run {run_id} of {connector} ended with {status}")


if __name__ == "__main__":
    main()
