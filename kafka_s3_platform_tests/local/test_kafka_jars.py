import hashlib
from pathlib import Path

import pytest

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.local import kafka_jars as module
from kafka_s3_platform.local.kafka_jars import fetch_kafka_jars
from kafka_s3_platform.local.settings import StackSettings


def test_jars_that_are_there_are_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.3.1").mkdir()
    assert fetch_kafka_jars(tmp_path) == tmp_path / "kafka_2.13-4.3.1"


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.3.1").mkdir()
    (tmp_path / "fetching-abc" / "ivy").mkdir(parents=True)
    fetch_kafka_jars(tmp_path)
    assert not (tmp_path / "fetching-abc").exists()


def test_fetched_jars_are_those_that_were_recorded(stack: object, stack_settings: StackSettings) -> None:
    recorded = dict(line.split() for line in module.DIGESTS.read_text().splitlines())
    jars = {
        hashlib.sha256(jar.read_bytes()).hexdigest(): jar.name
        for jar in fetch_kafka_jars(stack_settings.cache).iterdir()
    }
    assert jars == recorded


def test_an_altered_a_missing_and_a_foreign_jar_are_refused_by_name(tmp_path: Path) -> None:
    for line in module.DIGESTS.read_text().splitlines()[1:]:
        (tmp_path / line.split()[1]).touch()
    (tmp_path / "foreign.jar").touch()
    with pytest.raises(IntegrityError, match=r"HdrHistogram-2.2.2.jar, .*foreign.jar, .*kafka_2.13-4.3.1.jar"):
        module._verify_digests(tmp_path)  # noqa: SLF001 - the way to a damaged download that needs no network
