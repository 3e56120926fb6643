"""Check that each schema id in the records means one archived schema."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from kafka_s3_platform.config.keys.transforms.steps import keeps_content
from kafka_s3_platform.config.settings import RecordSettings
from kafka_s3_platform.converters.registry import open_registry
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.store.index import IndexSnapshot


def find_ambiguous_ids(archived: Sequence[ArchivedSchema], source: RecordSettings) -> dict[int, tuple[str, ...]]:
    """Return ids that mean different schemas, with their registries: a record names an id, but no registry.

    The registries of keys and of values may both be in use now, each for its own ids. Any other registry was in use
    before, and nothing shows which records were written then.
    """
    now = [open_registry(side.registry).url for side in (source.key, source.value) if side.registry is not None]
    found: dict[int, tuple[str, ...]] = {}
    for url in now:
        by_id: dict[int, dict[_Content, str]] = defaultdict(dict)
        for schema in archived:
            if schema.registry_url == url or schema.registry_url not in now:
                by_id[schema.schema_id].setdefault(_collect_content(schema), schema.registry_url)
        found |= {number: tuple(sorted(urls.values())) for number, urls in by_id.items() if len(urls) > 1}
    return found


_Content = tuple[str, str, tuple[tuple[str, str, int], ...]]


def _collect_content(schema: ArchivedSchema) -> _Content:
    references = tuple((r.name, r.subject, r.version) for r in schema.schema_references)
    return schema.schema_type, schema.schema_text, references


def check_schema_ids(request: RestoreRequest, snapshot: IndexSnapshot, chosen: Sequence[Segment]) -> None:
    """Raise PreflightError if records must be decoded by ids that registries gave to several schemas."""
    outgoing = request.outgoing
    changes = outgoing.key or outgoing.value or not all(map(keeps_content, outgoing.transforms))
    if not (changes or outgoing.map_schema_ids):
        return
    named = set(chain.from_iterable(segment.schema_ids for segment in chosen))
    found = find_ambiguous_ids(snapshot.state.schemas, request.config.records)
    if both := sorted(named & found.keys()):
        where = "; ".join(
            f"{schema_id} is another schema in each of {' and '.join(found[schema_id])}" for schema_id in both
        )
        raise PreflightError(
            f"topic {request.topic}: records name ids that registries have given to different schemas: {where}. "
            f"Nothing tells which of them a record means. Restore without mapping schema ids, without converters and "
            f"transforms of keys or values: their bytes stay as they are; or a window without these records"
        )


def describe_missing_schemas(request: RestoreRequest, state: IndexState, chosen: Sequence[Segment]) -> Iterator[str]:
    """Describe the schemas that the chosen segments name and the archive does not hold."""
    if not request.outgoing.map_schema_ids:
        return
    named = set(chain.from_iterable(s.schema_ids for s in chosen))
    if missing := sorted(named - {s.schema_id for s in state.schemas}):
        yield (
            f"{request.topic}: schemas {missing} were not archived (their registry did not answer, or does not know "
            f"them): records that name them are bad ones, behavior.on.error decides"
        )
