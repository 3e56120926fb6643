"""`kafka-s3 init`: the connector file of a topic on the embedded stack."""

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.folder import WORKER_FILE, find_connectors_folder
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.operate.local.sample import produce_sample
from kafka_s3_platform.operate.local.settings import HOST, StackSettings
from kafka_s3_platform.operate.local.stack import read_stack_status

SAMPLE_HOURS = 2
_LOCAL = environment.LOCAL_PREFIX
_WORKER = f"""\
# The cluster: here the embedded stack (`kafka-s3 up`), whatever port it has.
bootstrap.servers={HOST}:${{env:{_LOCAL}KAFKA_PORT}}
"""


@click.command
@click.argument("name")
@click.option("--topic", help="The topic to archive. It is created if it is not there. Default: NAME.")
@click.option("--kafka-partitions", type=click.IntRange(1), default=1, show_default=True, help="Of a new topic.")
@click.option(
    "--sample",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help=f"Send so many records of JSON, with times of the last {SAMPLE_HOURS} hours.",
)
@json_option
def init(name: str, topic: str | None, kafka_partitions: int, sample: int, as_json: bool) -> None:
    """Write the connector file NAME.json for a topic of the embedded stack. Creates the topic.

    The stack has to be up (kafka-s3 up). The file goes into the folder of connector files, ./connectors or
    KAFKA_S3_CONNECTORS, with a worker.properties if there is none. Prints the commands to go on with.
    """
    settings = StackSettings.from_environment()
    if not read_stack_status(settings).healthy:
        raise ConfigError("the embedded stack is not up: run `kafka-s3 up`, then this command again")
    topic = topic or name
    path = write_connector_file(name, topic, settings)
    with ClusterAdmin(load_connector(path, path.parent / WORKER_FILE, os.environ).kafka) as admin:
        is_new = not admin.topic_exists(topic)
        if is_new:
            admin.create_topic(topic, kafka_partitions)
    if sample:
        now = datetime.now(timezone.utc)
        produce_sample(settings, topic, sample, now - timedelta(hours=SAMPLE_HOURS), now)
    value = {"file": str(path), "topic": topic, "created_topic": is_new, "sample": sample}
    print_result(value, as_json, _list_next_steps(path, name, topic, settings, is_empty=is_new and not sample))


def write_connector_file(
    name: str, topic: str, settings: StackSettings, more_keys: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Write the connector file, and a worker.properties if there is none. Leave no file that does not load.

    Raises:
        ConfigError: there is such a file, its name or topic cannot be used, or worker.properties names another cluster.
    """
    folder = find_connectors_folder(os.environ)
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    worker = folder / WORKER_FILE
    if not worker.exists():
        worker.write_text(_WORKER)
    keys = {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": topic,
        "s3.bucket.name": f"${{env:{_LOCAL}BUCKET}}",
        "store.url": f"http://{HOST}:${{env:{_LOCAL}S3_PORT}}",
        "aws.access.key.id": f"${{env:{_LOCAL}AWS_ACCESS_KEY_ID}}",
        "aws.secret.access.key": f"${{env:{_LOCAL}AWS_SECRET_ACCESS_KEY}}",
        **more_keys,
    }
    try:
        with path.open("x") as file:
            file.write(json.dumps({"name": name, "config": keys}, indent=2) + "\n")
    except FileExistsError:
        raise ConfigError(f"{path} is there already: choose another NAME, or edit that file") from None
    except OSError as err:
        raise ConfigError(f"{path} cannot be written: {err.strerror}") from err
    try:
        cluster = load_connector(path, worker, os.environ).kafka.bootstrap_servers
        if cluster != settings.bootstrap_servers:
            raise ConfigError(
                f"{worker} names the cluster {cluster}, not that of the stack, {settings.bootstrap_servers}: name"
                f" another folder in {environment.CONNECTORS}"
            )
    except ConfigError:
        path.unlink()
        raise
    return path


def _list_next_steps(path: Path, name: str, topic: str, settings: StackSettings, *, is_empty: bool) -> list[str]:
    """Return the lines about the next steps."""
    commands = [
        f"kafka-s3 archive {name} --until-now",
        f"kafka-s3 show {name}",
        f"kafka-s3 restore {name} --topic {topic} --to-topic {topic}-copy --create-topic",
    ]
    first = f"send records to topic {topic} at {settings.bootstrap_servers}, then go on with:"
    return [f"wrote {path}", first if is_empty else "go on with:", *(f"  {command}" for command in commands)]
