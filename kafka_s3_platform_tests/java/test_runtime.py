from pathlib import Path

import pytest

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.java.runtime import find_java, find_pyspark_jars


def fake_java(home: Path, banner: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("banner", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_java_of_java_home_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str) -> None:
    java = fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


@pytest.mark.parametrize(("banner", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.2"', 11)])
def test_an_old_java_is_refused_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, version: int
) -> None:
    fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"is Java {version}: .* need Java 17"):
        find_java()


def test_no_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no java in PATH: install Java 17"):
        find_java()


def test_pyspark_ships_ivy() -> None:
    assert list(find_pyspark_jars().glob("ivy-*.jar"))
