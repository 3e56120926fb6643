"""Upper bounds of a restore's bytes in the log and of its time, to be compared with a topic's retention. Pure.

Retention might delete records an hour after they were verified, so an unknown number counts as too much.
"""

from collections.abc import Mapping

from kafka_s3_platform.core.restore.source.base import ObjectFacts, TargetPlan, estimate_seconds

RECORD_OVERHEAD = 128
"""The bytes of a record besides keys, values and headers, in Kafka's record format 2.

61 are for a batch, because a batch may hold a single record if records come slowly. Up to 24 are for the record's own
fields. The rest is for the lengths of 20 empty headers.
"""

WITH_LENGTHS = 3
"""The factor for the bytes of headers: a header has two lengths of a byte or more, and at least a byte in it.

The number of headers is unknown, so all bytes may belong to headers.
"""

CONTROL_BATCH = 78
"""The bytes that end a transaction. If records come slowly, each may be a transaction of its own."""

PROVENANCE_OVERHEAD = 160
"""The three headers of `--provenance-headers`: 76 bytes of names, 50 of digits, and their lengths."""

SLOWER = 3
"""A restore may take this many times as long as estimated."""

MARGIN_MS = 3_600_000


def bound_largest_log(plan: TargetPlan, arrived: Mapping[int, int]) -> int | None:
    """Return the most bytes of restored records in a kafka partition of the target, or None if this is unknown.

    `arrived` maps each kafka partition of the target to the number of offsets it got since this restore began. They
    include the aborted records of killed runs, which nobody reads.
    """
    if plan.record_count is None or plan.request.outgoing.changes_content:
        return None
    overhead = RECORD_OVERHEAD
    overhead += CONTROL_BATCH if plan.request.delivery == "exactly_once" else 0
    overhead += PROVENANCE_OVERHEAD if plan.request.outgoing.provenance_headers else 0
    largest = WITH_LENGTHS * max((average_record_bytes(o) for o in plan.objects), default=0) + overhead
    if not plan.facts.keeps_numbers:
        # The keys of all records may belong to one kafka partition.
        return _sum_bytes(plan.objects, overhead) + max(arrived.values(), default=0) * largest
    sizes = (_sum_bytes(plan.objects_of(p), overhead) + arrived.get(p, 0) * largest for p in plan.kafka_partitions)
    return max(sizes, default=0)


def average_record_bytes(item: ObjectFacts) -> int:
    """Return the mean bytes of the object's records, rounded up. Its largest record is at least as large."""
    if item.record_count and item.record_bytes:
        return -(-item.record_bytes // item.record_count)
    return 0


def bound_seconds(plan: TargetPlan) -> float:
    """Return a bound of the time of sending and verifying one target's records, without `SLOWER`."""
    # If nobody knows how many records there are, one for each byte is a safe upper bound.
    record_count = plan.largest_bytes if plan.record_count is None else plan.record_count
    limited = record_count / plan.request.records_per_second if plan.request.records_per_second else 0.0
    return max(estimate_seconds(plan.request, plan), limited)


def bound_restore_ms(plan: TargetPlan) -> int:
    """Return a generous bound of the restore's time: sending, verifying, and waiting for cold objects.

    A record has to stay until the whole restore has ended, whatever other targets it has.
    """
    seconds = SLOWER * max(bound_seconds(plan), plan.restore_seconds) + plan.request.thawing.wait_seconds
    return round(seconds * 1000) + MARGIN_MS


def _sum_bytes(objects: tuple[ObjectFacts, ...], overhead: int) -> int:
    """Return the most bytes of the objects' records in a log. `overhead` are the bytes added by each record."""
    return sum(WITH_LENGTHS * o.largest_bytes + (o.wanted_count or 0) * overhead for o in objects)
