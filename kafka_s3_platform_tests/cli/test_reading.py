"""The recipes of docs/reading.md, run as they stand there: every engine reads each record once, whatever was merged."""

import os
import re
import shutil
import subprocess
import sysconfig
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.dataset as ds
import pytest

from kafka_s3_platform import read
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.compact.run import compact_due_months
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import REPOSITORY, Lab, present
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, compact_day, produce, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (REPOSITORY / "docs" / "reading.md").read_text()
SCRIPT = "".join(re.findall(r"<!-- script -->\n```bash\n(.*?)```", DOCUMENT, re.DOTALL))
RECIPES = dict(re.findall(r"<!-- recipe: (\w+) -->\n```python\n(.*?)```", DOCUMENT, re.DOTALL))
DAY = date(2026, 1, 1)
VALUE = b'{"schema": {"type": "struct", "fields": [{"field": "n", "type": "int64"}]}, "payload": {"n": 1}}'


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c`, whose topic has records of six hours of two days, of yesterday, and of long ago; all archived."""
    lab.create_topic(2)
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    hours = [*(NOON + n * HOUR for n in range(5)), NOON + timedelta(days=1), NOON - timedelta(days=9_000), yesterday]
    lab.produce([Sent(VALUE, b"k", hour, (), p) for hour in hours for p in (0, 1)])
    own: dict[str, str] = {"archive.monthly.segment.bytes": "100000000"}
    own |= {"archive.allowed.lateness.ms": "0", "value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    found = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **own)
    archived(found)
    return found


def merged(config: ConnectorConfig) -> None:
    assert compact_day(CompactRequest(config, config.topics[0], DAY, "merge"), InProcessRunner()).merged


@pytest.fixture
def environment(config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that the recipes read."""
    store = config.store
    for name, value in {
        "AWS_ACCESS_KEY_ID": present(store.access_key_id).get_secret_value(),
        "AWS_SECRET_ACCESS_KEY": present(store.secret_access_key).get_secret_value(),
        "AWS_REGION": store.region or "us-east-1",
        "AWS_ENDPOINT_URL": store.endpoint_url or "",
        "AWS_ALLOW_HTTP": "true",
        "BUCKET": store.bucket,
        "TOPIC": config.topics[0],
    }.items():
        monkeypatch.setenv(name, value)


def counted(recipe: str, folder: Path) -> Any:
    """What a recipe counts: different records, and records; with `files.txt` in `folder`."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(RECIPES[recipe], recipe, "exec"), found)  # noqa: S102 - ours
    return found["count"]


def test_every_recipe_reads_each_record_once_before_and_after_merges_and_merges_of_late_records(
    kafka_s3: KafkaS3, config: ConnectorConfig, environment: None, spark: object
) -> None:
    assert set(RECIPES) == {
        "week",
        "duckdb",
        "pandas",
        "polars",
        "pyarrow",
        "spark",
        "decoded",
        "files",
        "index",
        "hours",
    }

    def check(records: int) -> None:
        listed = kafka_s3("files", "c", "--topic", config.topics[0], status=0)
        (kafka_s3.folder / "files.txt").write_text(listed.stdout)
        found = {recipe: counted(recipe, kafka_s3.folder) for recipe in RECIPES}
        # all but the records of the next day, of yesterday and of long ago
        of_the_day = {"pyarrow": (records - 6, records - 6)}
        assert found == dict.fromkeys(RECIPES, (records, records)) | of_the_day | {"week": (2, 2)}

    check(16)
    merged(config)
    check(16)
    produce(config.kafka, config.topics[0], [Sent(VALUE, b"late", NOON + HOUR), Sent(VALUE, b"late", NOON, (), 1)])
    archived(config)
    check(18)
    merged(config)
    check(18)
    compact_day(CompactRequest(config, config.topics[0], DAY + timedelta(days=1), "merge"), InProcessRunner())
    assert compact_due_months({config.topics[0]: config}, "months", InProcessRunner())
    check(18)
    listed = parsed(kafka_s3("files", "c", "--day", "2026-01-02", "--json", status=0))
    assert [(f["chunk"], f["day"]) for f in listed["files"]] == [("monthly", "2026-01")] * 2


def test_engines_see_records_out_of_range_in_a_folder_whose_name_is_another(
    kafka_s3: KafkaS3, lab: Lab, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = NOON - timedelta(days=9_000)
    lab.create_topic()
    for name, sent in {"__out_of_range__": [VALUE], "odd": [VALUE, VALUE]}.items():
        lab.produce([Sent(b"1"), *(Sent(value, None, long_ago) for value in sent)])
        more = {"archive.out.of.range.folder": name, "archive.allowed.lateness.ms": "0"}
        config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **more)
        archived(config)
    listed = kafka_s3("files", "c")
    assert "Spark, Hive and pyarrow leave out __out_of_range__ if they read a folder" in listed.stderr
    store = ObjectStore(config.store)
    for key in (uri.split("/", 3)[3] for uri in listed.stdout.splitlines()):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(store.get(key))
    folder = str(tmp_path / "topics" / lab.topic)
    by_folder = {
        "pyarrow": ds.dataset(folder).count_rows(),
        "Spark": spark.read.option("recursiveFileLookup", "true").parquet(folder).count(),
        "polars": pl.scan_parquet(f"{folder}/**/*.parquet").select(pl.len()).collect().item(),
    }
    assert by_folder == {"pyarrow": 4, "Spark": 4, "polars": 5}
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(kafka_s3.folder / "connectors"))
    assert read("c").count_rows() == 5


@pytest.mark.long
def test_the_script_makes_an_environment_in_which_the_query_of_last_week_runs(
    kafka_s3: KafkaS3, config: ConnectorConfig, environment: None, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        checkout.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, checkout)
    for name in ("kafka_s3_platform", "docs"):
        shutil.copytree(REPOSITORY / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "week.py").write_text(RECIPES["week"])
    # No index is asked: what pip would download is that of this environment.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": sysconfig.get_path("purelib")}
    found = subprocess.run(
        ["bash", "-e", "-c", SCRIPT],
        cwd=checkout,
        env={**os.environ, **offline, "KAFKA_S3_CONNECTORS": str(kafka_s3.folder / "connectors")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "2 records"
    assert (checkout / "analysis" / "bin" / "kafka-s3").exists()


def test_files_of_a_day_or_an_hour_are_those_that_hold_it(kafka_s3: KafkaS3, config: ConnectorConfig) -> None:
    def listed(*options: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = parsed(kafka_s3("files", "c", *options, "--json"))["files"]
        return found

    assert len(listed()) == len(snapshot(config).segments) == 16
    assert len(listed("--hour", "2026-01-01T12")) == 2
    assert listed("--hour", "9999-12-31T23") == []
    merged(config)
    day, hour = listed("--day", "2026-01-01"), listed("--hour", "2026-01-01T12")
    assert day == hour
    assert [(f["kafka_partition"], f["records"], f["chunk"], f["day"]) for f in day] == [
        (0, 5, "daily", "2026-01-01"),
        (1, 5, "daily", "2026-01-01"),
    ]
    assert all(str(f["uri"]).startswith(f"s3://{config.store.bucket}/topics_daily/") for f in day)
    assert listed("--day", "2025-01-01") == []
    for options, lines in ([], len(listed())), (["--day", "2025-01-01"], 0):
        found = kafka_s3("files", "c", *options)
        assert (found.returncode, len(found.stdout.splitlines())) == (0, lines)
    for options in (["--day", "2026-01-01", "--hour", "2026-01-01T12"], ["--hour", "2026-01-01T12:30"], ["--day", "x"]):
        assert kafka_s3("files", "c", *options).returncode == 2
