"""The Arrow schema of records. Its columns have the names of Spark's Kafka source.

Null, empty and absent are three different things, and every stage keeps them apart.
Source of the names: Spark's Structured Streaming + Kafka integration guide.
"""

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False))),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)
"""`headers` is null for a record without headers. `timestamp` is the one in Kafka, -1 ms if there is none.
`timestampType` is Spark's: 0 CreateTime, 1 LogAppendTime, -1 none."""

NO_TIMESTAMP = -1
"""Kafka's RecordBatch.NO_TIMESTAMP."""
