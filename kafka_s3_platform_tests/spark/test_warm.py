"""A warm Spark: who may use it, what becomes of tasks when either side goes, and when it ends."""

import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.config.environment import SPARK_CONF
from kafka_s3_platform.core.errors import SparkUnavailableError, TransientError
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.operate.defs.warm_spark import VARIABLE, choose_runner, start_warm_spark
from kafka_s3_platform.operate.warm_spark import client
from kafka_s3_platform.operate.warm_spark.client import (
    NoWarmSparkError,
    WarmRunner,
    WarmSpark,
    find_warm_spark,
    greet_server,
)
from kafka_s3_platform.operate.warm_spark.wire import Peer, PeerGoneError, find_folder, identify_process
from kafka_s3_platform_tests.spark.test_runner import (  # noqa: F401 - they run here too
    test_a_permanent_error_comes_back_as_it_was_and_is_not_tried_again,
    test_a_transient_error_is_tried_again_with_a_higher_attempt_id,
    test_as_many_tasks_run_at_once_as_are_told,
    test_the_last_try_gives_the_error_itself,
)
from kafka_s3_platform_tests.support import InProcessRunner, find_children, is_gone


@pytest.fixture(scope="module", autouse=True)
def warm_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of this module's servers, which end with it, and their properties of Spark."""
    folder = tmp_path_factory.mktemp("warm") / "own"
    folder.mkdir(mode=0o700)
    properties = folder / "spark.properties"
    properties.write_text(Path(os.environ[SPARK_CONF]).read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv(VARIABLE, "2")
        patch.setenv(SPARK_CONF, str(properties))
        yield properties
        for path in find_folder().glob("*.sock"):
            with contextlib.suppress(PeerGoneError, NoWarmSparkError):
                pid = greet_server(path).pid
                os.kill(pid, signal.SIGTERM)
                assert is_gone(pid, 30)


@pytest.fixture
def warm() -> Iterator[WarmSpark]:
    """The server of this module, or another one after a test that ended it. With the test its client goes."""
    found = find_warm_spark(start_warm_spark)
    yield found
    found.peer.close()


@pytest.fixture
def runner(warm: WarmSpark) -> WarmRunner:
    """What the tests of `test_runner` run on here."""
    return WarmRunner(warm)


def tell_process(task: int, _: Attempt) -> tuple[int, int]:
    return task, os.getpid()


def never_end(told: Path, task: int, _: Attempt) -> int:
    (told / str(task)).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def end_at_once_or_never(told: Path, task: int, attempt: Attempt) -> int:
    if task:
        await_file(told / "0")
        return task
    return never_end(told, task, attempt)


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """A call in a thread, and what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as err:  # noqa: BLE001 - the test looks at it
            raised.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_no_two_tasks_share_a_python_process(warm: WarmSpark) -> None:
    """What one has loaded or cached of its run, such as a plug-in or credentials, is not there for the next."""
    found = [pid for _ in range(2) for _, pid in WarmRunner(warm).run(tell_process, range(2), 2)]
    assert len(set(found)) == 4


def find_processes(warm: WarmSpark) -> list[psutil.Process]:
    """The server, its JVM and the Python processes of that."""
    server = psutil.Process(warm.pid)
    return [server, *server.children(recursive=True)]


def find_jvm(warm: WarmSpark) -> psutil.Process:
    [jvm] = find_children(warm.pid, "java")
    return jvm


def await_file(path: Path) -> str:
    """What a task has written, once it has."""
    deadline = time.monotonic() + 60
    while not path.exists() or not (text := path.read_text()):
        assert time.monotonic() < deadline, f"nobody wrote {path}"
        time.sleep(0.02)
    return text


CLIENT = """
import sys
from functools import partial
from pathlib import Path
from kafka_s3_platform_tests.spark.test_warm import never_end
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.operate.defs.warm_spark import choose_runner

list(SparkResource(choose_runner).make_runner().run(partial(never_end, Path(sys.argv[1])), [0], 1))
"""


def test_the_tasks_of_a_killed_client_are_cancelled(warm: WarmSpark, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(tmp_path)]) as process:
        worker = int(await_file(tmp_path / "0"))
        assert not is_gone(worker, 0)
        process.kill()
    assert is_gone(worker)
    assert len(list(WarmRunner(warm).run(tell_process, [1], 1))) == 1, "the others are served on"


def test_an_interrupted_run_cancels_its_tasks(warm: WarmSpark, tmp_path: Path) -> None:
    results = WarmRunner(warm).run(partial(end_at_once_or_never, tmp_path), [0, 1], 2)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]  # a generator; as an interrupt, it is no error
    assert is_gone(int(await_file(tmp_path / "0")))


@pytest.mark.parametrize("find", [lambda warm: psutil.Process(warm.pid), find_jvm], ids=["server", "jvm"])
def test_a_suspended_server_or_jvm_is_told_and_not_used(
    warm: WarmSpark, find: Callable[[WarmSpark], psutil.Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENCE_SECONDS", "GREETING_SECONDS"):
        monkeypatch.setattr(client, name, 5.0)
    thread, raised = in_background(lambda: list(WarmRunner(warm).run(partial(never_end, tmp_path), [0], 1)))
    await_file(tmp_path / "0")
    suspended = find(warm)
    suspended.suspend()
    try:
        thread.join(30)
        assert isinstance(raised[0], SparkUnavailableError)
        with pytest.raises(NoWarmSparkError, match="no sign of life"):
            find_warm_spark(None)
    finally:
        suspended.resume()
    assert is_gone(int(await_file(tmp_path / "0"))), "its client has gone meanwhile"


def test_other_settings_get_another_server_and_the_old_one_ends(warm: WarmSpark, warm_folder: Path) -> None:
    """So does another version of the package. The tests that follow use the new one."""
    warm_folder.write_text(warm_folder.read_text() + "spark.app.name=another\n")
    new = find_warm_spark(start_warm_spark)
    new.peer.close()
    assert new.pid != warm.pid
    assert len(list(WarmRunner(warm).run(tell_process, [1], 1))) == 1, "a run under way goes on"
    warm.peer.close()
    assert is_gone(warm.pid, 60)
    assert not warm.path.exists()


def read_authority(name: str, _: Attempt) -> tuple[str, frozenset[str]]:
    return Path(name).read_text(), frozenset(os.environ)


def test_a_folder_that_took_the_name_of_another_has_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a deployment by renaming folders needs nothing else. The server of the folder before it ends."""
    app, blue, green = (tmp_path / name for name in ("app", "blue", "green"))
    for folder in (app, green):
        folder.mkdir()
        (folder / "ca.pem").write_text(folder.name)
    monkeypatch.chdir(app)
    monkeypatch.setenv("DAGSTER_RUN_OF", "the first client")
    first = find_warm_spark(start_warm_spark)
    [(read, seen)] = WarmRunner(first).run(read_authority, ["ca.pem"], 1)
    assert read == "app"
    assert "DAGSTER_RUN_OF" not in seen, "what may differ from client to client is not there"
    first.peer.close()
    app.rename(blue)
    green.rename(app)
    monkeypatch.chdir(app)
    second = find_warm_spark(start_warm_spark)
    with second.peer:
        assert [read for read, _ in WarmRunner(second).run(read_authority, ["ca.pem"], 1)] == ["green"]
    assert is_gone(first.pid, 60)


def test_a_killed_server_is_told_at_once_and_leaves_no_process(warm: WarmSpark, tmp_path: Path) -> None:
    runner = WarmRunner(warm)
    thread, raised = in_background(lambda: list(runner.run(partial(never_end, tmp_path), [0], 1)))
    await_file(tmp_path / "0")
    processes = find_processes(warm)
    processes[0].kill()
    thread.join(30)
    assert isinstance(raised[0], SparkUnavailableError)
    assert isinstance(raised[0], TransientError), "the run is tried again"
    assert str(warm.pid) in str(raised[0])
    assert len(processes) >= 4
    assert [p for p in processes if not is_gone(p.pid)] == []
    with pytest.raises(SparkUnavailableError, match="before the first task"):
        runner.start()


def test_a_killed_jvm_is_told_at_once_and_ends_its_server(warm: WarmSpark, tmp_path: Path) -> None:
    """Out of memory, it ends as well: `-XX:+ExitOnOutOfMemoryError`."""
    thread, raised = in_background(lambda: list(WarmRunner(warm).run(partial(never_end, tmp_path), [0], 1)))
    await_file(tmp_path / "0")
    processes = find_processes(warm)
    assert "-XX:+ExitOnOutOfMemoryError" in find_jvm(warm).cmdline()
    find_jvm(warm).kill()
    thread.join(30)
    assert isinstance(raised[0], SparkUnavailableError)
    assert [p for p in processes if not is_gone(p.pid)] == []
    assert not warm.path.exists()


def test_down_ends_it(warm: WarmSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_S3_LOCAL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "another environment than its own")
    warm.peer.close()
    assert CliRunner().invoke(main, ["down"]).output == "stopped: spark\n"
    assert is_gone(warm.pid, 60)


def test_what_a_task_may_read_decides_which_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"HOME": "/home/a", "PATH": os.environ["PATH"], "AWS_PROFILE": "a"}
    own = identify_process(env)
    assert identify_process({**env, "TERM": "xterm", "DAGSTER_HOME": "/d", "KAFKA_S3_AUTOSTART": "1"}) == own
    assert identify_process({**env, "MAKELEVEL": "2", "MAKE_TERMOUT": "/dev/pts/1"}) == own
    for name in ("AWS_PROFILE", "KAFKA_S3_PLUGINS", "HTTPS_PROXY", "OF_A_PLUG_IN", "MAKE_OF_A_PLUG_IN"):
        assert identify_process({**env, name: "b"}).place != own.place, name
    properties = tmp_path / "spark.properties"
    named = {**env, "KAFKA_S3_SPARK_CONF": str(properties)}
    properties.write_text("spark.driver.memory=1g\n")
    first = identify_process(named)
    properties.write_text("spark.driver.memory=2g\n")
    assert identify_process(named) != first
    assert identify_process(named).place == first.place, "it takes the place of the first"
    monkeypatch.chdir(tmp_path)
    assert identify_process(env).place != own.place, "paths may be relative"


def test_a_run_with_other_limits_or_niceness_uses_another_server() -> None:
    """A server has those of whoever started it, and so have its tasks."""
    tell = "from kafka_s3_platform.operate.warm_spark.wire import identify_process; print(identify_process().place)"
    starters = ("exec", "ulimit -n 1500; exec", "ulimit -t 9999; exec", "exec nice -n 7")
    commands = [["sh", "-c", f'{starter} "$@"', "sh", sys.executable, "-c", tell] for starter in (*starters, "exec")]
    places = [subprocess.check_output(command, text=True) for command in commands]
    assert len(set(places)) == len(starters)
    assert places[0] == places[-1]


def test_without_a_warm_spark_a_run_uses_its_own_session_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = InProcessRunner()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KAFKA_S3_WARM_SPARK")
    with caplog.at_level(logging.INFO):
        assert choose_runner(own, "local[*,4]") is own
    assert "no warm Spark, so this process starts a session of its own: none was started" in caplog.text
    assert not list(tmp_path.iterdir()), "none is started where nobody asked for it"
    caplog.clear()
    assert choose_runner(own, "spark://host:7077") is own, "the session is the cluster's"
    monkeypatch.setenv("KAFKA_S3_WARM_SPARK", "0")
    assert choose_runner(own, "local[*,4]") is own
    assert not caplog.text


@pytest.mark.parametrize("spoil", [lambda f: f.chmod(0o755), lambda f: os.chown(f, 12345, -1)], ids=["open", "foreign"])
def test_a_folder_that_is_not_the_users_alone_is_used_by_neither_side(
    spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = find_folder()
    folder.mkdir(mode=0o700)
    try:
        spoil(folder)
    except PermissionError:
        pytest.skip("only root can give a folder to another user")
    with pytest.raises(NoWarmSparkError, match=r"with mode 0700.*correct or remove it"):
        find_warm_spark(None)
    with pytest.raises(OSError, match="with mode 0700"):
        start_warm_spark()
    monkeypatch.setenv("KAFKA_S3_LOCAL_DATA_DIR", str(tmp_path / "stack"))
    down = CliRunner().invoke(main, ["down"])
    assert (down.exit_code, down.stdout) == (0, "stopped: nothing ran\n")
    assert "no warm Spark was stopped" in down.stderr
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_a_process_of_another_user_is_refused() -> None:
    name = f"\0{uuid4().hex}"  # in no folder: any user can connect
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        listener.bind(name)
        listener.listen()
        # `os.seteuid` here would interrupt what each thread waits for: then it waits for whatever has that number now.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os.setuid(65534)
            other.connect(name)
            os._exit(0 if other.recv(1) == b"" else 1)
        with pytest.raises(PeerGoneError, match="of user 65534, not of 0"):
            Peer(listener.accept()[0])
        assert os.waitpid(child, 0)[1] == 0, "it was hung up on"


def test_a_frame_is_not_longer_than_its_limit() -> None:
    one, other = socket.socketpair()
    with Peer(one) as peer, other:
        other.sendall(struct.pack(">BQ", 2, 1 << 40))
        with pytest.raises(PeerGoneError, match="at most"):
            peer.receive(5)
