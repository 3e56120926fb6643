import os
import re
import subprocess
from pathlib import Path

import pytest

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java import runtime
from kafka_s3_platform.core.java.runtime import choose_options, find_java, find_pyspark_jars, name_class_data


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


CLASS_DATA = re.compile("-XX:SharedArchiveFile=.*")


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ("-XX:+UseG1GC", "-XX:+UseSerialGC"),
        ("-Dx=y -XX:-UseParallelGC", "-XX:+UseSerialGC"),
        ("-XX:TieredStopAtLevel=4", "-XX:TieredStopAtLevel=1"),
        ("-XX:-TieredCompilation", "-XX:TieredStopAtLevel=1"),
        ("-Xint", "-XX:TieredStopAtLevel=1"),
        ("-Xlog:gc", "-Xlog:disable"),
        ("-Xshare:off", "-XX:SharedArchiveFile="),
        ("spark.driver.extraJavaOptions -XX:SharedArchiveFile=/mine.jsa", "-XX:SharedArchiveFile="),
    ],
)
def test_what_somebody_chose_of_java_is_left_to_them_and_nothing_else(
    tmp_path: Path, given: str, left_out: str
) -> None:
    data = tmp_path / "data.jsa"
    data.touch()
    all_own = choose_options("-Xmx1g", data)
    kept = choose_options(given, data)
    gone = [option for option in all_own if option not in kept]
    assert kept == [option for option in all_own if option in kept]
    assert gone[0].startswith(left_out)
    assert {option.partition(":")[0] for option in gone} == {gone[0].partition(":")[0]}


def test_class_data_of_another_java_or_of_other_jars_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "FOLDER", tmp_path)
    java, jar = tmp_path / "jdk" / "bin" / "java", tmp_path / "a.jar"
    java.parent.mkdir(parents=True)
    for path in (java, jar):
        path.write_text("1")
    names = {name_class_data(java, [jar])}
    assert names == {name_class_data(java, [jar])}
    (java.parents[1] / "release").write_text("17.0.16")
    names.add(name_class_data(java, [jar]))
    os.utime(jar, (1, 1))
    names.add(name_class_data(java, [jar]))
    (tmp_path / "b.jar").touch()
    names.add(name_class_data(java, [jar, tmp_path / "b.jar"]))
    assert len(names) == 4
    assert not any(CLASS_DATA.fullmatch(option) for name in names for option in choose_options("", name))


@pytest.mark.parametrize("content", [b"", b"no class data" * 1000], ids=["empty", "of something else"])
def test_java_starts_whatever_its_class_data_is_and_prints_nothing_of_it(tmp_path: Path, content: bytes) -> None:
    data = tmp_path / "data.jsa"
    data.write_bytes(content)
    options = choose_options("", data)
    assert any(CLASS_DATA.fullmatch(option) for option in options)
    found = subprocess.run([find_java(), *options, "-version"], capture_output=True, text=True, check=True)
    assert found.stdout == ""
