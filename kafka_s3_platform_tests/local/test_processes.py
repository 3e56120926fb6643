import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from kafka_s3_platform.core.errors import ConfigError, PermanentError
from kafka_s3_platform.core.folders import lock_folder, replace_file
from kafka_s3_platform.operate.local.processes import Daemon, is_port_free
from kafka_s3_platform_tests.conftest import free_ports, present
from kafka_s3_platform_tests.kafka.topics import until

OBEDIENT = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon("kafka", tmp_path, {"kafka_port": 20000}, stop_seconds=0.5)
    yield daemon
    if daemon.terminate():
        daemon.await_end()


def start(daemon: Daemon, script: str = OBEDIENT) -> psutil.Process:
    daemon.start([sys.executable, "-c", script, daemon.folder], {})
    return present(daemon.process())


def has_logged(daemon: Daemon, word: str) -> Callable[[], bool]:
    return lambda: word in daemon.log.read_text()


def test_a_started_process_is_found_again_and_stopped(daemon: Daemon) -> None:
    process = start(daemon)
    assert daemon.process() == process
    assert daemon.terminate()
    daemon.await_end()
    assert daemon.process() is None
    assert not daemon.terminate()


def test_a_process_is_no_child_of_the_one_that_started_it(daemon: Daemon) -> None:
    process = start(daemon)
    assert process.pid not in {child.pid for child in psutil.Process().children(recursive=True)}
    assert os.getsid(process.pid) != os.getsid(0)


def test_a_process_that_ignores_sigterm_is_killed(daemon: Daemon) -> None:
    start(daemon, STUBBORN)
    until(has_logged(daemon, "deaf"))
    daemon.terminate()
    daemon.await_end()
    assert daemon.process() is None


def test_a_process_that_was_killed_is_not_running(daemon: Daemon) -> None:
    process = start(daemon)
    process.send_signal(signal.SIGKILL)
    until(lambda: daemon.process() is None)


def test_another_process_with_the_recorded_pid_is_never_taken_for_ours(daemon: Daemon) -> None:
    stranger = psutil.Process()
    known = {"pid": stranger.pid, "create_time": stranger.create_time(), "ports": {}}
    (daemon.folder / "process.json").write_text(json.dumps(known))
    assert daemon.process() is None
    assert not daemon.terminate()


def test_another_users_process_with_the_recorded_pid_is_not_ours(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    start(daemon)
    monkeypatch.setattr(psutil.Process, "cmdline", refuse)
    assert daemon.process() is None
    monkeypatch.undo()
    assert daemon.process() is not None


def test_an_earlier_start_time_is_another_process(daemon: Daemon) -> None:
    start(daemon)
    file = daemon.folder / "process.json"
    original = file.read_text()
    known = json.loads(original)
    file.write_text(json.dumps({**known, "create_time": known["create_time"] - 3600}))
    assert daemon.process() is None
    file.write_text(original)


def test_a_process_that_ended_while_starting_is_reported_with_the_end_of_its_log(daemon: Daemon) -> None:
    daemon.start([sys.executable, "-c", "import sys; sys.exit('no disk')", daemon.folder], {})
    until(lambda: daemon.process() is None)
    with pytest.raises(PermanentError, match=r"kafka stopped while it was starting.*\n(.*\n)*no disk"):
        daemon.refuse_dead()


def test_the_log_of_the_start_before_is_kept(daemon: Daemon) -> None:
    for word in ("first", "second"):
        daemon.start([sys.executable, "-c", f"print('{word}')", daemon.folder], {})
        until(has_logged(daemon, word))
    assert (daemon.folder / "output.previous.log").read_text() == "first\n"


def test_other_ports_than_those_it_runs_with_are_refused(daemon: Daemon) -> None:
    start(daemon)
    daemon.refuse_other_ports()
    moved = Daemon(daemon.name, daemon.folder, {"kafka_port": 20001}, daemon.stop_seconds)
    with pytest.raises(ConfigError, match=r"runs with KAFKA_S3_LOCAL_KAFKA_PORT=20000, not 20001"):
        moved.refuse_other_ports()


def test_a_taken_port_is_named_by_number_and_variable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_port_free(port)
        daemon = Daemon("s3", tmp_path, {"s3_port": port, "s3_grpc_port": free_ports(1)[0]}, 1)
        assert daemon.find_taken_ports() == [f"s3 needs port {port} (KAFKA_S3_LOCAL_S3_PORT)"]
    assert is_port_free(port)


def test_a_port_taken_on_all_addresses_is_taken() -> None:
    with socket.create_server(("", 0)) as taken:
        assert not is_port_free(taken.getsockname()[1])


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    order = tmp_path / "order"
    child = (
        "import sys, pathlib; from kafka_s3_platform.core.folders import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1])): print('child', pathlib.Path(sys.argv[1], 'order').read_text())"
    )
    other = Daemon("other", tmp_path, {}, 1)
    with lock_folder(tmp_path):
        other.start([sys.executable, "-c", child, tmp_path], {"PYTHONPATH": os.pathsep.join(sys.path)})
        time.sleep(0.5)
        order.write_text("after its parent")
    until(has_logged(other, "child after its parent"))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text in ("old", "new"):
        replace_file(file, text)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_process_has_written_of_a_file_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_text("a longer text than the new one")
    replace_file(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "new")]


def test_of_several_writers_of_a_file_each_writes_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    texts = [str(n) * 100_000 for n in range(8)]
    with ThreadPoolExecutor(len(texts)) as pool:
        for _ in range(20):
            list(pool.map(lambda text: replace_file(file, text), texts))
            assert file.read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
