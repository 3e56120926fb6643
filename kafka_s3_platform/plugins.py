"""The public names of the platform, for plug-ins to import; see docs/extending.md.

Everything else may move or change its name in any version. These names do not, unless an earlier release has warned of
it.
"""

from kafka_s3_platform.connect.converters.own_class import UserConverter
from kafka_s3_platform.connect.partitioners.fields import FieldPartitioner
from kafka_s3_platform.connect.transforms import MappedRecord, RecordMapper
from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError, PermanentError, TransientError
from kafka_s3_platform.core.formats.format_io import RecordWriter
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.layouts.segment_key import (
    EXTENSION,
    OFFSET,
    KeyReader,
    ReadKey,
    Refusal,
    SegmentKey,
    SegmentLayout,
    build_segment_key,
)
from kafka_s3_platform.core.model.connect import ConnectBatch, Int32s, Int64s, Outcome, Payload, RecordFailure, Schema
from kafka_s3_platform.core.model.health import ArchivedTotals, ConnectorHealth, Level, Risk, RunHistory, TopicHealth
from kafka_s3_platform.core.partitioners.extractors import ExtractedTimes, Record, RecordExtractor, TimestampExtractor
from kafka_s3_platform.core.partitioners.folders import DefaultFolders, FieldFolders, Folder, Folders, TimeFolders
from kafka_s3_platform.core.partitioners.partitioners import (
    DefaultPartitioner,
    EncodedPartitions,
    Partitioner,
    TimeBasedPartitioner,
    joined,
)
from kafka_s3_platform.core.restore.outgoing.partitioning import KafkaPartitioner
from kafka_s3_platform.core.store.credentials import Credentials, CredentialsProvider

__all__ = [
    "EXTENSION",
    "OFFSET",
    "ArchivedTotals",
    "ConnectBatch",
    "ConnectorHealth",
    "Credentials",
    "CredentialsProvider",
    "DefaultFolders",
    "DefaultPartitioner",
    "EncodedPartitions",
    "ExtractedTimes",
    "FieldFolders",
    "FieldPartitioner",
    "Folder",
    "Folders",
    "Int32s",
    "Int64s",
    "IntegrityError",
    "KafkaPartitioner",
    "KeyReader",
    "LayoutSettings",
    "Level",
    "MappedRecord",
    "Outcome",
    "Partitioner",
    "Payload",
    "PermanentError",
    "ReadKey",
    "Record",
    "RecordExtractor",
    "RecordFailure",
    "RecordMapper",
    "RecordWriter",
    "Refusal",
    "Risk",
    "RunHistory",
    "Schema",
    "SegmentKey",
    "SegmentLayout",
    "Sink",
    "TimeBasedPartitioner",
    "TimeFolders",
    "TimestampExtractor",
    "TopicHealth",
    "TransientError",
    "UnwritableRecordsError",
    "UserConverter",
    "build_segment_key",
    "joined",
]
