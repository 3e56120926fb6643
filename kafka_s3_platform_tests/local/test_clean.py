"""`make clean`, in a folder without .venv."""

import json
import os
import subprocess
from pathlib import Path

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def make_clean(folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_S3_")}
    command = ["make", "-f", str(MAKEFILE), "clean"]
    return subprocess.run(command, cwd=folder, env=env | more, capture_output=True, text=True, check=False)


def data_in(folder: Path, pid: int) -> Path:
    for name in ("kafka", "s3", "cache"):
        (folder / name).mkdir(parents=True)
    (folder / "kafka" / "process.json").write_text(json.dumps({"pid": pid, "create_time": 1.5, "ports": {"p": 1}}))
    return folder


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_data_goes_and_downloads_stay(tmp_path: Path) -> None:
    data = data_in(tmp_path / ".local", ended_process())
    assert make_clean(tmp_path).returncode == 0
    assert [path.name for path in data.iterdir()] == ["cache"]


def test_the_data_folder_is_the_one_that_the_stack_was_given(tmp_path: Path) -> None:
    data, other = data_in(tmp_path / "my data", ended_process()), data_in(tmp_path / ".local", ended_process())
    assert make_clean(tmp_path, KAFKA_S3_LOCAL_DATA_DIR=str(data)).returncode == 0
    assert [path.name for path in data.iterdir()] == ["cache"]
    assert (other / "kafka").exists()


def test_data_of_a_server_that_runs_is_not_removed_under_it(tmp_path: Path) -> None:
    data = data_in(tmp_path / ".local", os.getpid())
    refused = make_clean(tmp_path)
    assert refused.returncode != 0
    assert "run make setup" in refused.stderr
    assert (data / "kafka" / "process.json").exists()
