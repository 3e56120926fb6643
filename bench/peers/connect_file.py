"""Kafka Connect with the sink that Kafka itself ships: lines to the file `lines`, neither compressed nor sent to S3.

`python connect_file.py SERVERS TOPIC NAME FOLDER JAVA CLASSPATH`. A worker runs until it is stopped, so this process
stops it when its group has committed all of the topic.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

LIMIT_SECONDS = 300.0


def main() -> None:
    """Run a worker until all is committed."""
    servers, topic, name, folder, java, classpath = sys.argv[1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    worker = {
        "bootstrap.servers": servers,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
        "consumer.auto.offset.reset": "earliest",
        "consumer.max.poll.records": "20000",
        "consumer.fetch.max.bytes": "52428800",
        "consumer.max.partition.fetch.bytes": "4194304",
    }
    sink = {
        "name": name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "file": f"{folder}/lines",
    }
    files = [write_properties(Path(folder, name), keys) for name, keys in (("worker", worker), ("sink", sink))]
    command = [java, "-Xmx2g", "-cp", classpath, "org.apache.kafka.connect.cli.ConnectStandalone", *files]
    connect = subprocess.Popen(command)
    try:
        await_commits(servers, topic, f"connect-{name}", connect)
    finally:
        connect.terminate()
        connect.wait()


def write_properties(path: Path, keys: Mapping[str, str]) -> str:
    """Write the file and return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def await_commits(servers: str, topic: str, group: str, connect: "subprocess.Popen[bytes]") -> None:
    """Wait until the group has committed the ends of all kafka partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    asked = [TopicPartition(topic, p) for p in consumer.list_topics(topic, timeout=30).topics[topic].partitions]
    ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in asked}
    begun = time.monotonic()
    while any(found.offset < ends[found.partition] for found in consumer.committed(asked, timeout=30)):
        if connect.poll() is not None:
            raise RuntimeError(f"the worker ended with {connect.returncode}")
        if time.monotonic() - begun > LIMIT_SECONDS:
            raise RuntimeError(f"not all was committed within {LIMIT_SECONDS:g} s")
        time.sleep(0.2)
    consumer.close()


if __name__ == "__main__":
    main()
