"""What the target topic is called: a template, a map, or a RegexRouter's pair, applied to the source's name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_s3_platform.config.java_regex import compile_java_regex, compile_java_replacement
from kafka_s3_platform.config.settings import TransformSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.transforms import new_chain

TOPIC = "{topic}"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
BY_RECORD = ("TimestampRouter", "ExtractTopic")
"""What the types of transforms begin with that route records of one topic to different ones."""


@dataclass(frozen=True)
class Template:
    """A name, or a template such as `copy_of_{topic}`."""

    text: str

    def target(self, topic: str) -> str:
        """What it makes of `topic`."""
        return self.text.replace(TOPIC, topic)

    @property
    def terms(self) -> str:
        """As documents of restores hold it."""
        return self.text


@dataclass(frozen=True)
class Regex:
    """RegexRouter's pair: Java's, the whole name has to match, else it stays."""

    regex: str
    replacement: str

    def target(self, topic: str) -> str:
        """What it makes of `topic`. Raises ConfigError where it is no pair of Java's."""
        try:
            pattern = compile_java_regex(self.regex)
            replace = compile_java_replacement(self.replacement, pattern)
        except ValueError as err:
            raise ConfigError(f"the rename rule {self.regex!r} -> {self.replacement!r}: {err}") from err
        return pattern.sub(replace, topic, count=1) if pattern.fullmatch(topic) else topic

    @property
    def terms(self) -> dict[str, str]:
        """As documents of restores hold it."""
        return {"regex": self.regex, "replacement": self.replacement}


@dataclass(frozen=True)
class TopicMap:
    """Topics and their targets. A topic may have any name, `regex` and `replacement` too."""

    targets: Mapping[str, str]

    def target(self, topic: str) -> str:
        """The target of `topic`. Raises ConfigError where there is none."""
        if topic not in self.targets:
            names = ", ".join(sorted(self.targets)) or "none"
            raise ConfigError(f"the map of topics says nothing of {topic}, it names {names}")
        return self.targets[topic]

    @property
    def terms(self) -> dict[str, Any]:
        """As documents of restores hold it: the map itself, unless that would be the document of a `Regex`."""
        found = dict(self.targets)
        return {"topic_map": found} if set(found) == {"regex", "replacement"} else found


Rename = Template | Regex | TopicMap


def target_topic(rename: Rename, topic: str) -> str:
    """The target of `topic`.

    Raises:
        ConfigError: the rule is wrong, says nothing of the topic, or makes a name that Kafka does not allow.
    """
    name = rename.target(topic)
    if not _LEGAL.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"topic {topic} would be restored to {name!r}, which Kafka does not allow as a topic's name: 1 to 249 "
            f"letters, digits, '.', '_' and '-'. A template holds {TOPIC} for the source's name"
        )
    return name


def routed_topic(transforms: Sequence[TransformSettings], topic: str) -> str:
    """What those transforms that look at nothing but a record's topic make of it: it names the target beforehand."""
    steps = [step for step in transforms if _is_by_topic(step)]
    nothing = {field.name: None if field.nullable else 0 for field in RECORD_SCHEMA}
    record = pa.RecordBatch.from_pylist([nothing | {"topic": topic}], schema=RECORD_SCHEMA)
    done = new_chain(steps, topic).apply(ConnectBatch.of(record))
    return str(done.batch.records.column("topic")[0])


def routes(transforms: Sequence[TransformSettings]) -> bool:
    """Whether the topic alone decides where transforms send records, and they send it anywhere."""
    return any(map(_is_by_topic, transforms))


def routes_by_record(transforms: Sequence[TransformSettings]) -> bool:
    """Whether records of one topic may be sent to different ones."""
    return any(
        step.type.startswith(BY_RECORD) or "." in step.type or (step.type == "RegexRouter" and not _is_by_topic(step))
        for step in transforms
    )


def _is_by_topic(step: TransformSettings) -> bool:
    return step.type == "RegexRouter" and (step.predicate is None or step.predicate.type == "TopicNameMatches")
