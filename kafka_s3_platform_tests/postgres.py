"""A Postgres server for Dagster's storage, and what `deploy/dagster.yaml` needs to use it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as db

PROGRAMS = ("initdb", "postgres", "setpriv")
USER, PASSWORD = "dagster", "p@ss/w:rd %1"
"""A password with everything that has a meaning in a URL."""

UNSAFE_BUT_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=32MB")

_REMOVE = """
import shutil, sys, time
sys.stdin.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Postgres:
    """A running server. Its user may create databases."""

    port: int

    @contextmanager
    def connect(self, database: str) -> Iterator[db.Connection]:
        """Open a connection that commits each statement."""
        url = db.URL.create("postgresql+psycopg2", USER, PASSWORD, "127.0.0.1", self.port, database)
        engine = db.create_engine(url, poolclass=db.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield connection

    def create_database(self, template: str = "template1") -> str:
        """Return the name of a new database with the tables of `template`."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, whoever is connected to it."""
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def environment(self, database: str) -> Mapping[str, str]:
        """The variables that `deploy/dagster.yaml` names."""
        return {
            "DAGSTER_POSTGRES_HOST": "127.0.0.1",
            "DAGSTER_POSTGRES_PORT": str(self.port),
            "DAGSTER_POSTGRES_DB": database,
            "DAGSTER_POSTGRES_USER": USER,
            "DAGSTER_POSTGRES_PASSWORD": PASSWORD,
            # of no use but to runs that are executed
            "DAGSTER_COMPUTE_LOGS_BUCKET": "dagster",
        }

    def _execute(self, statement: str) -> None:
        with self.connect("postgres") as connection:
            connection.execute(db.text(statement))


@contextmanager
def run_postgres(port: int) -> Iterator[Postgres]:
    """Start a server on 127.0.0.1. It ends with this process, also if that is killed, and its folder goes."""
    # Not pytest's folder: that is of root alone, and Postgres refuses to be root.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    remover = subprocess.Popen(
        [sys.executable, "-c", _REMOVE, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        with _started(folder, port) as process:
            found = Postgres(port)
            _await_answer(found, process, folder / "log")
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        remover.kill()
        remover.communicate()


@contextmanager
def _started(folder: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    as_user = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    if os.geteuid() == 0:
        shutil.chown(secret, "postgres")
    made = ["--no-sync", "--auth", "scram-sha-256", "--username", USER, "--pwfile", str(secret), "--locale", "C.UTF-8"]
    subprocess.run([*as_user, "initdb", *made, str(data)], cwd="/", check=True, capture_output=True)
    options = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *UNSAFE_BUT_QUICK]
    command = ["postgres", "-D", str(data), *(text for option in options for text in ("-c", option))]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*as_user, *command], cwd="/", stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # ends its connections too
        process.wait(60)


def _await_answer(server: Postgres, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with server.connect("postgres"):
                return
        except db.exc.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
