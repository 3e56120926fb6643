import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kafka_s3_platform import cli
from kafka_s3_platform.cli import main
from kafka_s3_platform.core.errors import MissingTopicError, PlatformError, StoreUnavailableError
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus
from kafka_s3_platform_tests.conftest import present


def test_status_of_a_stack_that_runs_as_json(stack: StackStatus, stack_settings: StackSettings) -> None:
    result = CliRunner().invoke(main, ["status", "--json"], env=stack_settings.environment())
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert {key: shown[key] for key in ("bootstrap_servers", "s3_endpoint", "aws_access_key_id", "bucket")} == {
        "bootstrap_servers": stack.bootstrap_servers,
        "s3_endpoint": stack.s3_endpoint,
        "aws_access_key_id": stack.aws_access_key_id,
        "bucket": stack.bucket,
    }
    assert shown["aws_secret_access_key"] == stack.aws_secret_access_key
    assert shown["healthy"] is True


def test_status_of_a_stack_that_does_not_run_exits_with_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status"], env={"KAFKA_S3_LOCAL_DATA_DIR": str(tmp_path)})
    assert result.exit_code == 1
    assert result.stdout.count("not running") == 2


def test_down_of_a_stack_that_does_not_run_says_so(tmp_path: Path) -> None:
    env = {"KAFKA_S3_LOCAL_DATA_DIR": str(tmp_path)}
    assert CliRunner().invoke(main, ["down"], env=env).stdout == "stopped: nothing ran\n"
    assert json.loads(CliRunner().invoke(main, ["down", "--json"], env=env).stdout) == {"stopped": []}


@pytest.mark.parametrize(
    ("error", "status"), [(MissingTopicError("no topic t"), 1), (StoreUnavailableError("no S3"), 75)]
)
def test_an_error_is_a_message_and_its_class_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, error: PlatformError, status: int
) -> None:
    def fail(_: StackSettings) -> StackStatus:
        raise error

    monkeypatch.setattr(embedded, "start_stack", fail)
    result = CliRunner().invoke(main, ["up"])
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"Error: {error}\n")


def test_every_command_is_found_where_it_is_said_to_be() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, (_, summary) in cli.COMMANDS.items():
        assert f"  {name} " in result.stdout
        command = present(main.get_command(click.Context(main), name))
        assert (command.help or "").startswith(summary.rstrip(".")), "the list says what the command's own help says"


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(main, ["upp"]).exit_code == 2


def test_the_command_line_starts_without_dagster_and_spark() -> None:
    script = (
        "import sys; from kafka_s3_platform.cli import stack; sys.exit(bool({'dagster', 'pyspark'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
