"""Writes and reads ByteArrayFormat."""

import numpy as np

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.byte_array.read import BytesReader
from kafka_s3_platform.formats.byte_array.write import LENGTH, new_framing
from kafka_s3_platform.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.formats.lines import LinesWriter, holds_separator
from kafka_s3_platform.formats.parts import read_plain_bytes
from kafka_s3_platform.model.connect import Mask, Payload


def _new_writer(request: WriteRequest) -> LinesWriter:
    framed = new_framing(request.part, request.layout.bytes_separator)
    return LinesWriter(request.sink, framed, request.codec, request.level)


def _new_reader(request: ReadRequest) -> BytesReader:
    # Values may begin like a compressed stream. Our own objects are compressed only if their codec is named.
    codec = request.codec or ("none" if request.is_own else "")
    return BytesReader(
        request.source,
        request.key,
        request.layout.bytes_separator,
        codec,
        # Our objects always end with a separator. One that does not is cut off, even if the number of records is right.
        open_end=request.may_end_open and not request.is_own,
        any_bytes=request.any_bytes,
        limits=request.limits,
        ends_open=request.ends_open,
    )


def _find_unsafe(payload: Payload, layout: LayoutSettings) -> Mask:
    if layout.bytes_separator == LENGTH:
        return np.zeros(len(payload), bool)
    return holds_separator(read_plain_bytes(payload), layout.bytes_separator.encode())


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader, find_unsafe=_find_unsafe)
