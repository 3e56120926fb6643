import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.files import ConnectorFiles, load_connectors
from kafka_s3_platform.core.config.folder import find_connectors_folder
from kafka_s3_platform.core.config.settings import list_letter_topics, match_topics
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import MINIMAL


def declare(folder: Path, file: str, name: str, **more: str) -> None:
    keys = {**MINIMAL, "name": name, **more}
    text = json.dumps(keys) if file.endswith(".json") else "".join(f"{key}={value}\n" for key, value in keys.items())
    (folder / file).write_text(text)


def test_the_folder_is_connectors_unless_the_environment_names_another() -> None:
    assert find_connectors_folder({}) == Path("connectors")
    assert find_connectors_folder({"KAFKA_S3_CONNECTORS": ""}) == Path("connectors")
    assert find_connectors_folder({"KAFKA_S3_CONNECTORS": "/etc/kafka-s3"}) == Path("/etc/kafka-s3")


def test_a_folder_loads_in_the_order_of_its_file_names(folder: Path) -> None:
    declare(folder, "b.json", "first", topics="a")
    declare(folder, "c.properties", "second", topics="b")
    declare(folder, ".hidden.json", "hidden")
    config = {**MINIMAL, "name": "third", "topics": "c"}
    resource = {"kind": "KafkaConnector", "metadata": {"name": "third"}, "spec": {"config": config}}
    (folder / "d.yaml").write_text(json.dumps(resource))
    (folder / "README.md").write_text("no connector")
    assert [loaded.name for loaded in load_connectors(folder, {}).connectors] == ["first", "second", "third"]


def test_a_folder_without_connectors_declares_none(tmp_path: Path) -> None:
    assert load_connectors(tmp_path, {}) == ConnectorFiles({}, {})


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere is no folder; .* KAFKA_S3_CONNECTORS"):
        load_connectors(tmp_path / "nowhere", {})


def test_a_pattern_leaves_out_the_dead_letter_topics_of_all_connectors(folder: Path) -> None:
    """Two connectors that archive each other's letters make letters of letters, for ever."""
    letters = "errors.deadletterqueue.topic.name"
    for name in ("a", "b"):
        keys = {**MINIMAL, "name": name, "topics.regex": ".*", "topics.dir": name, letters: f"{name}.dlq"}
        del keys["topics"]
        (folder / f"{name}.json").write_text(json.dumps({**keys, "errors.tolerance": "all"}))
    found = load_connectors(folder, {})
    assert not found.broken
    for config in found.connectors:
        assert match_topics(config, ["orders", "a.dlq", "b.dlq"]) == ("orders",)
        assert list_letter_topics(config, ["orders", "a.dlq", "b.dlq"]) == ("a.dlq", "b.dlq")


def names(folder: Path) -> list[str]:
    return [config.name for config in load_connectors(folder, {}).connectors]


def broken(folder: Path) -> dict[str, str]:
    return {path.name: problem for path, problem in load_connectors(folder, {}).broken.items()}


def test_two_files_of_one_name_are_both_named_and_a_third_loads(folder: Path) -> None:
    declare(folder, "a.json", "same", topics="a")
    declare(folder, "b.properties", "same", topics="b")
    declare(folder, "c.json", "other", topics="c")
    found = broken(folder)
    assert list(found) == ["a.json", "b.properties"]
    assert found["a.json"] == found["b.properties"]
    assert re.search(
        r"a\.json and \S+b\.properties declare the same connector, same.*remove all but one", found["a.json"]
    )
    assert names(folder) == ["other"]


COPY = "a (1).properties"
"""As a browser or an editor names it. It is read before the file that it was made of."""


def test_of_a_file_and_its_copy_one_goes_on(folder: Path) -> None:
    for file in (COPY, "a.properties"):
        declare(folder, file, "a")
    files = load_connectors(folder, {})
    assert [path.name for path in files.loaded] == ["a.properties"]
    assert broken(folder)[COPY].endswith(f"a.properties, which is read; remove {folder / COPY}")


@pytest.mark.parametrize("changed", [COPY, "a.properties"])
def test_a_file_and_a_changed_copy_are_both_stopped_and_the_copy_is_named(folder: Path, changed: str) -> None:
    """Nobody knows whether the copy is the backup or the new one."""
    for file in (COPY, "a.properties"):
        declare(folder, file, "a", topics="changed" if file == changed else "topic")
    assert names(folder) == []
    for problem in broken(folder).values():
        assert f"remove {folder / COPY}, or declare another name there" in problem


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("typo.json", '{"name": "x", "topics": "x", "s3.bucket.name": "b", "flush.sise": "3"}', "flush.size"),
        ("cut.json", '{"name": "x"', "line 1, column 13: invalid JSON"),
        ("unset.properties", "name=x\ntopics=x\ns3.bucket.name=${env:NOT_SET}\n", "NOT_SET"),
        ("no_class.json", '{"name": "x", "topics": "x", "s3.bucket.name": "b", "format.class": "gone.Format"}', "gone"),
        ("empty.json", "", "invalid JSON"),
        ("bytes.json", "\0", "invalid JSON"),
    ],
)
def test_a_broken_file_is_told_and_the_others_load(folder: Path, name: str, text: str, told: str) -> None:
    declare(folder, "good.json", "good")
    (folder / name).write_text(text)
    assert names(folder) == ["good"]
    [(file, problem)] = broken(folder).items()
    assert file == name
    assert name in problem
    assert told in problem


def test_a_class_of_ones_own_that_raises_at_import_is_its_own_files_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "raising_module.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "raising_module")
    declare(folder, "good.json", "good")
    declare(folder, "bad.json", "bad", **{"topics": "x", "s3.credentials.provider.class": "raising_module.Provider"})
    assert names(folder) == ["good"]
    assert "no licence" in broken(folder)["bad.json"]


@pytest.mark.parametrize("value", ["a" * 200_000, "a:" * 100_000, "a:b" * 60_000 + "@", "//" * 100_000, "${" * 100_000,
                                   "${env:" * 32_000, "'" * 200_000, "a@" * 100_000])  # fmt: skip
@pytest.mark.parametrize("key", ["topics.dir", "s3.bucket.name", "some.key"])
def test_a_long_word_takes_no_time_and_leaves_the_others_alone(folder: Path, key: str, value: str) -> None:
    declare(folder, "a.properties", "a", **{key: value})
    declare(folder, "b.json", "b", topics="b")
    began = time.process_time()
    assert "b" in names(folder)
    assert time.process_time() - began < 2


def test_only_regular_files_of_a_sound_size_are_read(folder: Path) -> None:
    """A pipe would make all connectors wait for somebody who writes to it."""
    os.mkfifo(folder / "pipe.properties")
    (folder / "huge.json").write_text(" " * 1_048_577)
    (folder / "zero.json").symlink_to("/dev/zero")
    declare(folder, "b.json", "b")
    assert names(folder) == ["b"]
    told = broken(folder)
    assert "is no regular file" in told["pipe.properties"]
    assert "is no regular file" in told["zero.json"]
    assert "has 1,048,577 bytes; 1,048,576 at most are read" in told["huge.json"]


def test_a_file_that_cannot_be_read_is_told(folder: Path) -> None:
    declare(folder, "good.json", "good")
    (folder / "folder.json").mkdir()
    assert names(folder) == ["good"]
    assert "folder.json" in broken(folder)["folder.json"]


def route(regex: str, replacement: str) -> dict[str, str]:
    """A connector's RegexRouter."""
    options = {"type": "RegexRouter", "regex": regex, "replacement": replacement}
    return {"transforms": "r"} | {f"transforms.r.{key}": value for key, value in options.items()}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"topics": "x,one"}, "objects of both go to topics/one;"),
        ({"topics": "one_eu", **route("(.*)_eu", "$1")}, "objects of both go to topics/one;"),
        ({"topics.dir": "topics/one"}, "objects of both go to topics/one/two;"),
        (
            {"topics.dir": "t", "archive.index.dir": "topics/i"},
            "archive.index.dir of the first, topics/i, and topics.dir of",
        ),
        ({"topics.dir": "topics_daily", "topics": "one"}, "objects of both go to topics_daily/one;"),
        ({"topics.dir": "t", "archive.index.dir": "topics_daily/i"}, "archive.index.dir of the first, topics_daily/i,"),
        ({"topics.dir": "_index/x"}, "archive.index.dir of the first, _index, and topics.dir of the second, _index/x"),
        (
            {"topics.dir": "_restore"},
            "archive.restore.dir of the first, _restore, and topics.dir of the second, _restore",
        ),
    ],
)
def test_two_files_that_write_to_one_folder_are_both_named(folder: Path, keys: dict[str, str], why: str) -> None:
    declare(folder, "a.json", "one", topics="one")
    keys = {"topics": "two", "archive.index.dir": "i", "archive.restore.dir": "r", **keys}
    declare(folder, "b.json", "two", **keys)
    found = broken(folder)
    assert found.keys() == {"a.json", "b.json"}
    assert found["a.json"] == found["b.json"]
    [told] = found["a.json"].splitlines()
    assert "a.json" in told
    assert "b.json" in told
    assert "share a folder of bucket archive" in told
    assert why in told
    declare(folder, "b.json", "two", **{**keys, "s3.bucket.name": "another"})
    assert len(load_connectors(folder, {}).connectors) == 2


def test_restores_keep_out_of_the_archives_of_their_bucket(folder: Path) -> None:
    own = {"archive.restore.bucket": "restores", "archive.restore.dir": "r"}
    declare(folder, "a.json", "one", topics="one", **own)
    declare(folder, "b.json", "two", **{"topics": "two", "topics.dir": "r", "s3.bucket.name": "restores"})
    assert "folder of bucket restores: archive.restore.dir of the first, r, and" in broken(folder)["a.json"]


def test_what_is_wrong_is_told_of_every_file(folder: Path) -> None:
    declare(folder, "a.json", "no/good")
    (folder / "b.json").write_text("{")
    found = broken(folder)
    assert "a.json: 1 key refused" in found["a.json"]
    assert "b.json, line 1, column 2: invalid JSON" in found["b.json"]
    assert names(folder) == []


def test_a_broken_worker_file_breaks_each(folder: Path) -> None:
    declare(folder, "a.json", "a")
    declare(folder, "b.json", "b")
    (folder / "worker.properties").write_text("nonsense=1\n")
    found = broken(folder)
    assert found.keys() == {"a.json", "b.json"}
    assert all("worker.properties: 1 key refused" in problem for problem in found.values())


def test_connector_files_are_read_without_pyarrow() -> None:
    script = "import sys; from kafka_s3_platform.connect.config import files; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
