"""Archive Kafka topics to S3 in hourly and daily chunks, and replay them exactly as they were."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_s3_platform.core.text import guard_logs

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = ["read"]

guard_logs()


def read(
    connector: str,
    topic: str | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    kafka_partitions: Iterable[int] | None = None,
    decode: bool = False,
    schema_id: int | None = None,
) -> "ds.Dataset":
    """Return the archived records of a topic as an Arrow dataset, for DuckDB, polars, pandas and others.

    It holds each record of the present archive once, even where hours and their merged day stand side by side. Records
    not archived (yet) are missing: `kafka-s3 show` and `kafka-s3 verify` list such gaps. It has the columns of Spark's
    Kafka source: key, value, headers, topic, partition, offset, timestamp, timestampType. Facts missing from the
    objects are null. The file of a source connector names the objects of another tool, as the bucket holds them.

    Args:
        connector: the name of a connector file in the folder KAFKA_S3_CONNECTORS, or else in `connectors`.
        topic: may be left out if the connector has only one.
        start: only records with this timestamp or a later one. Objects without timestamps are read if their hour or
            folder may hold such a record.
        end: only records with an earlier timestamp, else as `start`.
        kafka_partitions: only records of these kafka partitions.
        decode: make `value` a typed column, of the newest schema named by the selection's values (Avro, JSON Schema or
            Protobuf of a registry, by the archived schemas), or of the schema of its newest object. Values of other
            versions are converted by Avro's schema resolution. Reading raises RecordError if that fails.
        schema_id: the archived Avro schema to decode to, instead of the newest.

    Raises:
        ConfigError: there is no such connector or topic, a time has no timezone, or the connector's file does not say
            how objects are to be read or values decoded.
        IntegrityError: the name of another tool's object does not show what it is.
        StoreUnavailableError: the store does not answer.
        IndexDamagedError: the index cannot be read.
    """
    from kafka_s3_platform.operate.reading.dataset import find_objects, make_filter

    objects = find_objects(connector, topic, make_filter(start, end, kafka_partitions))
    return (objects.decode_values(schema_id) if decode or schema_id is not None else objects).open()
