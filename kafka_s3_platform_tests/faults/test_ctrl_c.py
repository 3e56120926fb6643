"""Commands while the store takes connections and never answers: they end soon after Ctrl-C, and with their status."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafka_s3_platform_tests.cli.conftest import (
    KafkaS3,
    make_environment,
    write_connector,
)

COMMANDS = (("show",), ("files",), ("resolve",), ("vacuum", "--dry-run"), ("upkeep", "--dry-run"), ("health",))
MOST_SECONDS = 5.0
"""They take 2, and libraries gave up after 25. The rest is for a machine that is busy."""


@pytest.fixture
def silent_stores(kafka_s3_without_spark: KafkaS3) -> Iterator[list[socket.socket]]:
    """One for the connector of each command, so that it is seen which command has asked its store."""
    with ExitStack() as stack:
        stores = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in COMMANDS]
        write_connector(kafka_s3_without_spark, "t")
        folder = kafka_s3_without_spark.folder / "connectors"
        keys = json.loads((folder / "c.json").read_text())
        for n, store in enumerate(stores):
            store.settimeout(90)
            own = {"name": f"c{n}", "store.url": f"http://127.0.0.1:{store.getsockname()[1]}", "topics.dir": f"d{n}"}
            (folder / f"c{n}.json").write_text(json.dumps({**keys, **own}))
        (folder / "c.json").unlink()
        yield stores


def start(kafka_s3: KafkaS3, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_s3_platform.cli", *arguments],
        cwd=kafka_s3.folder,
        env=make_environment(kafka_s3.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background of a shell ignores it, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it takes no lock
    )


def test_ctrl_c_ends_each_command_at_once(kafka_s3_without_spark: KafkaS3, silent_stores: list[socket.socket]) -> None:
    with ExitStack() as stack:
        running = []
        for n, (name, *options) in enumerate(COMMANDS):
            command = stack.enter_context(start(kafka_s3_without_spark, name, f"c{n}", *options))
            stack.callback(command.kill)
            running.append(command)
        for store in silent_stores:
            stack.enter_context(store.accept()[0])
        for n, command in enumerate(running):
            began = time.monotonic()
            command.send_signal(signal.SIGINT)
            out, err = command.communicate(timeout=60)
            seconds = time.monotonic() - began
            name, *options = COMMANDS[n]
            said = (name, command.returncode, out, err)
            assert seconds < MOST_SECONDS, said
            assert command.returncode == 130, said
            assert f"interrupted; go on with: kafka-s3 {' '.join([name, f'c{n}', *options])}" in err, said
            assert "Traceback" not in err, said
