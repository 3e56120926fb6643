"""Writes and reads ParquetFormat."""

from kafka_s3_platform.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.formats.parquet.read import ParquetReader
from kafka_s3_platform.formats.parquet.write import ParquetWriter


def _new_writer(request: WriteRequest) -> ParquetWriter:
    return ParquetWriter(request.sink, request.part, request.required_schema, request.codec, request.level)


def _new_reader(request: ReadRequest) -> ParquetReader:
    return ParquetReader(request.source, request.key, request.part, wrapped=request.is_wrapped, limits=request.limits)


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader)
