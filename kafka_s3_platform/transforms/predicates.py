"""Connect's predicates, each a mask over a batch."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import PredicateSettings
from kafka_s3_platform.config.transform_catalogue import option_values
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.transforms.edits import Mask
from kafka_s3_platform.transforms.headers import Headers

Predicate = Callable[[ConnectBatch], Mask]


def new_predicate(settings: PredicateSettings) -> Predicate:
    """A function that says for which records the predicate is true."""
    return _PREDICATES[settings.type](option_values(settings))


def _topic_name_matches(values: Mapping[str, Any]) -> Predicate:
    pattern: re.Pattern[str] = values["pattern"]

    def mask(batch: ConnectBatch) -> Mask:
        topics = pc.dictionary_encode(batch.records.column("topic"))
        matched = np.array([pattern.fullmatch(topic) is not None for topic in topics.dictionary.to_pylist()], bool)
        found: Mask = matched[topics.indices.to_numpy()]
        return found

    return mask


def _has_header_key(values: Mapping[str, Any]) -> Predicate:
    name: str = values["name"]

    def mask(batch: ConnectBatch) -> Mask:
        headers = Headers.of(batch.records)
        found = pc.equal(headers.keys, pa.scalar(name)).to_numpy(zero_copy_only=False)
        with_name = np.zeros(batch.num_rows, bool)
        with_name[headers.rows[found]] = True
        return with_name

    return mask


def _record_is_tombstone(_: Mapping[str, Any]) -> Predicate:
    return lambda batch: batch.value.is_null


_PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], Predicate]] = {
    "TopicNameMatches": _topic_name_matches,
    "HasHeaderKey": _has_header_key,
    "RecordIsTombstone": _record_is_tombstone,
}
