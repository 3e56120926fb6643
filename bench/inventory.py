"""`python -m bench.inventory`: ticks of the folder sensor of a source connector over a bucket of very many objects.

Objects are empty, of four topics, in the hourly folders of a year. Filling takes long, so `--first` goes on with a
bucket that an earlier call has begun, and `--fill-only` leaves out the ticks. Requests are those that boto3 sends, as
the process that evaluates the sensor sees them; its CPU seconds are without the store's.
"""

import argparse
import http.client
import json
import logging
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import dagster as dg
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench.archive import connector
from kafka_s3_platform.connect.sources import inventory
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.store.client import get_s3_client
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.operate.local.settings import HOST, StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

NAME = "inventory"
TOPICS = 4
HOURS = 8_760
PROCESSES = 2
THREADS = 8


def main() -> None:
    """Fill the bucket, then evaluate ticks until all was counted, some with nothing new, and one with a new folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.inventory", description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="how many of them are there from an earlier call")
    parser.add_argument("--fill-only", action="store_true")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    begun = time.monotonic()
    size = (given.objects - given.first) // (PROCESSES * 4) + 1
    parts = [range(n, min(n + size, given.objects)) for n in range(given.first, given.objects, size)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for _ in pool.map(_put, parts):
            pass
    print(f"{given.objects - given.first:,} objects were put in {time.monotonic() - begun:.0f} s", flush=True)
    if not given.fill_only:
        _evaluate(given.objects)


def _name_key(number: int, end: datetime) -> str:
    """Name the object of that number: topic after topic, and of each topic hour after hour, back from `end`."""
    topic = f"topic-{number % TOPICS}"
    place = number // TOPICS
    hour = end - (place % HOURS) * timedelta(hours=1)
    return f"bench/{NAME}/{topic}/{hour:year=%Y/month=%m/day=%d/hour=%H}/{topic}+0+{place // HOURS:010d}.json"


def _put(numbers: range) -> None:
    stack = StackSettings.from_environment()
    signer = S3SigV4Auth(Credentials(stack.aws_access_key_id, stack.aws_secret_access_key), "s3", "us-east-1")
    # by the day, so that a later call finds the same hours
    end = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    held = threading.local()

    def put(number: int) -> None:
        path = f"/{stack.bucket}/{_name_key(number, end)}".replace("=", "%3D").replace("+", "%2B")
        request = AWSRequest("PUT", f"{stack.s3_endpoint}{path}", data=b"", headers={"Host": f"{HOST}:{stack.s3_port}"})
        signer.add_auth(request)
        if not hasattr(held, "connection"):
            held.connection = http.client.HTTPConnection(HOST, stack.s3_port)
        held.connection.request("PUT", path, b"", dict(request.headers))
        answer = held.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"PUT of {path}: {answer.status} {text[:200]!r}")

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(put, numbers):
            pass


def _evaluate(objects: int) -> None:
    logging.disable(logging.WARNING)
    made = connector(NAME, "none")
    layout = made.layout.model_copy(update={"format": "json", "partitioner": "Hourly"})
    config = made.model_copy(update={"topics": (), "layout": layout, "source": SourceSettings()})
    sent: list[str] = []
    get_s3_client(config.store).meta.events.register("before-send.s3", lambda request, **_: sent.append(request.url))
    print("| tick | requests | CPU s | wall s | MB | bytes of cursor | objects told |\n|---|---|---|---|---|---|---|")
    cursor: str | None = None
    instance = dg.DagsterInstance.ephemeral()
    is_counted = threading.Event()
    for what in _list_ticks(config, objects, is_counted):
        sent.clear()
        begun, used = time.monotonic(), time.process_time()
        definitions = build_definitions([config], autostart=False)
        sensor = definitions.get_repository_def().get_sensor_def(f"folders__{NAME}")
        with dg.build_sensor_context(instance, cursor) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        cursor = result.cursor
        seconds, cpu = time.monotonic() - begun, time.process_time() - used
        counts = [event.metadata["objects"].value for event in result.asset_events or ()]
        told = sum(count for count in counts if isinstance(count, int))
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {what} | {len(sent)} | {cpu:.1f} | {seconds:.1f} | {megabytes:.0f} | {len(cursor or '')} | {told:,} |",
            flush=True,
        )
        state = json.loads(cursor or "{}")["/objects"]
        if state["count"] is None and what.startswith("first"):
            is_counted.set()


def _list_ticks(config: ConnectorConfig, objects: int, is_counted: threading.Event) -> Iterator[str]:
    """Name one tick after the other, and do what has to be done before it."""
    while not is_counted.is_set():
        yield "first count"
    for _ in range(2):
        yield "nothing new"
    _put_one(config, objects)
    yield "a new folder of one topic"
    every, inventory.COUNT_EVERY = inventory.COUNT_EVERY, timedelta()
    yield "nothing new, and the daily count goes on"
    inventory.COUNT_EVERY = every
    yield "nothing new, and the daily count goes on"


def _put_one(config: ConnectorConfig, objects: int) -> None:
    end = datetime.now(timezone.utc) + timedelta(hours=24)
    key = _name_key(objects * TOPICS * HOURS, end)
    get_s3_client(config.store).put_object(Bucket=config.store.bucket, Key=key, Body=b"")


if __name__ == "__main__":
    main()
