"""Connect's predicates. Each returns a mask over a batch."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.keys.transforms.steps import parse_options
from kafka_s3_platform.config.settings import PredicateSettings
from kafka_s3_platform.model.connect import ConnectBatch, Mask
from kafka_s3_platform.transforms.headers import BatchHeaders

Predicate = Callable[[ConnectBatch], Mask]


def new_predicate(settings: PredicateSettings) -> Predicate:
    """Compile the predicate to a mask of records."""
    return _PREDICATES[settings.type](parse_options(settings))


def _match_topic_name(values: Mapping[str, Any]) -> Predicate:
    pattern: re.Pattern[str] = values["pattern"]

    def mask(batch: ConnectBatch) -> Mask:
        # Each distinct topic is matched once.
        topics = pc.dictionary_encode(batch.records.column("topic"))
        matched = np.array([pattern.fullmatch(topic) is not None for topic in topics.dictionary.to_pylist()], bool)
        selected: Mask = matched[topics.indices.to_numpy()]
        return selected

    return mask


def _match_header_key(values: Mapping[str, Any]) -> Predicate:
    name: str = values["name"]

    def mask(batch: ConnectBatch) -> Mask:
        headers = BatchHeaders.of(batch.records)
        is_named = pc.equal(headers.keys, pa.scalar(name)).to_numpy(zero_copy_only=False)
        with_name = np.zeros(batch.num_rows, bool)
        with_name[headers.rows[is_named]] = True
        return with_name

    return mask


def _match_tombstone(_: Mapping[str, Any]) -> Predicate:
    return lambda batch: batch.value.is_null


_PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], Predicate]] = {
    "TopicNameMatches": _match_topic_name,
    "HasHeaderKey": _match_header_key,
    "RecordIsTombstone": _match_tombstone,
}
