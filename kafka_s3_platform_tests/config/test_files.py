import json
from pathlib import Path

import pytest

from kafka_s3_platform.config.files import connectors_folder, load_connectors
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import MINIMAL


def declare(folder: Path, file: str, name: str, **more: str) -> None:
    keys = {**MINIMAL, "name": name, **more}
    text = json.dumps(keys) if file.endswith(".json") else "".join(f"{key}={value}\n" for key, value in keys.items())
    (folder / file).write_text(text)


def test_the_folder_is_connectors_unless_the_environment_names_another() -> None:
    assert connectors_folder({}) == Path("connectors")
    assert connectors_folder({"KAFKA_S3_CONNECTORS": ""}) == Path("connectors")
    assert connectors_folder({"KAFKA_S3_CONNECTORS": "/etc/kafka-s3"}) == Path("/etc/kafka-s3")


def test_a_folder_loads_in_the_order_of_its_file_names(folder: Path) -> None:
    declare(folder, "b.json", "first", topics="a")
    declare(folder, "c.properties", "second", topics="b")
    declare(folder, ".hidden.json", "hidden")
    (folder / "README.md").write_text("no connector")
    assert [config.name for config in load_connectors(folder, {})] == ["first", "second"]


def test_a_folder_without_connectors_declares_none(tmp_path: Path) -> None:
    assert load_connectors(tmp_path, {}) == ()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere is no folder; .* KAFKA_S3_CONNECTORS"):
        load_connectors(tmp_path / "nowhere", {})


def test_two_files_of_one_name_are_both_named(folder: Path) -> None:
    declare(folder, "a.json", "same")
    declare(folder, "b.properties", "same")
    with pytest.raises(ConfigError, match=r"a\.json and \S+b\.properties declare the same connector, same; rename one"):
        load_connectors(folder, {})


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"topics": "x,one"}, "objects of both go to topics/one;"),
        ({"topics.dir": "topics/one"}, "objects of both go to topics/one/two;"),
        (
            {"topics.dir": "t", "archive.index.dir": "topics/i"},
            "archive.index.dir of the first, topics/i, and topics.dir of",
        ),
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
    with pytest.raises(ConfigError) as caught:
        load_connectors(folder, {})
    [told] = str(caught.value).splitlines()
    assert "a.json" in told
    assert "b.json" in told
    assert "share a folder of bucket archive" in told
    assert why in told
    declare(folder, "b.json", "two", **{**keys, "s3.bucket.name": "another"})
    assert len(load_connectors(folder, {})) == 2


def test_restores_keep_out_of_the_archives_of_their_bucket(folder: Path) -> None:
    own = {"archive.restore.bucket": "restores", "archive.restore.dir": "r"}
    declare(folder, "a.json", "one", topics="one", **own)
    declare(folder, "b.json", "two", **{"topics": "two", "topics.dir": "r", "s3.bucket.name": "restores"})
    with pytest.raises(ConfigError, match=r"folder of bucket restores: archive\.restore\.dir of the first, r, and"):
        load_connectors(folder, {})


def test_one_error_tells_what_is_wrong_in_every_file(folder: Path) -> None:
    declare(folder, "a.json", "no/good")
    (folder / "b.json").write_text("{")
    with pytest.raises(ConfigError, match=r"(?s)a\.json: 1 key refused.*b\.json, line 1, column 2: invalid JSON"):
        load_connectors(folder, {})


def test_an_error_of_the_worker_is_told_once(folder: Path) -> None:
    declare(folder, "a.json", "a")
    declare(folder, "b.json", "b")
    (folder / "worker.properties").write_text("nonsense=1\n")
    with pytest.raises(ConfigError) as caught:
        load_connectors(folder, {})
    assert str(caught.value).count("worker.properties") == 1
