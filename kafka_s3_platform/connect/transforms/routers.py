"""RegexRouter, TimestampRouter, ExtractTopic and Filter: they change no record's content.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.json_values import require_exact
from kafka_s3_platform.connect.config.keys.transform_catalogue import split_json_path
from kafka_s3_platform.connect.config.keys.values import is_topic_name
from kafka_s3_platform.connect.java.simple_date_format import SimpleDateFormat
from kafka_s3_platform.connect.transforms.edits import fail_records
from kafka_s3_platform.core.java.regex import replace_whole_match
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch, DataError, Mask, Outcome, strip_branch

_SHOWN = 100
"""Most characters of a wrong topic name that a message shows."""


class Filter:
    """Drops the records selected by its predicate."""

    def __init__(self, executing_class: str, _: Mapping[str, Any]) -> None:
        self.executing_class = executing_class

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        """Drop the selected records."""
        is_passed = np.zeros(batch.num_rows, bool) if selected is None else ~selected
        return Outcome(batch.take(np.flatnonzero(is_passed)))


class RegexRouter:
    """Renames topics fully matched by the regex. It replaces the first match, perhaps a part of the name."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._regex: re.Pattern[str] = values["regex"]
        self._replacement: str = values["replacement"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        # Each distinct topic is renamed once.
        """Rename the topics of the selected records."""
        topics = pc.dictionary_encode(batch.records.column("topic"))
        names = topics.dictionary.to_pylist()
        renamed = pa.array([replace_whole_match(name, self._regex, self._replacement) for name in names], pa.string())
        return Outcome(_replace_topics(batch, renamed.take(topics.indices), selected))


class TimestampRouter:
    """Renames topics by the record's timestamp. Each pair of a topic and a time's text is formatted once."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._topic_format: str = values["topic.format"]
        self._format: SimpleDateFormat = values["timestamp.format"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        """Rename the topics of the selected records. One without a timestamp fails."""
        is_selected = np.ones(batch.num_rows, bool) if selected is None else selected
        missing = is_selected & (batch.timestamps == NO_TIMESTAMP)
        renamed = _replace_topics(batch, self._name_topics(batch), is_selected & ~missing)
        reasons = dict.fromkeys(np.flatnonzero(missing).tolist(), "Timestamp missing on record")
        return fail_records(renamed, reasons, self.executing_class)

    def _name_topics(self, batch: ConnectBatch) -> pa.Array:
        """Return the new topic of each record. Each distinct pair of topic and time span is formatted once."""
        topics = pc.dictionary_encode(batch.records.column("topic"))
        names = topics.dictionary.to_pylist()
        # All timestamps of a span have the same text.
        spans, span_of = np.unique(batch.timestamps // self._format.resolution_ms, return_inverse=True)
        pairs, pair_of = np.unique(span_of * len(names) + topics.indices.to_numpy(), return_inverse=True)
        texts = [
            self._format_topic(names[pair % len(names)], int(spans[pair // len(names)])) for pair in pairs.tolist()
        ]
        return pa.array(texts, pa.string()).take(pa.array(pair_of))

    def _format_topic(self, topic: str, span: int) -> str:
        """Return the new name of a topic for times of this span, of which all have one text."""
        text = self._format.format(span * self._format.resolution_ms)
        return self._topic_format.replace("${topic}", topic).replace("${timestamp}", text)


class ExtractTopic:
    """Renames topics to the text, in UTF-8, of the key, the value, a field of them, or the last header of a name.

    Source of the rules: Confluent's page "ExtractTopic SMT Usage Reference".
    """

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._side = side
        self._field: str = values["field"]
        is_path = values["field.format"] == "JSON_PATH"
        self._path: tuple[str | int, ...] = (
            split_json_path(self._field) if is_path else (self._field,) * bool(self._field)
        )
        self._skips_missing: bool = values["skip.missing.or.null"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        """Rename the topics of the selected records. One whose source names no topic fails."""
        is_selected = np.ones(batch.num_rows, bool) if selected is None else selected
        topics: list[str] = batch.records.column("topic").to_pylist()
        sources = self._list_sources(batch)
        reasons: dict[int, object] = {}
        for row in np.flatnonzero(is_selected).tolist():
            try:
                topics[row] = self._find_topic(sources[row]) or topics[row]
            except DataError as error:
                reasons[row] = error
        renamed = _replace_topics(batch, pa.array(topics, pa.string()), None)
        return fail_records(renamed, reasons, self.executing_class)

    def _list_sources(self, batch: ConnectBatch) -> Sequence[Any]:
        """Return for each record what may name its topic: its key, its value, or its headers by name."""
        if self._side == "Header":
            # Of several headers with one name, the last one counts.
            headers_column = batch.records.column("headers").to_pylist()
            return [{header["key"]: header["value"] for header in headers or ()} for headers in headers_column]
        if self._side == "Key":
            return batch.key.objects
        return batch.value.objects

    def _find_topic(self, source: Any) -> str | None:
        """Return the new topic, None if it stays as it is."""
        require_exact(source)
        content = source
        for step in self._path:
            content = _take_step(content, step)
        source_name = f"{self._side.lower()}{f' field {self._field}' if self._field else ''}"
        if content is None:
            if self._skips_missing:
                return None
            raise DataError(f"{source_name} is missing or null, and names no topic")
        topic = _decode_text(content)
        if not topic:
            raise DataError(f"{source_name} is no text that could name a topic, but {type(content).__name__}")
        if not is_topic_name(topic):
            raise DataError(f"{source_name} is {topic[:_SHOWN]!r}, which no topic can be named")
        return topic


def _take_step(value: Any, step: str | int) -> Any:
    """Return the member or item of a value, None if there is none."""
    value = strip_branch(value)
    if isinstance(step, str):
        return value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, list) and step < len(value):
        return value[step]
    return None


def _decode_text(value: Any) -> str | None:
    """Return a text, or bytes of UTF-8 as text. None for other values."""
    value = strip_branch(value)
    try:
        if isinstance(value, bytes):
            return value.decode()
        return value if isinstance(value, str) else None
    except UnicodeDecodeError:
        return None


def _replace_topics(batch: ConnectBatch, topics: pa.Array, selected: Mask | None) -> ConnectBatch:
    """Return the batch with other topics for the selected records (None: for all)."""
    if selected is not None:
        topics = pc.if_else(pa.array(selected), topics, batch.records.column("topic"))
    return replace(batch, records=replace_column(batch.records, "topic", topics))
