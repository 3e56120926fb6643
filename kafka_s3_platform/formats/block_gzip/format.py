"""Writes Block-GZIP, and reads it as lines. `read.BlockGzipReader` reads parts of an object by its index."""

import numpy as np

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.block_gzip.write import BlockGzipWriter
from kafka_s3_platform.formats.byte_array.read import BytesReader
from kafka_s3_platform.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.formats.json.write import new_text_encoder
from kafka_s3_platform.formats.lines import holds_inner_line_break
from kafka_s3_platform.formats.parts import read_plain_bytes
from kafka_s3_platform.model.connect import Mask, Payload


def _new_writer(request: WriteRequest) -> BlockGzipWriter:
    values = new_text_encoder(request.schema, request.layout.decimal_format)
    return BlockGzipWriter(request.sink, values, request.layout.block_size, request.level)


def _new_reader(request: ReadRequest) -> BytesReader:
    return BytesReader(request.source, request.key, "\n", "gzip", any_bytes=request.any_bytes, limits=request.limits)


def _find_unsafe(payload: Payload, layout: LayoutSettings) -> Mask:  # noqa: ARG001 - no setting changes it
    # Values that came as JSON are on one line each: line breaks in strings are escaped.
    if payload.raw_is_json:
        return np.zeros(len(payload), bool)
    return holds_inner_line_break(read_plain_bytes(payload))


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader, find_unsafe=_find_unsafe)
