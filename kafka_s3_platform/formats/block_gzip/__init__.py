"""Block-GZIP. The docs show `read_from` at this path, for programs of users."""

from kafka_s3_platform.formats.block_gzip.write import read_from

__all__ = ["read_from"]
