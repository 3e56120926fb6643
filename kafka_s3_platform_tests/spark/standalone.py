"""A Spark standalone cluster on this machine, whose processes share as little as those of several machines do.

Each worker has an address, a host name, a working directory, a home and a /tmp of its own: it sees no file that the
driver or another worker makes there. It has the libraries of this Python, and the package comes to it with each run.
"""

import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from multiprocessing import parent_process
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlencode

import psutil

from kafka_s3_platform_tests.conftest import QUICK_JAVA, REPOSITORY, free_ports
from kafka_s3_platform_tests.forked import FORKED
from kafka_s3_platform_tests.kafka.topics import until

T = TypeVar("T")

MASTER_ADDRESS = "127.0.0.1"
NO_OBJECTS = b"no stream of Java's objects"
# The shell's process becomes Java's, which ends with the process that started it.
APART = 'mount --bind "$0" /tmp && hostname "$1" && shift && cd /tmp && exec setpriv --pdeathsig KILL "$@"'


@dataclass(frozen=True)
class Worker:
    """A worker, and whatever its executors run."""

    address: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """SIGKILL all of its processes, as when its machine loses power."""
        self._do_with_each(psutil.Process.kill)
        self.process.wait()

    def kill_alone(self) -> None:
        """SIGKILL the worker itself. Its executors find out, and end."""
        self.process.kill()
        self.process.wait()

    def suspend(self) -> None:
        """SIGSTOP all of its processes, as when its machine is cut off from the others."""
        self._do_with_each(psutil.Process.suspend)

    def resume(self) -> None:
        self._do_with_each(psutil.Process.resume)

    def has_tasks(self) -> bool:
        """Whether Python processes are there, which executors start with their first task."""
        return any(name.startswith("python") for name in self._do_with_each(psutil.Process.name))

    def _do_with_each(self, function: Callable[[psutil.Process], T]) -> list[T]:
        """Call the function with each process. One of them may end meanwhile."""
        root = psutil.Process(self.process.pid)
        results: list[T] = []
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                results.append(function(process))
        return results


@dataclass
class StandaloneCluster:
    """Master and workers of one core each. They ask for a secret, as docs/spark-cluster.md has it."""

    folder: Path
    workers: list[Worker] = field(default_factory=list)
    master_port: int = 0
    page_port: int = 0
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://{MASTER_ADDRESS}:{self.master_port}"

    @property
    def _shared(self) -> Path:
        return self.folder / "cluster.properties"

    def start_master(self) -> None:
        self.master_port, self.page_port = free_ports(2)
        self._shared.write_text(
            f"spark.authenticate=true\nspark.authenticate.secret={token_hex()}\nspark.master.rest.enabled=false\n"
        )
        ports = ["--port", str(self.master_port), "--webui-port", str(self.page_port)]
        self._processes.append(
            self._start("master", MASTER_ADDRESS, ["master.Master", "--host", MASTER_ADDRESS, *ports])
        )
        until(lambda: self._read_addresses() is not None)

    def add_worker(self) -> Worker:
        """Start a worker, and wait until the master knows it."""
        number = len(self.workers) + 1
        address = f"127.0.0.{number + 1}"
        own = ["--host", address, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work"]
        process = self._start(f"worker-{number}", address, ["worker.Worker", *own, self.master])
        self.workers.append(Worker(address, process))
        until(lambda: process.poll() is not None or address in (self._read_addresses() or ()))
        assert process.poll() is None, (self.folder / f"worker-{number}.log").read_text()
        return self.workers[-1]

    def write_properties(self, others: Mapping[str, str] | None = None) -> Path:
        """A file for a driver, which KAFKA_S3_SPARK_CONF is to name."""
        own = {
            "spark.master": self.master,
            "spark.driver.host": MASTER_ADDRESS,
            "spark.driver.bindAddress": MASTER_ADDRESS,
            "spark.driver.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
            "spark.archives": f"{pack_environment(self.folder)}#kafka-s3",
            "spark.pyspark.python": "./kafka-s3/bin/python",
            "spark.python.daemon.module": "kafka_s3_platform.python_daemon",
        } | dict(others or {})
        path = self.folder / f"driver-{token_hex(4)}.properties"
        path.write_text(self._shared.read_text() + "".join(f"{name}={value}\n" for name, value in own.items()))
        return path

    def end_application(self) -> None:
        """End the session of the one driver, as an operator does by the form on the master's page."""
        form = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]+)"', self._ask("GET", "/").decode())
        self._ask("POST", "/app/kill/", urlencode(form))

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    def stop(self) -> None:
        self.stop_workers()
        for process in self._processes:
            process.kill()
            process.wait()

    def _read_state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._ask("GET", "/json/"))
        return state

    def _ask(self, method: str, path: str, form: str | None = None) -> bytes:
        headers = {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
        with closing(http.client.HTTPConnection(MASTER_ADDRESS, self.page_port, timeout=10)) as page:
            page.request(method, path, form, headers)
            answer = page.getresponse()
            body = answer.read()
        # It listens a moment before it has all of its pages, and sends on who has asked it to end something.
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ConnectionError(f"the master's page {path} answers {answer.status}")
        return body

    def _read_addresses(self) -> set[str] | None:
        """Addresses of workers that the master takes for alive, None while it does not answer."""
        try:
            workers = self._read_state()["workers"]
        except OSError:
            return None
        return {worker["host"] for worker in workers if worker["state"] == "ALIVE"}

    def _start(self, name: str, address: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
        own = self.folder / name
        own.mkdir()
        shutil.copy(self._shared, own)
        quick = " ".join(QUICK_JAVA)
        binaries = Path(sys.executable).parent
        env = {
            "PATH": os.pathsep.join([str(binaries), os.environ["PATH"]]),
            "HOME": "/tmp",
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_DIRS": "/tmp/local",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick,
            "SPARK_LAUNCHER_OPTS": quick,
            "PYTHONDONTWRITEBYTECODE": "1",
        } | {variable: os.environ[variable] for variable in ("JAVA_HOME",) if variable in os.environ}
        spark_class = [str(binaries / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}"]
        command = [*spark_class, "--properties-file", "/tmp/cluster.properties", *arguments[1:]]
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "--uts", "sh", "-c", APART, str(own), name]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*unshare, *command], env=env, stdout=log, stderr=log)


def pack_environment(folder: Path) -> Path:
    """An environment with the package, packed as docs/spark-cluster.md does it. Its libraries are this Python's."""
    packed = folder / "kafka-s3.tar.gz"
    if not packed.exists():
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        [libraries] = environment.glob("lib/python*/site-packages")
        shutil.copytree(REPOSITORY / "kafka_s3_platform", libraries / "kafka_s3_platform")
        (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"))
        subprocess.run(["tar", "--format=posix", "-C", environment, "-czf", packed, "."], check=True)
    return packed


@contextmanager
def opened_driver(properties: Path) -> Iterator[Executor]:
    """A process that calls functions, one after the other. The first one that needs Spark starts it."""
    environment = {**os.environ, "KAFKA_S3_SPARK_CONF": str(properties)}
    with ProcessPoolExecutor(1, FORKED, _enter, (environment,)) as driver:
        yield driver


def _enter(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def answer(port: int, payload: bytes) -> str:
    """What the driver says to a call of Spark's network protocol, as one without a secret makes it."""
    endpoint = b"endpoint-verifier"
    # Neither sender nor receiver has an address.
    body = b"\0\0" + struct.pack(">H", len(endpoint)) + endpoint + payload
    rpc_request, request_id = 3, 1
    head = struct.pack(">BqI", rpc_request, request_id, len(body))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(struct.pack(">q", 8 + len(head) + len(body)) + head + body)
        size = struct.unpack(">q", peer.recv(8, socket.MSG_WAITALL))[0]
        return peer.recv(size - 8, socket.MSG_WAITALL).decode(errors="replace")
