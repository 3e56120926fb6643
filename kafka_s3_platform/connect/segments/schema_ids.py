"""Archives the schemas whose ids are in records, so readers do not need the registry."""

import logging
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa

from kafka_s3_platform.connect.avro.wire import NO_ID, parse_schema_name, read_schema_ids, read_schema_names
from kafka_s3_platform.connect.converters.base import BadRecordError
from kafka_s3_platform.connect.converters.registry import Registry, open_registry
from kafka_s3_platform.core.config.settings import RecordSettings
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.connect import Side
from kafka_s3_platform.core.model.schema import ArchivedSchema, find_references_flaw
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.segments.schemas import FetchedSchemas

logger = logging.getLogger(__name__)


def collect_schema_ids(records: pa.RecordBatch, side: Side) -> set[int | str]:
    """Collect the schema ids at the start of keys or values, and the schema ids and GUIDs in their headers."""
    column = records.column(side)
    names = read_schema_names(records.column("headers"), side)
    if names is None:
        return {*collect_wire_schema_ids(column)}
    ids: set[int | str] = set()
    for text in names.unique().drop_null().to_pylist():
        with suppress(ValueError):
            ids.add(parse_schema_name(text)[0])
    # Data with a schema named in a header are bare.
    return ids | collect_wire_schema_ids(column.filter(names.is_null()))


def collect_wire_schema_ids(column: pa.BinaryArray) -> set[int]:
    """Collect the schema ids in keys or values of Confluent's wire format. No Python code runs for each record."""
    ids = read_schema_ids(column)
    # most records have the id of the record before: comparing neighbours is cheaper than a sort
    firsts = ids[:1].tolist() + ids[1:][ids[1:] != ids[:-1]].tolist()
    return set(firsts) - {NO_ID}


def fetch_archived_schemas(state: IndexState, ids: Iterable[int | str], records: RecordSettings) -> FetchedSchemas:
    """Fetch the schemas with these ids and GUIDs, and their references, as rows to add to the index.

    A registry that does not answer delays no commit, because retention deletes records meanwhile, and their bytes can
    be archived without the schemas. The result names the missing ids. The next run fetches them, since it finds them
    among the ids of the live segments.
    """
    archived = {(s.registry_url, name) for s in state.schemas for name in (s.schema_id, s.schema_guid) if name}
    requested: set[int | str] = set(ids)
    rows = []
    problem = None
    fetched: set[int | str] = set()
    for settings in records.registries:
        registry = open_registry(settings)
        fetch = _SchemaFetch(registry, {i for url, i in archived if url == registry.url})
        problem = fetch.fetch_all(sorted(requested, key=str)) or problem
        rows += fetch.rows
        fetched |= requested & fetch.archived_ids
    missing = tuple(sorted(requested - fetched, key=str))
    if missing and problem is None:
        problem = f"schema ids {list(missing)} are named by records and by no schema of their registry"
    if problem:
        logger.warning("schemas %s are not archived, the next run tries again: %s", list(missing), problem)
    return FetchedSchemas(tuple(rows), missing, problem)


class _SchemaFetch:
    """Fetches schemas not in `archived_ids` from one registry. A schema follows all its references, or is left out."""

    def __init__(self, registry: Registry, archived_ids: set[int | str]) -> None:
        self._registry = registry
        self.archived_ids = archived_ids
        self.rows: list[ArchivedSchema] = []
        self._omission: str | None = None

    def fetch_all(self, ids: Iterable[int | str]) -> str | None:
        """Fetch schemas by their ids or GUIDs, and stop at the first error of the registry.

        Return the error's text, or else the reason why a schema was left out, or None.
        """
        for schema_id in ids:
            try:
                if isinstance(schema_id, int):
                    self._fetch_one(schema_id)
                elif schema_id not in self.archived_ids:
                    self._fetch_by_guid(schema_id)
            except PlatformError as err:
                return str(err)
        return self._omission

    def _fetch_by_guid(self, guid: str) -> None:
        """Fetch the schema with this GUID by its id in the registry. Leave it out if the registry does not know it."""
        try:
            schema_id = self._registry.find_id(guid)
        except BadRecordError as err:
            self._omission = f"a record {err}"
            return
        # It may be there from a time without GUIDs in the registry.
        self.archived_ids.discard(schema_id)
        self._fetch_one(schema_id)

    def _fetch_one(self, schema_id: int, referrers: tuple[int, ...] = ()) -> bool:
        """Fetch a schema after its references. Return False if one is missing, or `referrers` lead in a circle."""
        if schema_id in self.archived_ids:
            return True
        if flaw := find_references_flaw(referrers, schema_id):
            self._omission = f"schema {referrers[0] if referrers else schema_id} {flaw}"
            return False
        schema = self._registry.archived(schema_id)
        if schema is None or not all(
            self._fetch_one(r.schema_id, (*referrers, schema_id)) for r in schema.schema_references
        ):
            return False
        self.archived_ids |= {schema_id, schema.schema_guid or schema_id}
        self.rows.append(schema)
        return True
