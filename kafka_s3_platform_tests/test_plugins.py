"""The public face: its members stay, the docs use nothing else, and what earlier docs showed still works."""

import importlib
import re
import sys
import warnings
from pathlib import Path

import pytest

from kafka_s3_platform import plugins
from kafka_s3_platform.config.plugins import MAPPER, PUBLIC_MODULES, load_class
from kafka_s3_platform_tests.conftest import REPOSITORY

MEMBERS = """
    ConnectBatch Credentials CredentialsProvider DefaultFolders DefaultPartitioner EncodedPartitions ExtractedTimes
    FieldFolders FieldPartitioner Folder Folders Int32s Int64s IntegrityError KafkaPartitioner LayoutSettings
    MappedRecord Outcome Partitioner Payload PermanentError Record RecordExtractor RecordFailure RecordMapper
    RecordWriter Schema Sink TimeBasedPartitioner TimeFolders TimestampExtractor TransientError UnwritableRecordsError
    joined
"""

EARLIER = {
    "kafka_s3_platform.config.settings": ["LayoutSettings"],
    "kafka_s3_platform.formats.envelope": ["Sink"],
    "kafka_s3_platform.formats.parts": ["UnwritableRecordsError"],
    "kafka_s3_platform.model.connect": ["ConnectBatch", "Int64s", "Outcome", "Schema"],
    "kafka_s3_platform.partitioners.extractors": ["Record", "RecordExtractor"],
    "kafka_s3_platform.partitioners.folders": ["DefaultFolders", "FieldFolders", "Folder", "TimeFolders"],
    "kafka_s3_platform.partitioners.partitioners": [
        "EncodedPartitions",
        "FieldPartitioner",
        "TimeBasedPartitioner",
        "joined",
    ],
    "kafka_s3_platform.restore.partitioning": ["KafkaPartitioner"],
    "kafka_s3_platform.store.credentials": ["Credentials"],
    "kafka_s3_platform.transforms": ["MappedRecord", "RecordMapper"],
}
"""The paths that the docs of earlier versions showed."""


def test_its_members_are_these_and_stay() -> None:
    assert sorted(plugins.__all__) == sorted(MEMBERS.split())
    assert all(hasattr(plugins, name) for name in plugins.__all__)


@pytest.mark.parametrize("module", EARLIER)
def test_what_earlier_docs_showed_is_the_same_thing(module: str) -> None:
    for name in EARLIER[module]:
        assert getattr(importlib.import_module(module), name) is getattr(plugins, name)


def test_the_reader_of_blocks_is_where_the_docs_show_it() -> None:
    text = (REPOSITORY / "docs" / "formats.md").read_text()
    (dotted,) = re.findall(r"`(kafka_s3_platform\.formats\.\S+)`", text)
    module, _, name = dotted.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("name", ["extending", "transforms", "iam", "restore"])
def test_the_docs_import_from_the_public_face_only(name: str) -> None:
    text = (REPOSITORY / "docs" / f"{name}.md").read_text()
    assert set(re.findall(r"^(?:from|import) (kafka_s3_platform\S*)", text, re.MULTILINE)) <= set(PUBLIC_MODULES)


def plug_in(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, lines: str) -> str:
    (folder / f"{name}.py").write_text(f"{lines}\n\nclass Mine:\n    def apply(self, batch):\n        return batch\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("KAFKA_S3_PLUGINS", name)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return f"{name}.Mine"


@pytest.mark.parametrize("module", EARLIER)
def test_a_plug_in_that_imports_from_elsewhere_works_and_is_warned(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ", ".join(EARLIER[module])
    dotted = plug_in(tmp_path, monkeypatch, f"old_{module.replace('.', '_')}", f"from {module} import {names}")
    with pytest.warns(DeprecationWarning, match=rf"imports {names} from {module}, .*from kafka_s3_platform.plugins"):
        assert load_class(dotted, MAPPER).__name__ == "Mine"


def test_one_that_imports_from_the_public_face_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "from kafka_s3_platform.errors import ConfigError\nfrom kafka_s3_platform.plugins import Outcome"
    dotted = plug_in(tmp_path, monkeypatch, "new_plug_in", lines)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_class(dotted, MAPPER).__name__ == "Mine"
