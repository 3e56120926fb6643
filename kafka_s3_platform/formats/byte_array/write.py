"""Writes ByteArrayFormat: the bytes of values or keys as they came, each ended by `format.bytearray.separator`.

With our own value `length` of that setting, each value follows its length, a 32-bit big-endian number, and nothing
ends it. Values may then hold any bytes. Source: Confluent S3 sink, `format.bytearray.separator`.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.columns import read_strings
from kafka_s3_platform.formats.lines import end_values
from kafka_s3_platform.formats.parts import ObjectPart, read_part_bytes
from kafka_s3_platform.model.connect import ConnectBatch

LENGTH = "length"


def new_framing(part: ObjectPart, separator: str) -> Callable[[ConnectBatch], memoryview]:
    """Return a function to join the values, or keys, of a batch into one buffer.

    None of them may be null or hold the separator.

    Raises:
        ConfigError: the separator is empty, and nothing would separate records.
    """
    if not separator:
        raise ConfigError(
            "format.bytearray.separator is empty: records could not be told apart; name a separator, or `length`"
        )
    if separator == LENGTH:
        return lambda batch: _add_lengths(read_part_bytes(batch, part))
    return lambda batch: end_values(read_part_bytes(batch, part), separator.encode())


def _add_lengths(values: pa.BinaryArray) -> memoryview:
    lengths = read_strings(values).lengths.astype(">u4")
    before = pa.Array.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(lengths.tobytes())])
    return read_strings(pc.binary_join_element_wise(before.cast(pa.binary()), values, b"")).data
