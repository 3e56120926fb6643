"""A restore before its first record is sent: in the log, and as a report."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kafka_s3_platform.restore.outgoing.stream import changes_count
from kafka_s3_platform.restore.outgoing.values import ValueSettings
from kafka_s3_platform.restore.preflight.goal import Goal
from kafka_s3_platform.restore.preflight.target import PreflightFinding
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.restore_source import StoredPlan
from kafka_s3_platform.restore.source.base import (
    BYTES_PER_SECOND,
    TargetPlan,
    estimate_seconds,
)

logger = logging.getLogger(__name__)


def name_topics(request: RestoreRequest, goals: Sequence[Goal]) -> RestoreRequest:
    """Return the request with all of its topics, for messages and the report."""
    topics = sorted(chain.from_iterable(goal.plan.topics for goal in goals))
    targets = ", ".join(goal.plan.to_topic for goal in goals)
    return replace(request, topic=", ".join(topics) or "no topic", to_topic=targets or "nothing")


def log_plan(
    request: RestoreRequest, goals: Sequence[Goal], stream_count: int, findings: Sequence[PreflightFinding]
) -> None:
    """Log the plan, and a warning for each finding."""
    named = name_topics(request, goals)
    targets = [goal.plan for goal in goals]
    logger.info(
        "restore %s of %s to %s: %s%.1f MB in %d objects of %d kafka partitions, roughly %.0f s",
        request.restore_id,
        named.topic,
        named.to_topic,
        _format_count(targets),
        sum(target.object_bytes for target in targets) / 1e6,
        sum(len(target.objects) for target in targets),
        stream_count,
        _estimate_seconds(request, targets),
    )
    for finding in findings:
        logger.warning("restore %s: %s", request.restore_id, finding)


def _format_count(targets: Sequence[TargetPlan]) -> str:
    count = _sum_known(target.record_count for target in targets)
    if not targets or count is None:
        return ""
    return f"{'' if all(target.is_exact for target in targets) else 'at most '}{count:,} records, "


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum. None if one of the numbers is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _estimate_seconds(request: RestoreRequest, targets: Sequence[TargetPlan]) -> float:
    """Return a rough estimate. If the number of records is unknown, only the bytes of the objects count."""
    if _sum_known(target.record_count for target in targets) is None:
        return sum(target.object_bytes for target in targets) / BYTES_PER_SECOND
    # Of no target, sum() would give the int 0, which Dagster refuses as a float.
    return math.fsum(estimate_seconds(request, target) for target in targets)


def add_schema_ids(planned: RestoreReport, values: Mapping[str, ValueSettings | None]) -> RestoreReport:
    """Add the schema ids registered at the target, and notes on them."""
    pairs = set[tuple[int, int]]()
    notes: list[str] = []
    for settings in values.values():
        if settings is None or settings.mapping is None:
            continue
        notes += settings.mapping.notes
        for ids in (settings.mapping.key_ids, settings.mapping.value_ids):
            pairs.update((ids or {}).items())
    return replace(planned, schema_ids=tuple(sorted(pairs)), notes=(*planned.notes, *notes))


def make_planned_report(
    request: RestoreRequest, plan: StoredPlan, goals: Sequence[Goal], findings: Sequence[PreflightFinding]
) -> RestoreReport:
    """Make the report of a restore that has sent nothing yet. A number unknown to the source is 0."""
    named = name_topics(request, goals)
    targets = [goal.plan for goal in goals]
    before_transforms = changes_count(request.outgoing, request.on_error)
    is_exact = bool(targets) and all(target.is_exact for target in targets)
    return RestoreReport(
        restore_id=request.restore_id,
        topic=named.topic,
        to_topic=named.to_topic,
        kafka_partitions=(),
        record_count=_sum_known(target.record_count for target in targets) or 0,
        record_bytes=_sum_known(target.record_bytes for target in targets) or 0,
        exact=is_exact and not before_transforms,
        out_of_range_count=sum(target.out_of_range_count for target in targets),
        object_count=sum(len(target.objects) for target in targets),
        object_bytes=sum(target.object_bytes for target in targets),
        sent_count=0,
        gaps=plan.gaps,
        notes=tuple(dict.fromkeys(f.text for f in findings if not f.refuses)),
        refusals=tuple(f.text for f in findings if f.refuses),
        doubts=tuple(f.text for f in findings if f.doubts),
        plan_key=request.documents.plan,
        plan_digest=plan.digest,
        estimated_seconds=_estimate_seconds(request, targets),
        seconds=0.0,
        verified=False,
        dry_run=request.dry_run,
        before_transforms=before_transforms,
        terms=plan.terms,
        skipped=plan.skipped,
        skipped_count=plan.skipped_count,
        gap_count=len(plan.gaps),
        of_others=request.config.source is not None,
    )
