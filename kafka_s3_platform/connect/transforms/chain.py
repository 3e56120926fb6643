"""Runs the steps of `transforms` in order, each one for the records its predicate (its *guard*) selects."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.config.keys.transforms import find_java_class, find_public_options, parse_options
from kafka_s3_platform.connect.transforms.cast import Cast, TimestampConverter
from kafka_s3_platform.connect.transforms.edits import TransformStep
from kafka_s3_platform.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from kafka_s3_platform.connect.transforms.headers import BatchHeaders, DropHeaders, HeaderFrom, InsertHeader
from kafka_s3_platform.connect.transforms.mappers import MapperStep
from kafka_s3_platform.connect.transforms.routers import ExtractTopic, Filter, RegexRouter, TimestampRouter
from kafka_s3_platform.core.config.plugins import MAPPER, load_class
from kafka_s3_platform.core.config.settings import TransformSettings, is_python_class
from kafka_s3_platform.core.model.connect import ConnectBatch, Mask, Outcome, RecordFailure, Transform

Predicate = Callable[[ConnectBatch], Mask]


def _match_topic_name(values: Mapping[str, Any]) -> Predicate:
    """Make the predicate TopicNameMatches: True for records whose whole topic matches the pattern."""
    pattern: re.Pattern[str] = values["pattern"]

    def mask(batch: ConnectBatch) -> Mask:
        # Each distinct topic is matched once.
        topics = pc.dictionary_encode(batch.records.column("topic"))
        matched = np.array([pattern.fullmatch(topic) is not None for topic in topics.dictionary.to_pylist()], bool)
        selected: Mask = matched[topics.indices.to_numpy()]
        return selected

    return mask


def _match_header_key(values: Mapping[str, Any]) -> Predicate:
    """Make the predicate HasHeaderKey: True for records with a header of this name."""
    name: str = values["name"]

    def mask(batch: ConnectBatch) -> Mask:
        headers = BatchHeaders.of(batch.records)
        is_named = pc.equal(headers.keys, pa.scalar(name)).to_numpy(zero_copy_only=False)
        with_name = np.zeros(batch.num_rows, bool)
        with_name[headers.rows[is_named]] = True
        return with_name

    return mask


_PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], Predicate]] = {
    "TopicNameMatches": _match_topic_name,
    "HasHeaderKey": _match_header_key,
    "RecordIsTombstone": lambda _: lambda batch: batch.value.is_null,
}


RunStep = Callable[[ConnectBatch, Mask], Outcome]
"""Changes the selected records of a batch, and leaves the others as they are."""

_STEPS: Mapping[str, Callable[[str, str, Mapping[str, Any]], TransformStep]] = {
    "Cast": Cast,
    "DropHeaders": DropHeaders,
    "ExtractField": ExtractField,
    "ExtractTopic": ExtractTopic,
    "Filter": Filter,
    "Flatten": Flatten,
    "HeaderFrom": HeaderFrom,
    "HoistField": HoistField,
    "InsertField": InsertField,
    "InsertHeader": InsertHeader,
    "MaskField": MaskField,
    "RegexRouter": RegexRouter,
    "ReplaceField": ReplaceField,
    "SetSchemaMetadata": SetSchemaMetadata,
    "TimestampConverter": TimestampConverter,
    "TimestampRouter": TimestampRouter,
    "ValueToKey": ValueToKey,
}


def new_chain(transforms: Sequence[TransformSettings], topic: str) -> Transform:
    """Return all steps as one Transform. `topic` is the source topic, for messages.

    Raises:
        ConfigError: a user's class cannot be imported.
        ValueError: an option is not allowed.
    """
    return _Chain(tuple((_new_step(settings, topic), _new_guard(settings)) for settings in transforms))


def _new_step(settings: TransformSettings, topic: str) -> RunStep:
    """Return the function that runs a transform, either one of Connect's (by its name) or a user's class."""
    if is_python_class(settings):
        options = {name: value.get_secret_value() for name, value in settings.options.items()}
        mapper = load_class(settings.type, MAPPER)
        public = find_public_options(settings.type)
        secrets = [value for name, value in options.items() if name not in public]
        return MapperStep(mapper, options, topic, secrets).run
    name, _, side = settings.type.partition("$")
    step = _STEPS[name](find_java_class(settings.type), side.lower() or "value", parse_options(settings))
    return step.run


def _new_guard(settings: TransformSettings) -> Predicate | None:
    """Return the predicate for a transform's records, negated if the transform says so, or None if it changes all."""
    if settings.predicate is None:
        return None
    predicate = _PREDICATES[settings.predicate.type](parse_options(settings.predicate))
    if settings.negate:
        return lambda batch: ~predicate(batch)
    return predicate


@dataclass(frozen=True)
class _Chain:
    """All transforms of a connector in their order, each with the predicate that selects its records (its guard)."""

    steps: tuple[tuple[RunStep, Predicate | None], ...]

    def apply(self, batch: ConnectBatch) -> Outcome:
        """Run all steps. A record that fails in one does not reach the next."""
        failures: list[RecordFailure] = []
        for run, guard in self.steps:
            if not batch.num_rows:
                break
            selected = np.ones(batch.num_rows, bool) if guard is None else guard(batch)
            if selected.any():
                outcome = _fail_whole_records(run(batch, selected))
                batch = outcome.batch
                failures += outcome.failures
        return Outcome(batch, tuple(failures))


def _fail_whole_records(outcome: Outcome) -> Outcome:
    """Let a source record fail as a whole if one of the records a mapper made from it fails.

    None of these records goes on, and only the first failure of the source record is kept.
    """
    if not outcome.failures or outcome.batch.ordinals is None:
        return outcome
    # Reversed, so that the first failure of each offset is kept.
    first_failures = {failure.offset: failure for failure in reversed(outcome.failures)}
    is_kept = ~np.isin(outcome.batch.offsets, list(first_failures))
    return replace(
        outcome,
        batch=outcome.batch.take(np.flatnonzero(is_kept)),
        failures=tuple(first_failures[o] for o in sorted(first_failures)),
    )
