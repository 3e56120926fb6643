"""Converts messages to record batches."""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.batches import HEADER, NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.model.offsets import TopicPartition

_HEADERS = RECORD_SCHEMA.field("headers").type

MessageHeaders = list[tuple[str, bytes | None]] | None


def convert_messages(tp: TopicPartition, messages: Sequence[Message]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Convert messages of one kafka partition, none of them an error, to one batch of RECORD_SCHEMA.

    Also return, by offset, the difference of a record from the log: if a header name is not UTF-8, the client library
    returns none of the record's headers.
    """
    count = len(messages)
    headers, failures = _read_headers(messages)
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count).reshape(-1, 2)
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _build_headers(headers),
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.repeat(pa.scalar(tp.kafka_partition, pa.int32()), count),
        pa.array(np.fromiter(map(Message.offset, messages), np.int64, count)),
        pa.array(stamps[:, 1]).view(RECORD_SCHEMA.field("timestamp").type),
        pa.array(_read_timestamp_types(stamps)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), failures


def make_unkept_error(tp: TopicPartition, failures: Mapping[int, str]) -> IntegrityError:
    """Return the error for records that differ from the log, unless the reader may deliver such."""
    offset, reason = next(iter(failures.items()))
    return IntegrityError(
        f"topic {tp.topic}, kafka partition {tp.kafka_partition}, offset {offset}: {reason}. A topic that is compared "
        "with an archive may not hold such a record: restore to another topic"
    )


def _read_timestamp_types(stamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    # librdkafka numbers the types none, create and append from 0, Spark from -1. Brokers call a missing timestamp
    # "create".
    types: npt.NDArray[np.int32] = np.where(stamps[:, 1] == NO_TIMESTAMP, -1, stamps[:, 0] - 1).astype(np.int32)
    return types


def _read_headers(messages: Sequence[Message]) -> tuple[list[MessageHeaders], dict[int, str]]:
    header_lists: list[MessageHeaders] = []
    failures: dict[int, str] = {}
    rest = iter(messages)
    while len(header_lists) < len(messages):
        try:
            # Through map and not a comprehension: only a checked call notices that headers() failed half-way.
            header_lists.extend(map(Message.headers, rest))  # type: ignore[arg-type]
        except (SystemError, UnicodeDecodeError):
            failures[messages[len(header_lists)].offset() or 0] = (
                "a header name is not UTF-8, and the Kafka client then hands over none of the record's headers"
            )
            header_lists.append(None)
    return header_lists, failures


def _build_headers(headers: Sequence[MessageHeaders]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    present = list(chain.from_iterable(filter(None, headers)))
    names = list(map(itemgetter(0), present))
    values = list(map(itemgetter(1), present))
    ends = np.cumsum([len(names_and_values or ()) for names_and_values in headers], dtype=np.int32)
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(HEADER)
    )
    bounds = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    absent = pa.array([not names_and_values for names_and_values in headers])
    return pa.ListArray.from_arrays(bounds, flat, type=_HEADERS, mask=absent)
