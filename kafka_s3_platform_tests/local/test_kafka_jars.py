import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.operate.local.broker import fetch_kafka_jars
from kafka_s3_platform.operate.local.settings import StackSettings

NAME = "kafka_2.13-4.3.1"


@pytest.fixture
def cache(tmp_path: Path, stack: object, stack_settings: StackSettings) -> Path:
    """A cache with the jars of this session's stack, which are copied so that a test may alter them."""
    shutil.copytree(stack_settings.cache / NAME, tmp_path / NAME)
    return tmp_path


def test_jars_that_are_there_are_not_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/missing")
    assert fetch_kafka_jars(cache) == cache / NAME


def test_what_a_killed_run_left_is_removed(cache: Path) -> None:
    (cache / "fetching-abc" / "ivy").mkdir(parents=True)
    fetch_kafka_jars(cache)
    assert not (cache / "fetching-abc").exists()


def alter(jars: Path) -> None:
    with (jars / "kafka_2.13-4.3.1.jar").open("ab") as jar:
        jar.write(b"x")


def remove(jars: Path) -> None:
    (jars / "kafka_2.13-4.3.1.jar").unlink()


def link(jars: Path) -> None:
    """What it leads to is the same now, and may be another thing when Java opens it."""
    (jars / "kafka_2.13-4.3.1.jar").rename(jars.parent / "other.jar")
    (jars / "kafka_2.13-4.3.1.jar").symlink_to(jars.parent / "other.jar")


def add(jars: Path) -> None:
    (jars / "a-first.jar").touch()


def add_folder(jars: Path) -> None:
    (jars / "kafka" / "tools").mkdir(parents=True)
    (jars / "kafka" / "tools" / "StorageTool.class").touch()


def link_folder(jars: Path) -> None:
    (jars / "kafka").symlink_to("/tmp")


@pytest.mark.parametrize("change", [alter, remove, link, add, add_folder, link_folder])
def test_a_jar_that_is_there_is_run_only_if_it_is_the_recorded_one(cache: Path, change: Callable[[Path], None]) -> None:
    """Whoever wrote to the cache had it run by `kafka-s3 up`: digests were compared after a download alone."""
    change(cache / NAME)
    with pytest.raises(IntegrityError, match=rf"kafka.*remove {re.escape(str(cache / NAME))}"):
        fetch_kafka_jars(cache)


def test_a_release_whose_digests_are_not_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_S3_LOCAL_KAFKA_VERSION=2.8.0: there are 3.9.1, 4.3.1"):
        fetch_kafka_jars(tmp_path, "2.8.0")
