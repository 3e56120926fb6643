"""RegexRouter, TimestampRouter, ExtractTopic and Filter. They do not change a record's content.

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
from kafka_s3_platform.connect.transforms.edits import TransformStep
from kafka_s3_platform.core.java.regex import replace_whole_match
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch, DataError, Mask, Outcome, strip_branch

_SHOWN = 100
"""The most characters a message shows of a wrong topic name."""


class Filter(TransformStep):
    """Drops the records its predicate selects."""

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        return Outcome(batch.take(np.flatnonzero(~selected)))


class RegexRouter(TransformStep):
    """Renames topics that the regex matches fully. It replaces the first match, which may be a part of the name."""

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Rename the topics of the selected records. Each distinct topic is renamed once."""
        regex: re.Pattern[str] = self._values["regex"]
        topics = pc.dictionary_encode(batch.records.column("topic"))
        names = [
            replace_whole_match(name, regex, self._values["replacement"]) for name in topics.dictionary.to_pylist()
        ]
        return Outcome(_replace_topics(batch, pa.array(names, pa.string()).take(topics.indices), selected))


class TimestampRouter(TransformStep):
    """Renames topics by the record's timestamp. Each pair of a topic and a time's text is formatted once."""

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Rename the topics of the selected records. A record without a timestamp fails."""
        missing = selected & (batch.timestamps == NO_TIMESTAMP)
        renamed = _replace_topics(batch, self._name_topics(batch), selected & ~missing)
        return self.fail_records(
            renamed, dict.fromkeys(np.flatnonzero(missing).tolist(), "Timestamp missing on record")
        )

    def _name_topics(self, batch: ConnectBatch) -> pa.Array:
        """Return the new topic of each record. Each distinct pair of topic and time span is formatted once."""
        topics = pc.dictionary_encode(batch.records.column("topic"))
        names = topics.dictionary.to_pylist()
        # All timestamps of a time span have the same text.
        times: SimpleDateFormat = self._values["timestamp.format"]
        spans, span_of = np.unique(batch.timestamps // times.resolution_ms, return_inverse=True)
        pairs, pair_of = np.unique(span_of * len(names) + topics.indices.to_numpy(), return_inverse=True)
        renamed = []
        for pair in pairs.tolist():
            span, name = divmod(pair, len(names))
            text = times.format(int(spans[span]) * times.resolution_ms)
            topic = self._values["topic.format"].replace("${topic}", names[name])
            renamed.append(topic.replace("${timestamp}", text))
        return pa.array(renamed, pa.string()).take(pa.array(pair_of))


class ExtractTopic(TransformStep):
    """Renames topics to the UTF-8 text of the key, the value, a field of them, or the last header with a given name.

    Source of the rules: Confluent's page "ExtractTopic SMT Usage Reference".
    """

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side, values)
        self._field: str = values["field"]
        is_path = values["field.format"] == "JSON_PATH"
        self._path: tuple[str | int, ...] = (
            split_json_path(self._field) if is_path else (self._field,) * bool(self._field)
        )

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Rename the topics of the selected records. A record fails if its source names no topic."""
        topics: list[str] = batch.records.column("topic").to_pylist()
        sources = self._list_sources(batch)
        reasons: dict[int, object] = {}
        for row in np.flatnonzero(selected).tolist():
            try:
                topics[row] = self._find_topic(sources[row]) or topics[row]
            except DataError as error:
                reasons[row] = error
        return self.fail_records(_replace_topics(batch, pa.array(topics, pa.string()), selected), reasons)

    def _list_sources(self, batch: ConnectBatch) -> Sequence[Any]:
        """Return, for each record, what may name its topic: its key, its value, or its headers by name."""
        if self._side == "header":
            return list(map(_map_headers, batch.records.column("headers").to_pylist()))
        return batch.key.objects if self._side == "key" else batch.value.objects

    def _find_topic(self, source: Any) -> str | None:
        """Return the topic that a key, a value or headers name, or None if the record keeps its topic.

        Raises DataError if they name no topic.
        """
        require_exact(source)
        content = source
        for step in self._path:
            content = _take_step(content, step)
        source_name = f"{self._side}{f' field {self._field}' if self._field else ''}"
        if content is None:
            if self._values["skip.missing.or.null"]:
                return None
            raise DataError(f"{source_name} is missing or null, and names no topic")
        topic = _decode_text(content)
        if not topic:
            raise DataError(f"{source_name} is no text that could name a topic, but {type(content).__name__}")
        if not is_topic_name(topic):
            raise DataError(f"{source_name} is {topic[:_SHOWN]!r}, which no topic can be named")
        return topic


def _map_headers(headers: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the values of a record's headers by name. Of several headers with the same name, the last one counts."""
    return {header["key"]: header["value"] for header in headers or ()}


def _take_step(value: Any, step: str | int) -> Any:
    """Return the member `step` of an object or the item `step` of a list, or None if there is none."""
    value = strip_branch(value)
    if isinstance(step, str):
        return value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, list) and step < len(value):
        return value[step]
    return None


def _decode_text(value: Any) -> str | None:
    """Return a text, or bytes in UTF-8 as text, or None for other values."""
    value = strip_branch(value)
    try:
        if isinstance(value, bytes):
            return value.decode()
        return value if isinstance(value, str) else None
    except UnicodeDecodeError:
        return None


def _replace_topics(batch: ConnectBatch, topics: pa.Array, selected: Mask) -> ConnectBatch:
    """Return the batch with other topics for the selected records. `topics` has one for each record."""
    if not selected.all():
        topics = pc.if_else(pa.array(selected), topics, batch.records.column("topic"))
    return replace(batch, records=replace_column(batch.records, "topic", topics))
