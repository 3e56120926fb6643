import hashlib
from pathlib import Path

import pytest

from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.local import kafka_jars as module
from kafka_s3_platform.local.kafka_jars import fetch_kafka_jars, find_digests
from kafka_s3_platform.local.settings import StackSettings

DIGESTS = find_digests("4.3.1")


def test_jars_that_are_there_are_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.3.1").mkdir()
    assert fetch_kafka_jars(tmp_path) == tmp_path / "kafka_2.13-4.3.1"


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.3.1").mkdir()
    (tmp_path / "fetching-abc" / "ivy").mkdir(parents=True)
    fetch_kafka_jars(tmp_path)
    assert not (tmp_path / "fetching-abc").exists()


def test_fetched_jars_are_those_that_were_recorded(stack: object, stack_settings: StackSettings) -> None:
    recorded = dict(line.split() for line in DIGESTS.read_text().splitlines())
    jars = {
        hashlib.sha256(jar.read_bytes()).hexdigest(): jar.name
        for jar in fetch_kafka_jars(stack_settings.cache).iterdir()
    }
    assert jars == recorded


def test_an_altered_a_missing_and_a_foreign_jar_are_refused_by_name(tmp_path: Path) -> None:
    for line in DIGESTS.read_text().splitlines()[1:]:
        (tmp_path / line.split()[1]).touch()
    (tmp_path / "foreign.jar").touch()
    with pytest.raises(IntegrityError, match=r"HdrHistogram-2.2.2.jar, .*foreign.jar, .*kafka_2.13-4.3.1.jar"):
        module._verify_digests(DIGESTS, tmp_path)  # noqa: SLF001 - the way to a damaged download that needs no network


def test_a_release_whose_digests_are_not_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_S3_LOCAL_KAFKA_VERSION=2.8.0: there are 3.9.1, 4.3.1"):
        fetch_kafka_jars(tmp_path, "2.8.0")
