"""Finds ids that stand for different schemas, and fetches schemas missing in the archive.

`connect` reads the ids in records, and asks the registries for their schemas. It is loaded by name here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafka_s3_platform.core.config.settings import RecordSettings
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.model.connect import Side
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.text import strip_users


def find_ambiguous_ids(archived: Sequence[ArchivedSchema], source: RecordSettings) -> dict[int, tuple[str, ...]]:
    """Return the ids of different schemas, with their registries, since a record names an id but no registry.

    The registries of keys and of values may both be in use now, each for its own ids. Any other registry was in use
    before, and its records cannot be recognised.
    """
    current_urls = [strip_users(side.registry.url) for side in (source.key, source.value) if side.registry is not None]
    ambiguous: dict[int, tuple[str, ...]] = {}
    for url in current_urls:
        by_id: dict[int, dict[_Content, str]] = defaultdict(dict)
        for schema in archived:
            if schema.registry_url == url or schema.registry_url not in current_urls:
                by_id[schema.schema_id].setdefault(_collect_content(schema), schema.registry_url)
        ambiguous |= {number: tuple(sorted(urls.values())) for number, urls in by_id.items() if len(urls) > 1}
    return ambiguous


_Content = tuple[str, str, tuple[tuple[str, str, int], ...]]


def _collect_content(schema: ArchivedSchema) -> _Content:
    """Return the identity of a schema in any registry: its type, its text and its references."""
    references = tuple((r.name, r.subject, r.version) for r in schema.schema_references)
    return schema.schema_type, schema.schema_text, references


@dataclass(frozen=True)
class FetchedSchemas:
    """`rows` are the schemas the index lacks, each after its references.

    `missing` are the ids and GUIDs still not archived. `problem` is the reason, as a sentence.
    """

    rows: tuple[ArchivedSchema, ...] = ()
    missing: tuple[int | str, ...] = ()
    problem: str | None = None


def load_id_collector() -> Callable[[pa.RecordBatch, Side], set[int | str]]:
    """Return the function that collects the schema ids in keys or values of records."""
    collect_schema_ids: Callable[[pa.RecordBatch, Side], set[int | str]]
    collect_schema_ids = load_extension("collect_schema_ids")
    return collect_schema_ids


def load_schema_fetcher() -> Callable[[IndexState, Iterable[int | str], RecordSettings], FetchedSchemas]:
    """Return the function that fetches the schemas of these ids from the registries."""
    fetch_schemas: Callable[[IndexState, Iterable[int | str], RecordSettings], FetchedSchemas]
    fetch_schemas = load_extension("fetch_archived_schemas")
    return fetch_schemas
