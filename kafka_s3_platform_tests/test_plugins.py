"""The public face: its members stay, and the docs use nothing else."""

import importlib
import re

import pytest

from kafka_s3_platform import plugins
from kafka_s3_platform_tests.conftest import REPOSITORY

PUBLIC_MODULES = {"kafka_s3_platform.plugins"}

MEMBERS = """
    ArchivedTotals ConnectBatch ConnectorHealth Credentials CredentialsProvider DefaultFolders DefaultPartitioner
    EXTENSION EncodedPartitions ExtractedTimes FieldFolders FieldPartitioner Folder Folders Int32s Int64s IntegrityError
    KafkaPartitioner KeyReader LayoutSettings Level MappedRecord OFFSET Outcome Partitioner Payload PermanentError
    ReadKey Record RecordExtractor RecordFailure RecordMapper RecordWriter Refusal Risk RunHistory Schema SegmentKey
    SegmentLayout Sink TimeBasedPartitioner TimeFolders TimestampExtractor TopicHealth TransientError
    UnwritableRecordsError UserConverter build_segment_key joined
"""


def test_its_members_are_these_and_stay() -> None:
    assert sorted(plugins.__all__) == sorted(MEMBERS.split())
    assert all(hasattr(plugins, name) for name in plugins.__all__)


def test_the_reader_of_blocks_is_where_the_docs_show_it() -> None:
    text = (REPOSITORY / "docs" / "formats.md").read_text()
    (dotted,) = re.findall(r"`(kafka_s3_platform\.connect\.formats\.\S+)`", text)
    module, _, name = dotted.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("name", ["extending", "transforms", "iam", "restore"])
def test_the_docs_import_from_the_public_face_only(name: str) -> None:
    text = (REPOSITORY / "docs" / f"{name}.md").read_text()
    assert set(re.findall(r"^(?:from|import) (kafka_s3_platform\S*)", text, re.MULTILINE)) <= PUBLIC_MODULES
