"""Writes and reads a user's own format: a Python class, named by its dotted path."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafka_s3_platform.core.config.plugins import FORMAT_READER, FORMAT_WRITER, load_class
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest, RecordWriter, WriteRequest
from kafka_s3_platform.core.formats.reading import ReadBatch, batch_values, build_bytes_payload


class OwnClassReader:
    """Reads an object with the class method `read(source, key, layout)`, which returns the bytes of each value."""

    def __init__(self, request: ReadRequest) -> None:
        kind: Any = load_class(request.format_name, FORMAT_READER)
        self._values: Sequence[bytes | None] = kind.read(request.source, request.key, request.layout)

    def batches(self) -> Iterator[ReadBatch]:
        """Return the values in batches."""
        for values in batch_values(self._values):
            yield ReadBatch(build_bytes_payload(pa.array(values, pa.binary())))


def _new_writer(request: WriteRequest) -> RecordWriter:
    writer: RecordWriter = load_class(request.format_name, FORMAT_WRITER)(request.sink, request.layout, request.schema)
    return writer


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=OwnClassReader)
