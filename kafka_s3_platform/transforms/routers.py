"""RegexRouter, TimestampRouter and Filter: what changes no record's content.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.java_regex import compile_java_replacement
from kafka_s3_platform.config.simple_date_format import SimpleDateFormat
from kafka_s3_platform.config.transform_catalogue import json_path
from kafka_s3_platform.config.values import is_topic_name
from kafka_s3_platform.model.connect import ConnectBatch, Outcome, RecordFailure
from kafka_s3_platform.model.record import NO_TIMESTAMP
from kafka_s3_platform.transforms.avro import DataError
from kafka_s3_platform.transforms.edits import DATA_EXCEPTION, Mask
from kafka_s3_platform.transforms.headers import with_column

_SHOWN = 100
"""Characters of a text that names no topic, for messages."""


class Filter:
    """Drops the records that its predicate selects."""

    def __init__(self, executing_class: str, _: Mapping[str, Any]) -> None:
        self.executing_class = executing_class

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        kept = np.zeros(batch.num_rows, bool) if selected is None else ~selected
        return Outcome(batch.take(np.flatnonzero(kept)))


class RegexRouter:
    """Renames topics that the regex matches as a whole. What is replaced is the first match, perhaps a shorter one."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._regex: re.Pattern[str] = values["regex"]
        self._replacement = compile_java_replacement(values["replacement"], self._regex)

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        topics = pc.dictionary_encode(batch.records.column("topic"))
        renamed = pa.array([self._renamed(topic) for topic in topics.dictionary.to_pylist()], pa.string())
        return Outcome(_with_topics(batch, renamed.take(topics.indices), selected))

    def _renamed(self, topic: str) -> str:
        if not self._regex.fullmatch(topic):
            return topic
        return self._regex.sub(self._replacement, topic, count=1)


class TimestampRouter:
    """Renames topics by the record's timestamp. Each topic and text of a time is put together once."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._topic_format: str = values["topic.format"]
        self._format: SimpleDateFormat = values["timestamp.format"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        chosen = np.ones(batch.num_rows, bool) if selected is None else selected
        missing = chosen & (batch.timestamps == NO_TIMESTAMP)
        renamed = _with_topics(batch, self._topics(batch), chosen & ~missing)
        if not missing.any():
            return Outcome(renamed)
        return Outcome(renamed.take(np.flatnonzero(~missing)), tuple(self._failures(batch, missing)))

    def _topics(self, batch: ConnectBatch) -> pa.Array:
        topics = pc.dictionary_encode(batch.records.column("topic"))
        names = topics.dictionary.to_pylist()
        spans, span_of = np.unique(batch.timestamps // self._format.resolution_ms, return_inverse=True)
        pairs, pair_of = np.unique(span_of * len(names) + topics.indices.to_numpy(), return_inverse=True)
        texts = [self._renamed(names[pair % len(names)], int(spans[pair // len(names)])) for pair in pairs.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(pair_of))

    def _renamed(self, topic: str, span: int) -> str:
        text = self._format.format(span * self._format.resolution_ms)
        return self._topic_format.replace("${topic}", topic).replace("${timestamp}", text)

    def _failures(self, batch: ConnectBatch, missing: Mask) -> list[RecordFailure]:
        message = "Timestamp missing on record"
        return [
            RecordFailure(offset, "TRANSFORMATION", self.executing_class, DATA_EXCEPTION, message)
            for offset in batch.offsets[missing].tolist()
        ]


class ExtractTopic:
    """Renames topics by what the key, the value, a field of them or the last header of a name says: text, in UTF-8.

    Source of the rules: Confluent's page "ExtractTopic SMT Usage Reference".
    """

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._side = side
        self._field: str = values["field"]
        is_path = values["field.format"] == "JSON_PATH"
        self._path: tuple[str | int, ...] = json_path(self._field) if is_path else (self._field,) * bool(self._field)
        self._skips_missing: bool = values["skip.missing.or.null"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        chosen = np.ones(batch.num_rows, bool) if selected is None else selected
        topics: list[str] = batch.records.column("topic").to_pylist()
        sources = self._sources(batch)
        faults: dict[int, str] = {}
        for row in np.flatnonzero(chosen).tolist():
            try:
                topics[row] = self._topic(sources[row]) or topics[row]
            except DataError as error:
                faults[row] = str(error)
        renamed = _with_topics(batch, pa.array(topics, pa.string()), None)
        if not faults:
            return Outcome(renamed)
        offsets = batch.offsets
        failures = tuple(
            RecordFailure(int(offsets[row]), "TRANSFORMATION", self.executing_class, DATA_EXCEPTION, text)
            for row, text in faults.items()
        )
        return Outcome(renamed.take(np.setdiff1d(np.arange(batch.num_rows), list(faults))), failures)

    def _sources(self, batch: ConnectBatch) -> Sequence[Any]:
        if self._side == "Header":
            listed = batch.records.column("headers").to_pylist()
            return [{header["key"]: header["value"] for header in headers or ()} for headers in listed]
        return batch.key.objects if self._side == "Key" else batch.value.objects

    def _topic(self, source: Any) -> str | None:
        """None where the topic stays."""
        found = source
        for step in self._path:
            found = _step(found, step)
        what = f"{self._side.lower()}{f' field {self._field}' if self._field else ''}"
        if found is None:
            if self._skips_missing:
                return None
            raise DataError(f"{what} is missing or null, and names no topic")
        topic = _text(found)
        if not topic:
            raise DataError(f"{what} is no text that could name a topic, but {type(found).__name__}")
        if not is_topic_name(topic):
            raise DataError(f"{what} is {topic[:_SHOWN]!r}, which no topic can be named")
        return topic


def _step(value: Any, step: str | int) -> Any:
    """What is at a name or an index of a value, None where there is nothing."""
    if isinstance(step, str):
        return value.get(step) if isinstance(value, Mapping) else None
    return value[step] if isinstance(value, list) and step < len(value) else None


def _text(value: Any) -> str | None:
    try:
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None
    except UnicodeDecodeError:
        return None


def _with_topics(batch: ConnectBatch, topics: pa.Array, selected: Mask | None) -> ConnectBatch:
    if selected is not None:
        topics = pc.if_else(pa.array(selected), topics, batch.records.column("topic"))
    return replace(batch, records=with_column(batch.records, "topic", topics))
