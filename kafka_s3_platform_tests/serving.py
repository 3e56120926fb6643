"""Runs `kafka-s3 serve`, and asks it as Prometheus and people do."""

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, str], float]


class Server:
    """One running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, host: str | None = None) -> tuple[int, str, str]:
        """Status, content type and text of an answer."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", path, headers={} if host is None else {"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.headers["content-type"], answer.read().decode(errors="replace")
        finally:
            connection.close()

    def samples(self) -> Samples:
        """(name, its labels but connector's) -> value, of connector `c` and of the server."""
        families = text_string_to_metric_families(self.get("/metrics")[2])
        return {
            (sample.name, " ".join(v for k, v in sample.labels.items() if k != "connector")): sample.value
            for family in families
            for sample in family.samples
            if sample.labels.get("connector", "c") == "c"
        }

    def wait(self, is_so: Callable[[Samples], bool]) -> Samples:
        """The metrics when they are so."""
        deadline = time.monotonic() + 60
        while not is_so(found := self.samples()):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found


@contextmanager
def serving(folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[Server]:
    """`kafka-s3 serve` in a folder, on a free port. It looks every second."""
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "serve", "--port", "0", "--interval", "1", *options]
    env = {"KAFKA_S3_PLUGINS": os.environ["KAFKA_S3_PLUGINS"], **environment}
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = ""
            # on a busy machine it says first for how long it has been at work
            while (found := re.search(r"^(http://127\.0\.0\.1:\d+)/\S*\n", told, re.MULTILINE)) is None:
                line = process.stderr.readline()
                assert line, told
                told += line
            yield Server(found[1])
        finally:
            process.kill()
