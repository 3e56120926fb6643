"""`python -m bench.definitions`: what a code server pays to load many topics, and the snapshot that it sends.

Everything happens in this process, which asks nobody: no broker and no store is needed.
"""

import argparse
import json
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEYS = {"connector.class": "S3SinkConnector", "s3.bucket.name": "bucket"}


def main() -> None:
    """Write connector files, load them as a code server does, and print CPU seconds and bytes."""
    parser = argparse.ArgumentParser(prog="python -m bench.definitions", description=__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--connectors", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _write_connectors(Path(folder), given.connectors, given.topics)
        os.environ["KAFKA_S3_CONNECTORS"] = folder
        steps, size = _load()
    steps["all"] = _read_cpu_seconds()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    names = " | ".join(f"{name}, CPU s" for name in steps)
    seconds = " | ".join(f"{spent:.2f}" for spent in steps.values())
    print(f"| topics | connectors | {names} | snapshot, MB | peak MiB |\n|{'---|' * (len(steps) + 4)}")
    print(f"| {given.topics} | {given.connectors} | {seconds} | {size / 1e6:.1f} | {peak:.0f} |")


def _load() -> tuple[dict[str, float], int]:
    steps: dict[str, float] = {}
    with _timed(steps, "imports"):
        from dagster._core.remote_representation.external_data import RepositorySnap
        from dagster._serdes import serialize_value

        from kafka_s3_platform.definitions import defs
    with _timed(steps, "definitions"):
        found = defs()
    with _timed(steps, "repository"):
        repository = found.get_repository_def()
        repository.get_all_jobs()
    with _timed(steps, "snapshot"):
        size = len(serialize_value(RepositorySnap.from_def(repository)))
    return steps, size


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    before = _read_cpu_seconds()
    yield
    steps[name] = _read_cpu_seconds() - before


def _read_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _write_connectors(folder: Path, connectors: int, topics: int) -> None:
    (folder / "worker.properties").write_text("bootstrap.servers=broker.invalid:9092\n")
    for at in range(connectors):
        names = ",".join(f"topic-{n}" for n in range(at, topics, connectors))
        config = {**KEYS, "topics": names, "topics.dir": f"c{at}"}
        (folder / f"c{at}.json").write_text(json.dumps({"name": f"c{at}", "config": config}))


if __name__ == "__main__":
    main()
