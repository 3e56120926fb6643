"""Schemas are archived with the segments whose records name them, so that a restore can do without their registry."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from kafka_s3_platform.config.settings import RecordSettings, RegistrySettings
from kafka_s3_platform.converters.registry import Registry, registry_of
from kafka_s3_platform.converters.wire import NO_ID, schema_ids
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.model.schema import ArchivedSchema, references_flaw
from kafka_s3_platform.model.state import IndexState

logger = logging.getLogger(__name__)


def wire_schema_ids(column: pa.BinaryArray) -> set[int]:
    """The ids that keys or values name in Confluent's wire format. Cheap: no Python per record."""
    ids = schema_ids(column)
    # runs of one id are usual: comparing neighbours spares the sort
    firsts = ids[:1].tolist() + ids[1:][ids[1:] != ids[:-1]].tolist()
    return set(firsts) - {NO_ID}


def registries(records: RecordSettings) -> tuple[RegistrySettings, ...]:
    """The registries that the ids of keys and values are of, usually one. None: ids mean nothing."""
    return tuple({c.registry.url: c.registry for c in (records.key, records.value) if c.registry}.values())


@dataclass(frozen=True)
class FetchedSchemas:
    """`rows` are those that the index lacks, each behind what it refers to.

    `missing` ids are still to be archived: `problem` says why, as a sentence.
    """

    rows: tuple[ArchivedSchema, ...] = ()
    missing: tuple[int, ...] = ()
    problem: str | None = None


def archived_schemas(state: IndexState, ids: Iterable[int], records: RecordSettings) -> FetchedSchemas:
    """The rows to add for the schemas with these ids, and for what they refer to.

    A registry that cannot be asked holds up no commit: retention waits for nobody, and the bytes are archived whole
    without it. What is missing is told, and fetched by the next run, which finds it by the ids of live segments.
    """
    known = {(s.registry_url, s.schema_id) for s in state.schemas}
    asked, rows, problem = set(ids), [], None
    found: set[int] = set()
    for settings in registries(records):
        registry = registry_of(settings)
        fetch = _Fetch(registry, {i for url, i in known if url == registry.url})
        problem = fetch.all(sorted(asked)) or problem
        rows += fetch.rows
        found |= asked & fetch.known
    missing = tuple(sorted(asked - found))
    if missing and problem is None:
        problem = f"schema ids {list(missing)} are named by records and by no schema of their registry"
    if problem:
        logger.warning("schemas %s are not archived, the next run tries again: %s", list(missing), problem)
    return FetchedSchemas(tuple(rows), missing, problem)


class _Fetch:
    """Fetches from one registry what is not `known`: each schema behind all that it refers to, or not at all."""

    def __init__(self, registry: Registry, known: set[int]) -> None:
        self._registry = registry
        self.known = known
        self.rows: list[ArchivedSchema] = []
        self._flaw: str | None = None

    def all(self, ids: Iterable[int]) -> str | None:
        """Fetch these, up to the first error of the registry, which is given back, else what is wrong with a schema."""
        for schema_id in ids:
            try:
                self._one(schema_id)
            except PlatformError as err:
                return str(err)
        return self._flaw

    def _one(self, schema_id: int, outer: tuple[int, ...] = ()) -> bool:
        if schema_id in self.known:
            return True
        if flaw := references_flaw(outer, schema_id):
            self._flaw = f"schema {outer[0] if outer else schema_id} {flaw}"
            return False
        schema = self._registry.archived(schema_id)
        if schema is None or not all(self._one(r.schema_id, (*outer, schema_id)) for r in schema.schema_references):
            return False
        self.known.add(schema_id)
        self.rows.append(schema)
        return True
