"""How many bytes of a log, and how much time, a restore takes at most: what a topic's retention is held against. Pure.

Retention deletes what was verified an hour before. So whatever is not known counts as too much.
"""

from collections.abc import Mapping

from kafka_s3_platform.config.transform_catalogue import keeps_content
from kafka_s3_platform.restore.plan import PlannedObject, RestorePlan, estimated_seconds
from kafka_s3_platform.restore.request import RestoreRequest

RECORD_OVERHEAD = 128
"""Bytes of a record besides keys, values and headers, in Kafka's format of today: 61 for a batch, which it may have to
itself where records come slowly, up to 24 for its own fields, and the lengths of 20 headers."""

CONTROL_BATCH = 78
"""What the end of a transaction takes. Where records come slowly, each may be a transaction of its own."""

PROVENANCE_OVERHEAD = 160
"""The three headers of `--provenance-headers`: 76 bytes of names, 50 of digits, and their lengths."""

SLOWER = 3
"""A restore may take so many times as long as was estimated."""

MARGIN_MS = 3_600_000


def largest_log(request: RestoreRequest, plan: RestorePlan, arrived: Mapping[int, int]) -> int | None:
    """What restored records may take of a kafka partition of the target, in bytes; None where that is not known.

    `arrived` is kafka partition of the target -> offsets that it has got since this restore has begun. What killed runs
    left there, which nobody reads, counts too.
    """
    if not _knows_sizes(request, plan):
        return None
    each = _overhead(request)
    left = max((largest_mean(o) for o in plan.objects), default=0) + each
    if not plan.keeps_numbers:
        # The keys of all records may be those of one kafka partition.
        return _bytes(plan, plan.objects, each) + max(arrived.values(), default=0) * left
    sizes = (_bytes(plan, plan.objects_of(p), each) + arrived.get(p, 0) * left for p in plan.kafka_partitions)
    return max(sizes, default=0)


def changes_sizes(request: RestoreRequest) -> bool:
    """Whether keys, values or headers, or the number of records, may become others than those archived."""
    outgoing = request.outgoing
    written_anew = outgoing.key is not None or outgoing.value is not None
    return written_anew or not all(map(keeps_content, outgoing.transforms))


def largest_mean(item: PlannedObject) -> int:
    """No more than the largest record of the object."""
    return -(-item.record_bytes // item.record_count) if item.record_count else 0


def restore_ms(request: RestoreRequest, plan: RestorePlan) -> int:
    """How long the restore may take, generously: sending, verifying, and waiting for copies of cold objects."""
    # Objects of others do not tell how many records they hold: each takes a byte at least.
    counted = plan.record_count or plan.record_bytes
    limited = counted / request.records_per_second if request.records_per_second else 0.0
    seconds = SLOWER * max(estimated_seconds(request, plan), limited) + request.thawing.wait_seconds
    return round(seconds * 1000) + MARGIN_MS


def _knows_sizes(request: RestoreRequest, plan: RestorePlan) -> bool:
    told = all(o.record_count or not o.record_bytes for o in plan.objects)
    return told and not changes_sizes(request)


def _overhead(request: RestoreRequest) -> int:
    control = CONTROL_BATCH if request.delivery == "exactly_once" else 0
    return RECORD_OVERHEAD + control + (PROVENANCE_OVERHEAD if request.outgoing.provenance_headers else 0)


def _bytes(plan: RestorePlan, objects: tuple[PlannedObject, ...], each: int) -> int:
    return sum(o.record_bytes + plan.records_at_most(o) * each for o in objects)
