"""Chooses the schema to write each record with, by Connect's `schema.compatibility`, and projects values to it.

Each scanned range starts without a schema, and schemas are ordered by the Registry's versions, so hours can be archived
in any order. Versions have a meaning within one subject only, so each subject of a range has a schema of its own. If a
record has another schema than its object, it is projected (Confluent S3 sink, "Schema Evolution"). If this fails, it
keeps its own schema, as under NONE. This is because the order of records in a range decides the newest schema so far,
and no record may wait for ever because of others.
"""

from collections.abc import Sequence

import numpy as np

from kafka_s3_platform.connect.avro.projection import ProjectionError, list_lacking_fields, project_values
from kafka_s3_platform.core.config.settings import Compatibility
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Int32s, Int64s, Payload, Schema
from kafka_s3_platform.core.model.notes import Notes

Targets = tuple[Sequence[Schema | None], Int32s]
"""The schemas to write with, None for records that have no schema, and for each record its index among the schemas."""


class SchemaTargets:
    """Chooses the schema to write each record of one range with.

    Under NONE it is the record's own schema. Each schema has its own open objects, so two alternating schemas do not
    start a new object at each change. Under BACKWARD and FULL it is the newest schema so far of the subject, under
    FORWARD the oldest so far.
    """

    def __init__(self, compatibility: Compatibility, notes: Notes | None = None) -> None:
        self._compatibility = compatibility
        self._reached: dict[str | None, Schema] = {}
        self._notes = Notes() if notes is None else notes

    def project(self, values: Payload) -> Payload:
        """Return the values of the next batch as they are to be written, each with its schema."""
        schemas, schema_codes = self.choose(values)
        has_other_schema = (values.codes != NO_SCHEMA) & (schema_codes != values.codes)
        if not has_other_schema.any():
            return values
        codes = values.codes.copy()
        objects = list(values.objects)
        for source, target in np.unique(np.stack([values.codes, schema_codes])[:, has_other_schema], axis=1).T.tolist():
            pair = values.schemas[source], schemas[target]
            rows = np.flatnonzero((values.codes == source) & (schema_codes == target)).tolist()
            for row, value in zip(rows, project_values([objects[row] for row in rows], *pair), strict=True):
                if isinstance(value, ProjectionError):
                    self._note_unprojected(*pair, value)
                else:
                    codes[row] = target
                    objects[row] = value
            self._note_missing_fields(*pair, int((codes[rows] == target).sum()))
        return Payload(None, codes, [s for s in schemas if s is not None], objects)

    def _note_unprojected(self, source: Schema, target: Schema, err: ProjectionError) -> None:
        """Count a record kept in its own schema because its value does not fit the chosen one."""
        self._notes.note(
            f"of version {source.version} of subject {source.subject} keep their own schema, apart from version"
            f" {target.version}, which schema.compatibility={self._compatibility} chose for them",
            str(err),
        )

    def _note_missing_fields(self, source: Schema, target: Schema, records: int) -> None:
        """Count records written without fields because the chosen schema lacks them."""
        fields = list_lacking_fields(source, target) if records else ()
        if fields:
            self._notes.note(
                f"of version {source.version} of subject {source.subject} are written without the fields that version"
                f" {target.version} lacks, which schema.compatibility={self._compatibility} chose for them",
                ", ".join(fields),
                records,
            )

    def choose(self, values: Payload) -> Targets:
        """Return the schemas to write the next batch with, and for each record its index among them."""
        if self._compatibility == "NONE" or not values.schemas:
            return [*values.schemas, None], np.where(values.codes == NO_SCHEMA, len(values.schemas), values.codes)
        return self._choose_by_version(values)

    def find_versionless(self, values: Payload) -> np.ndarray:
        """Mark the records whose schema has no version, if versions are needed to order schemas."""
        if self._compatibility == "NONE":
            return np.zeros(len(values), bool)
        versionless = np.array([*(s.version is None for s in values.schemas), False])
        mask: np.ndarray = versionless[values.codes]
        return mask

    def _choose_by_version(self, values: Payload) -> Targets:
        """Choose for each record the newest (FORWARD: oldest) schema so far of its subject. Records are in order."""
        schemas = [*values.schemas, *(s for s in self._reached.values() if s not in values.schemas)]
        subjects = [schema.subject for schema in values.schemas]
        schema_codes = np.full(len(values), len(schemas), np.int32)
        for subject in dict.fromkeys(subjects):
            codes = [code for code, other in enumerate(subjects) if other == subject]
            rows = np.flatnonzero(np.isin(values.codes, codes))
            if not len(rows):
                continue
            sources = self._find_sources(values, rows, self._reached.get(subject))
            earlier_code = schemas.index(self._reached[subject]) if subject in self._reached else 0
            schema_codes[rows] = np.where(sources > 0, values.codes[rows[sources - 1]], earlier_code)
            self._reached[subject] = schemas[schema_codes[rows[-1]]]
        return [*schemas, None], schema_codes

    def _find_sources(self, values: Payload, rows: Int64s, earlier_schema: Schema | None) -> Int64s:
        """Return for each of the `rows`, all of one subject, the number (from 1) of the row to take its schema from.

        This is the last row so far of the newest (FORWARD: oldest) version. 0 means a schema from an earlier batch. A
        transform may make several schemas of one version, so a record of this version is written with its own.
        """
        forward = self._compatibility == "FORWARD"
        versions = np.array([s.version or 0 for s in values.schemas], np.int64)[values.codes[rows]]
        # A key is a version and, as its rest, the number of a record.
        size = len(rows) + 1
        numbers = np.arange(1, size)
        keys = versions * size + (-numbers if forward else numbers)
        no_key = np.iinfo(np.int64).max if forward else -1
        start = no_key if earlier_schema is None else (earlier_schema.version or 0) * size
        pick = np.minimum if forward else np.maximum
        best: Int64s = pick.accumulate(np.append(start, keys))[1:]
        sources: Int64s = (-best if forward else best) % size
        return sources
