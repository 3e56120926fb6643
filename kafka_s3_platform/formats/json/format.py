"""Writes and reads JsonFormat."""

from kafka_s3_platform.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.formats.json.read import JsonReader
from kafka_s3_platform.formats.json.write import new_json_framing
from kafka_s3_platform.formats.lines import LinesWriter


def _new_writer(request: WriteRequest) -> LinesWriter:
    framed = new_json_framing(request.part, request.schema, request.layout.decimal_format)
    return LinesWriter(request.sink, framed, request.codec, request.level)


def _new_reader(request: ReadRequest) -> JsonReader:
    # Our objects always end with a line break. One that does not is cut off, even if the number of records is right.
    return JsonReader(request.source, request.key, request.codec, open_end=not request.is_own, limits=request.limits)


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader)
