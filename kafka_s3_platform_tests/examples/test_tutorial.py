"""The commands of docs/tutorial.md, run as they stand there, by a shell in an empty folder."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import REPOSITORY, own_stack
from kafka_s3_platform_tests.kafka.topics import records_of

TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text()
*STEPS, STOP = re.findall(r"<!-- script -->\n```bash\n(.*?)```", TUTORIAL, re.DOTALL)


@pytest.mark.long
def test_the_tutorial_ends_with_an_hour_of_an_own_topic(stack_settings: StackSettings, tmp_path: Path) -> None:
    """One order in ten seconds is 360 in an hour."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_S3_", "DAGSTER_"))}
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{inherited['PATH']}"
    folder = tmp_path / "archive-tutorial"

    def run(script: str, where: Path) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=where, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with own_stack(stack_settings, data_dir=folder / ".local") as settings:
        variables = inherited | settings.environment() | {"PATH": path, environment.WARM_SPARK: "0"}
        shown = run("".join(STEPS), tmp_path)
        kafka = KafkaSettings(bootstrap_servers=settings.bootstrap_servers)
        again = pa.concat_tables(records_of(kafka, "orders-again", number) for number in range(3))
        stopped = run(STOP, folder)
    assert "\n1080 orders\n" in shown
    assert "\norders -> orders-again: 360 records restored, each found in the target, in " in shown
    assert again.num_rows == 360
    assert len({moment.replace(minute=0, second=0) for moment in again.column("timestamp").to_pylist()}) == 1
    assert stopped.startswith("stopped: ")
