"""Connect's single message transforms, their predicates, and mappers written in Python."""

from kafka_s3_platform.connect.transforms.chain import new_chain
from kafka_s3_platform.connect.transforms.mappers import MappedRecord, RecordMapper

__all__ = ["MappedRecord", "RecordMapper", "new_chain"]
