"""Writes ParquetFormat: decoded values (or keys, or headers) as columns, typed by their Avro schema.

Types are as in parquet-avro, but lists have Parquet's three levels: a union of several types is a struct
`member0`, `member1` ..., all null but one; enums are strings; decimals, dates, times and timestamps have their logical
types. A value other than a record becomes the column `value`; keys are the column `key`, headers `headers`.
Sources: Confluent S3 sink, ParquetFormat; Apache parquet-avro, AvroSchemaConverter.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.avro.values import VALUE_ERRORS, AvroSchema
from kafka_s3_platform.config.codecs import PARQUET_CODECS
from kafka_s3_platform.formats.parquet.arrow_columns import ArrowColumns, convert_type
from kafka_s3_platform.formats.parquet.row_groups import RowGroups
from kafka_s3_platform.formats.parts import (
    ObjectPart,
    UnwritableSchemaError,
    build_unwritable_error,
    find_payload,
    require_no_null,
)
from kafka_s3_platform.formats.sink import Sink
from kafka_s3_platform.model.batches import count_record_bytes
from kafka_s3_platform.model.connect import ConnectBatch, Schema

# These decide the bytes of an object: a run that is repeated after a change here writes other objects.
ROW_GROUP_BYTES = 33_554_432
ROW_GROUP_RECORDS = 131_072

KEPT_SCHEMA = "parquet.avro.schema"
"""The metadata in which parquet-avro, and so Confluent's sink, keeps the Avro schema."""
WRAPPER = "KafkaS3PlatformWrapper"
"""The record around a value that is none: its one field is the value. Types inside would get a namespace of it."""


class ParquetWriter:
    """Writes decoded records of one schema. The same records give the same bytes, however they are batched.

    A row group ends at the record that brings it to `ROW_GROUP_BYTES` of the bytes from Kafka, or to
    `ROW_GROUP_RECORDS`.

    Raises:
        UnwritableSchemaError: Parquet cannot hold the schema: a type contains itself, a record has no fields, a decimal
            has more than 76 digits, or there are more than a hundred thousand columns.
    """

    def __init__(self, sink: Sink, part: ObjectPart, schema: Schema, codec: str, level: int | None) -> None:
        avro = AvroSchema(schema.avro)
        self._part = part
        self._is_wrapped = part != "value" or avro.kind(avro.root) != "record"
        root = {"type": "record", "name": WRAPPER, "fields": [{"name": part, "type": avro.root}]}
        text = schema.text
        if self._is_wrapped:
            text = json.dumps({**root, "fields": [{"name": part, "type": schema.avro}]}, separators=(",", ":"))
        self._schema_text = text
        try:
            self._columns = ArrowColumns(avro, root if self._is_wrapped else avro.root)
        except UnwritableSchemaError as err:
            raise UnwritableSchemaError(f"{err}; write these topics as AvroFormat or JsonFormat") from err
        open_writer = partial(
            pq.ParquetWriter,
            schema=pa.schema(list(self._columns.type)),
            version="2.6",
            data_page_version="1.0",
            compression=codec,
            compression_level=level or PARQUET_CODECS[codec].parquet_level,
            write_page_checksum=True,
        )
        self._groups = RowGroups(open_writer, sink, ROW_GROUP_BYTES, ROW_GROUP_RECORDS)
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._groups.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch, none of them null.

        Raises:
            UnwritableRecordsError: some values do not fit the schema.
        """
        rows = pa.RecordBatch.from_struct_array(self._rows(batch))
        self._groups.write(rows, count_record_bytes(batch.records))

    def close(self, facts: Mapping[str, str]) -> None:
        """Write the buffered records, `facts` and the footer. The sink stays open."""
        self._groups.close({**facts, KEPT_SCHEMA: self._schema_text})

    def _rows(self, batch: ConnectBatch) -> pa.StructArray:
        payload = require_no_null(batch, find_payload(batch, self._part))
        columns = getattr(payload, "columns", None)
        decoded = columns() if columns is not None and not self._is_wrapped else None
        if decoded is not None:
            # if something does not fit, the slower way below finds the records that it belongs to
            with suppress(*VALUE_ERRORS):
                return convert_type(decoded, self._columns.type)
        objects = [{self._part: o} for o in payload.objects] if self._is_wrapped else payload.objects
        try:
            return self._columns.of(objects)
        except VALUE_ERRORS as err:
            raise build_unwritable_error(batch, objects, "parquet", lambda o: self._columns.of([o])) from err
