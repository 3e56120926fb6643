"""Choose the schema that each record is written with: Connect's `schema.compatibility`.

Each range that is scanned starts without a schema, and the Registry's versions order the schemas. So hours can be
archived in any order. A record whose schema is not that of its object is projected (Confluent S3 sink, "Schema
Evolution").
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kafka_s3_platform.avro.projection import project_values
from kafka_s3_platform.config.keys.layout import Compatibility
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int32s, Int64s, Payload, Schema

Targets = tuple[Sequence[Schema | None], Int32s]
"""The schemas to write with, None for records without one, and for each record its index among them."""


class SchemaTargets:
    """Chooses the schema that each record of one range is written with.

    NONE: the record's own schema. Each schema has its own open objects, so two schemas that alternate do not start a
    new object at each change. BACKWARD and FULL: the newest schema so far. FORWARD: the oldest so far.
    """

    def __init__(self, compatibility: Compatibility) -> None:
        self._compatibility = compatibility
        self._reached: Schema | None = None

    def choose(self, values: Payload) -> Targets:
        """Choose the targets of the next batch."""
        if self._compatibility == "NONE" or not values.schemas:
            return [*values.schemas, None], np.where(values.codes == NO_SCHEMA, len(values.schemas), values.codes)
        return self._by_order(values)

    def unordered(self, values: Payload) -> np.ndarray:
        """Return which records have a schema without a version, if versions are needed to order schemas."""
        if self._compatibility == "NONE":
            return np.zeros(len(values), bool)
        versionless = np.array([*(s.version is None for s in values.schemas), False])
        found: np.ndarray = versionless[values.codes]
        return found

    def _by_order(self, values: Payload) -> Targets:
        schemas = list(values.schemas)
        if self._reached is not None and self._reached not in schemas:
            schemas.append(self._reached)
        carried = len(schemas) if self._reached is None else schemas.index(self._reached)
        has_schema = values.codes != NO_SCHEMA
        sources = self._find_sources(values, has_schema)
        codes = np.where(sources > 0, values.codes[sources - 1], carried)
        if has_schema.any():
            self._reached = schemas[codes[-1]]
        return [*schemas, None], np.where(has_schema, codes, len(schemas)).astype(np.int32)

    def _find_sources(self, values: Payload, has_schema: np.ndarray) -> Int64s:
        """Return for each record the number, from 1, of the last one so far of the newest (FORWARD: oldest) version.

        0: it came in an earlier batch. A transform may make several schemas of one version: so a record of that version
        is written with its own.
        """
        forward = self._compatibility == "FORWARD"
        versions = np.array([*(s.version or 0 for s in values.schemas), 0], np.int64)[values.codes]
        # A key is a version and, as its rest, the number of a record.
        size = len(values) + 1
        numbers = np.arange(1, size)
        keys = versions * size + (-numbers if forward else numbers)
        neutral = np.iinfo(np.int64).max if forward else -1
        start = neutral if self._reached is None else (self._reached.version or 0) * size
        pick = np.minimum if forward else np.maximum
        reached: Int64s = pick.accumulate(np.append(start, np.where(has_schema, keys, neutral)))[1:]
        sources: Int64s = (-reached if forward else reached) % size
        return sources


def adapt_values(batch: ConnectBatch, target: Schema | None) -> ConnectBatch:
    """Return `batch` with its values projected to `target`, where they have another schema."""
    values = batch.value
    others = [i for i, s in enumerate(values.schemas) if s != target and (values.codes == i).any()]
    if not others:
        return batch
    if target is None:
        raise IntegrityError("records with a schema were to be written without one: a defect of the platform")
    objects = list(values.objects)
    for code in others:
        positions = np.flatnonzero(values.codes == code)
        projected = project_values([objects[p] for p in positions], values.schemas[code], target)
        for position, value in zip(positions, projected, strict=True):
            objects[position] = value
    codes = np.where(values.codes == NO_SCHEMA, NO_SCHEMA, 0).astype(np.int32)
    return replace(batch, value=Payload(None, codes, (target,), objects))
