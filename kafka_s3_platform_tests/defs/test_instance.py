"""What the `dagster.yaml` of this project says to Dagster."""

from pathlib import Path

import dagster as dg
import pytest

from kafka_s3_platform_tests.cli.conftest import REPOSITORY


def test_few_runs_start_at_once_and_a_backfill_takes_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # its paths are relative
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 4
    assert queue.tag_concurrency_limits == [{"key": "dagster/backfill", "limit": 1}]
