"""Writes and reads AvroFormat."""

from collections.abc import Mapping

from kafka_s3_platform.avro.schema import find_invalid_name
from kafka_s3_platform.formats.avro.read import AvroReader
from kafka_s3_platform.formats.avro.write import AvroWriter, UnfitError
from kafka_s3_platform.formats.format_io import FormatIO, WriteRequest
from kafka_s3_platform.formats.parts import (
    ObjectPart,
    UnwritableRecordsError,
    UnwritableSchemaError,
    find_payload,
    list_failures,
    require_no_null,
)
from kafka_s3_platform.model.connect import ConnectBatch


class AvroPartWriter:
    """Writes values, keys or headers into an Avro container."""

    def __init__(self, writer: AvroWriter, part: ObjectPart) -> None:
        self._writer = writer
        self._part = part
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch."""
        try:
            self._writer.write(require_no_null(batch, find_payload(batch, self._part)))
        except UnfitError as err:
            raise UnwritableRecordsError(list_failures(batch, "avro", err.reasons)) from err

    def close(self, facts: Mapping[str, str]) -> None:
        """Write the buffered records. The sink stays open."""
        self._writer.close(facts)


def _new_writer(request: WriteRequest) -> AvroPartWriter:
    schema = request.required_schema
    if (name := find_invalid_name(schema.avro)) is not None:
        raise UnwritableSchemaError(
            f"{name!r} is no name that Avro allows: rename it with the transform ReplaceField, or write JsonFormat"
        )
    writer = AvroWriter(request.sink, schema, request.codec, request.level)
    return AvroPartWriter(writer, request.part)


FORMAT_IO = FormatIO(
    new_writer=_new_writer,
    new_reader=lambda request: AvroReader(request.source, request.key, request.limits),
)
