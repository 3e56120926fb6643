"""Names the target topic after the source topic, by a template, a map, or a RegexRouter's regex and replacement."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_s3_platform.core.config.settings import TransformSettings, is_python_class, routes_records
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.java.regex import compile_java_regex, replace_whole_match
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch

TOPIC = "{topic}"
"""The placeholder for the name of the source topic in a template."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""The legal names of topics in Kafka, which also refuses `.` and `..`."""


@dataclass(frozen=True)
class Template:
    """A name, or a template such as `copy_of_{topic}`."""

    text: str

    def target(self, topic: str) -> str:
        """Return the template with the name of `topic`."""
        return self.text.replace(TOPIC, topic)

    @property
    def terms(self) -> str:
        """The form in which documents of restores store it."""
        return self.text


@dataclass(frozen=True)
class Regex:
    """The regex and replacement of a RegexRouter, as Java reads them. A name stays unless it matches as a whole."""

    regex: str
    replacement: str

    def target(self, topic: str) -> str:
        """Return the new name of `topic`. Raises ConfigError if Java would reject the pair."""
        try:
            return replace_whole_match(topic, compile_java_regex(self.regex), self.replacement)
        except ValueError as err:
            raise ConfigError(f"the rename rule {self.regex!r} -> {self.replacement!r}: {err}") from err

    @property
    def terms(self) -> dict[str, str]:
        """The form in which documents of restores store it."""
        return {"regex": self.regex, "replacement": self.replacement}


@dataclass(frozen=True)
class TopicMap:
    """Topics and their targets. A topic may have any name, also `regex` or `replacement`."""

    targets: Mapping[str, str]

    def target(self, topic: str) -> str:
        """Return the target of `topic`. Raises ConfigError if the map does not have it."""
        if topic not in self.targets:
            names = ", ".join(sorted(self.targets)) or "none"
            raise ConfigError(f"the topic map has no target for {topic}. It has targets for {names}")
        return self.targets[topic]

    @property
    def terms(self) -> dict[str, Any]:
        """The form in which documents of restores store it: the map itself, unless it resembles a `Regex`."""
        terms = dict(self.targets)
        if set(terms) == {"regex", "replacement"}:
            return {"topic_map": terms}
        return terms


Rename = Template | Regex | TopicMap


def name_target_topic(rename: Rename, topic: str) -> str:
    """Return the target of `topic`.

    Raises:
        ConfigError: the rule is wrong, does not have the topic, or gives an illegal name.
    """
    name = rename.target(topic)
    if not _LEGAL.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"topic {topic} would be restored to {name!r}, which is not a valid topic name in Kafka: it has 1 to 249 "
            f"letters, digits, '.', '_' and '-'. A template may contain {TOPIC}, for the source's name"
        )
    return name


def match_names(regex: str | None, names: Iterable[str]) -> list[str]:
    """Return the topics whose whole name the Java regular expression matches, or all topics without one.

    Raises ConfigError if Java would reject the expression, or if it matches no topic.
    """
    if regex is None:
        return list(names)
    try:
        pattern = compile_java_regex(regex)
    except ValueError as err:
        raise ConfigError(f"--topics (what.topics_regex) {regex!r} is not a valid regular expression: {err}") from err
    candidates = sorted(names)
    if matching := [name for name in candidates if pattern.fullmatch(name)]:
        return matching
    raise ConfigError(f"--topics (what.topics_regex) {regex!r} matches none of {', '.join(candidates) or 'no topic'}")


def apply_routers(transforms: Sequence[TransformSettings], topic: str) -> str:
    """Apply the transforms that read only a record's topic, and return the target. No record has to be read for it."""
    steps = [step for step in transforms if _is_by_topic(step)]
    nothing = {field.name: None if field.nullable else 0 for field in RECORD_SCHEMA}
    record = pa.RecordBatch.from_pylist([nothing | {"topic": topic}], schema=RECORD_SCHEMA)
    new_chain = load_extension("new_chain")
    outcome = new_chain(steps, topic).apply(ConnectBatch.of(record))
    return str(outcome.batch.records.column("topic")[0])


def routes_by_topic(transforms: Sequence[TransformSettings]) -> bool:
    """Return True if a transform changes the topic of records by the topic alone."""
    return any(map(_is_by_topic, transforms))


def names_targets(transforms: Sequence[TransformSettings]) -> bool:
    """Return True if a transform of Connect routes records by their content. What a user's class does is unknown."""
    return routes_by_record([step for step in transforms if not is_python_class(step)])


def routes_by_record(transforms: Sequence[TransformSettings]) -> bool:
    """Return True if transforms may send records of one topic to several topics."""
    return any(routes_records(step.type, step.predicate.type if step.predicate else None) for step in transforms)


def _is_by_topic(step: TransformSettings) -> bool:
    """Return True if a transform renames the topic of a record by the topic alone, whatever the record holds."""
    return step.type == "RegexRouter" and (step.predicate is None or step.predicate.type == "TopicNameMatches")
