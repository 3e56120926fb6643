"""The units of deploy/systemd/, read by systemd itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kafka_s3_platform_tests.deploy.image_steps import REPOSITORY
from kafka_s3_platform_tests.tools import find_tool

FOLDER = REPOSITORY / "deploy" / "systemd"
UNITS = sorted(path for path in FOLDER.iterdir() if path.is_file())
COMMON = FOLDER / "kafka-s3-.service.d" / "common.conf"
OURS = ("dagster", "dagster-daemon", "dagster-webserver", "kafka-s3", "python")


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
