"""The units of deploy/systemd/, read by systemd itself."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafka_s3_platform_tests.deploy.image_steps import REPOSITORY
from kafka_s3_platform_tests.tools import find_tool, leave_out

FOLDER = REPOSITORY / "deploy" / "systemd"
UNITS = sorted(path for path in FOLDER.iterdir() if path.is_file())
COMMON = FOLDER / "kafka-s3-.service.d" / "common.conf"
OURS = ("dagster", "dagster-daemon", "kafka-s3", "python")


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    analyze = find_tool("systemd-analyze")
    units = tmp_path / "etc" / "systemd" / "system"
    programs = tmp_path / "opt" / "kafka-s3" / "venv" / "bin"
    programs.mkdir(parents=True)
    shutil.copytree(FOLDER, units)
    for name in OURS:
        (programs / name).touch(mode=0o755)
    # Units of the system itself, which ours refer to.
    for name in ("sysinit", "basic", "shutdown", "network-online", "multi-user"):
        (units / f"{name}.target").write_text("[Unit]\n")
    found = subprocess.run(
        [analyze, "verify", f"--root={tmp_path}", "--man=no", *(unit.name for unit in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("unit", [u for u in UNITS if u.suffix == ".service"], ids=lambda unit: unit.name)
def test_a_service_is_wanted_by_the_target_and_names_no_secret(unit: Path) -> None:
    assert unit.name in (FOLDER / "kafka-s3.target").read_text()
    assert unit.name.startswith(COMMON.parent.name.removesuffix(".service.d")), "what all have in common holds for it"
    assert not any("PASSWORD" in line or "SECRET" in line for line in unit.read_text().splitlines())


def test_all_services_stop_with_the_target_and_have_no_rights_of_root() -> None:
    lines = COMMON.read_text().splitlines()
    for wanted in ("PartOf=kafka-s3.target", "User=kafka-s3", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert wanted in lines


def test_nothing_listens_for_others() -> None:
    for unit in UNITS:
        for line in unit.read_text().splitlines():
            if line.startswith("ExecStart=") and "--host" in line:
                assert "--host 127.0.0.1 " in line


OWNER, NOBODY = 10001, 65534


def read_unit(name: str) -> dict[str, str]:
    lines = [*COMMON.read_text().splitlines(), *(FOLDER / name).read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def list_addresses(processes: list[psutil.Process]) -> set[str]:
    """Return the ports and the sockets with a name that processes listen on."""
    found = [c for process in processes for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    # its types know no sockets of files
    named = [str(c.laddr) for process in processes for c in process.net_connections("unix")]
    return {f"{c.laddr.ip}:{c.laddr.port}" for c in found} | {path for path in named if path.startswith("/")}


@pytest.fixture
def code_location() -> Iterator[tuple[psutil.Process, Path]]:
    """The process of the unit's own command, with its umask and user, and the folder that systemd would make for it."""
    if os.geteuid() != 0:
        leave_out("root, which starts a server as another user,")
    unit = read_unit("kafka-s3-code-location.service")
    # pytest's folder is for root alone: no user would get through it, whatever the mode of ours
    home = Path(f"/tmp/kafka-s3-unit-{os.getpid()}")
    folder = home / "run"
    try:
        for path in (home, home / "connectors", folder):
            path.mkdir()
            os.chown(path, OWNER, OWNER)
            path.chmod(0o755)
        folder.chmod(int(unit.get("RuntimeDirectoryMode", "0755"), 8))
        command = unit["ExecStart"].replace("/run/kafka-s3", str(folder))
        env = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(home),
            "DAGSTER_HOME": str(home),
            "NUMBA_CACHE_DIR": str(home),
            "KAFKA_S3_CONNECTORS": str(home / "connectors"),
        }
        # The Python of a developer may lie in a home of root's, which this lets the server read.
        rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search", "--pdeathsig", "KILL"]
        with (home / "log").open("wb") as log:
            started = subprocess.Popen(
                [
                    *("setpriv", "--reuid", str(OWNER), "--regid", str(OWNER), "--clear-groups", *rights),
                    *(sys.executable, "-m", "dagster", *shlex.split(command)[1:]),
                ],
                cwd=home, env=env, stdout=log, stderr=log, umask=int(unit["UMask"], 8),
            )  # fmt: skip
        server = psutil.Process(started.pid)
        deadline = time.monotonic() + 60
        while not list_addresses([server]):
            assert started.poll() is None, (home / "log").read_text()
            assert time.monotonic() < deadline, (home / "log").read_text()
            time.sleep(0.1)
        yield server, folder
        for process in [*server.children(recursive=True), server]:
            process.kill()
        started.wait(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def try_as(user: int, path: str) -> str:
    """Connect to a socket as a user who has no other right. Return the name of the error, or that it took us."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
            os.write(writing, b"connected")
        except OSError as err:
            os.write(writing, type(err).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def test_no_other_user_reaches_the_code_location_which_runs_code_for_whoever_does(
    code_location: tuple[psutil.Process, Path],
) -> None:
    server, folder = code_location
    processes = [server, *server.children(recursive=True)]
    assert len(processes) > 1, "the server behind the server is looked at too"
    sockets = list_addresses(processes)
    assert str(folder / "code-location.sock") in sockets
    assert all(address.startswith("/") for address in sockets), "a port is for every user"
    assert {path: try_as(OWNER, path) for path in sockets} == dict.fromkeys(sockets, "connected")
    assert {path: try_as(NOBODY, path) for path in sockets} == dict.fromkeys(sockets, "PermissionError")
    (folder / "code-location.sock").chmod(0o777)
    assert try_as(NOBODY, str(folder / "code-location.sock")) == "PermissionError", "the folder alone refuses"
