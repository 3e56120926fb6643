"""What commands say where Dagster's storage or this machine's disk fails. Each error is caused, none is made up."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg2  # type: ignore[import-untyped]  # it has no types
import pytest
from sqlalchemy.exc import DatabaseError

from kafka_s3_platform.core.errors import ErrorCode, FullDiskError, PermanentError, TransientError, explain_full_disk
from kafka_s3_platform.operate.instance.home import explain_storage_error, find_instance
from kafka_s3_platform_tests.conftest import present


def read_runs() -> None:
    present(find_instance()).get_runs(limit=1)


def test_a_storage_that_is_no_database_is_told_by_every_command_that_needs_it(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "history").mkdir(parents=True)
    (home / "dagster.yaml").write_text((fresh_home / "dagster.yaml").read_text().replace(str(fresh_home), str(home)))
    for name in ("history", "history/runs", "schedules"):
        (home / name).mkdir(exist_ok=True)
    (home / "history" / "runs.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with pytest.raises((PermanentError, DatabaseError)) as raised:
        read_runs()
    told = explain_storage_error(raised.value)
    assert isinstance(told, PermanentError)
    assert str(told).startswith("[KS-DAGSTER] Dagster's storage does not answer: file is not a database.")


def test_a_home_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "gone"))
    with pytest.raises(PermanentError, match=r"^\[KS-DAGSTER\] .*gone.* does not exist"):
        find_instance()


def test_a_database_that_is_down_may_come_back_and_its_words_are_not_shown() -> None:
    with pytest.raises(psycopg2.OperationalError) as raised:
        psycopg2.connect("postgresql://dagster:sesame@127.0.0.1:1/dagster")
    told = explain_storage_error(raised.value)
    assert isinstance(told, TransientError)
    assert told.code is ErrorCode.DAGSTER
    assert "127.0.0.1" not in str(told)


def test_a_full_disk_is_told_as_that_by_the_storage_too() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("pragma max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as raised:
            database.execute("create table t (a)")
    assert isinstance(explain_storage_error(raised.value), FullDiskError)


def test_what_is_neither_is_not_explained() -> None:
    for err in (ZeroDivisionError("a defect"), FileNotFoundError(2, "no such file")):
        assert (explain_storage_error(err), explain_full_disk(err)) == (None, None)


def test_a_command_whose_output_finds_no_room_ends_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafka_s3_platform.cli", "list", "--json"],
            cwd=tmp_path,
            env={**os.environ, "KAFKA_S3_CONNECTORS": "connectors"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 75
    [error] = [line for line in done.stderr.splitlines() if "at work for" not in line]
    assert error.startswith("Error: [KS-DISK] No space left on device (")
