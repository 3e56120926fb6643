"""What the target topic is called: a template, a map, or a RegexRouter's pair, applied to the source's name."""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from kafka_s3_platform.config.java_regex import compile_java_regex, compile_java_replacement
from kafka_s3_platform.config.settings import TransformSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.transforms import new_chain

TOPIC = "{topic}"
ROUTER_KEYS = frozenset({"regex", "replacement"})
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BY_RECORD = ("TimestampRouter", "ExtractTopic")


def target_topic(rename: str | Mapping[str, str], topic: str) -> str:
    """The target of `topic`.

    `rename` is a name or a template such as `copy_of_{topic}`; or `{"regex": .., "replacement": ..}`, which are those
    of RegexRouter (Java's, the whole name has to match, else it stays); or a map of topics to their targets.

    Raises:
        ConfigError: the rule is wrong, says nothing of the topic, or makes a name that Kafka does not allow.
    """
    name = rename.replace(TOPIC, topic) if isinstance(rename, str) else _mapped(rename, topic)
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
        step.type.startswith(_BY_RECORD) or "." in step.type or (step.type == "RegexRouter" and not _is_by_topic(step))
        for step in transforms
    )


def _is_by_topic(step: TransformSettings) -> bool:
    return step.type == "RegexRouter" and (step.predicate is None or step.predicate.type == "TopicNameMatches")


def _mapped(rename: Mapping[str, str], topic: str) -> str:
    if set(rename) == ROUTER_KEYS:
        return _matched(rename["regex"], rename["replacement"], topic)
    if topic not in rename:
        raise ConfigError(f"the map of topics says nothing of {topic}, it names {', '.join(sorted(rename)) or 'none'}")
    return rename[topic]


def _matched(regex: str, replacement: str, topic: str) -> str:
    try:
        pattern = compile_java_regex(regex)
        replace = compile_java_replacement(replacement, pattern)
    except ValueError as err:
        raise ConfigError(f"the rename rule {regex!r} -> {replacement!r}: {err}") from err
    return pattern.sub(replace, topic, count=1) if pattern.fullmatch(topic) else topic
