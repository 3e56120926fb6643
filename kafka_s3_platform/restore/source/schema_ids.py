"""Check that each schema id in the records means one archived schema."""

from collections.abc import Iterator, Sequence
from itertools import chain

from kafka_s3_platform.config.keys.transforms.steps import keeps_content
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.segments.schema_ids import find_ambiguous_ids
from kafka_s3_platform.store.index import IndexSnapshot


def check_schema_ids(request: RestoreRequest, snapshot: IndexSnapshot, chosen: Sequence[Segment]) -> None:
    """Raise PreflightError if records must be decoded by ids with several schemas in registries."""
    outgoing = request.outgoing
    changes = outgoing.key or outgoing.value or not all(map(keeps_content, outgoing.transforms))
    if not (changes or outgoing.map_schema_ids):
        return
    named = set(chain.from_iterable(segment.schema_ids for segment in chosen))
    ambiguous = find_ambiguous_ids(snapshot.state.schemas, request.config.records)
    if both := sorted(ambiguous.keys() & named):
        where = "; ".join(
            f"{schema_id} is another schema in each of {' and '.join(ambiguous[schema_id])}" for schema_id in both
        )
        raise PreflightError(
            f"topic {request.topic}: records name ids that registries have given to different schemas: {where}. "
            f"A record may mean any of them. Restore without mapping schema ids, without converters and "
            f"transforms of keys or values: their bytes stay as they are; or a window without these records"
        )


def describe_missing_schemas(request: RestoreRequest, state: IndexState, chosen: Sequence[Segment]) -> Iterator[str]:
    """Describe the schemas of the chosen segments missing in the archive."""
    if not request.outgoing.map_schema_ids:
        return
    named = set(chain.from_iterable(s.schema_ids for s in chosen))
    if missing := sorted(named.difference(*((s.schema_id, s.schema_guid) for s in state.schemas)), key=str):
        yield (
            f"{request.topic}: schemas {missing} were not archived (their registry did not answer, or does not know "
            f"them): records that name them are bad ones, behavior.on.error decides"
        )
