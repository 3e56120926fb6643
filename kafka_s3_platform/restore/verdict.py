"""The verdict on a restore: the same for its page, the command line and the UI."""

from dataclasses import dataclass
from typing import Literal

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.restore.request import RestoreReport

_SHOWN = 3
"""Number of reasons in an error."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`good`: all requested records are there. `part`: not all, or more. `bad`: nothing. `plan`: nothing to judge."""

    kind: Literal["good", "part", "bad", "plan"]
    text: str


def list_missing(report: RestoreReport) -> tuple[str, ...]:
    """List the requested records missing in the target, with their numbers. Empty if nothing is missing."""
    left_out = report.left_out_records
    counted = (
        (report.gap_count, "gaps in the archive"),
        (report.skipped_count, "objects or records skipped"),
        (left_out.failed, "records failed and left out"),
        (left_out.without_key, "records without a key left out"),
        (left_out.elsewhere, "records routed to other topics and left out"),
        (left_out.incomplete, "records sent without something that they held"),
    )
    return tuple(f"{count:,} {what}" for count, what in counted if count)


def judge_report(report: RestoreReport) -> Verdict:
    """Return the verdict on a restore, or on a dry run."""
    if report.refusals:
        return Verdict("bad", "would be refused")
    if report.dry_run and not report.already_finished:
        return Verdict("plan", "dry run, nothing was sent")
    if not report.verified:
        return Verdict("bad", "not verified")
    verdict = _judge_verified(report)
    dropped = report.left_out_records.filtered
    return Verdict(verdict.kind, f"{verdict.text}; {dropped:,} left out by transforms") if dropped else verdict


def _judge_verified(report: RestoreReport) -> Verdict:
    missing = "; ".join(list_missing(report))
    if _is_all_lost(report):
        return Verdict("bad", f"nothing was restored: {missing}")
    more = len(report.doubts) - _SHOWN
    doubts = [*report.doubts[:_SHOWN], *[f"and {more:,} doubts more, which are notes"] * (more > 0)]
    if report.doubled_count:
        matched = f"all records were found, plus {report.doubled_count:,} extra copies"
        lacks = [f"not everything could be restored: {missing}"] * bool(missing)
        return Verdict("part", "; ".join([matched, *lacks, *doubts]))
    if missing:
        return Verdict("part", "; ".join([f"verified, but not everything could be restored: {missing}", *doubts]))
    if doubts:
        return Verdict("part", f"every record sent was found once, but {'; '.join(doubts)}")
    if not report.record_count:
        return Verdict("plan", "no record was to be restored, so none was compared")
    return Verdict("good", f"verified: every record {'read' if report.of_others else 'sent'} was found once")


def check_something_restored(report: RestoreReport) -> None:
    """Check that a finished restore has restored anything, if there was anything to restore.

    Raises:
        IntegrityError: all of it was bad, failed, or was left out.
    """
    if report.dry_run or not _is_all_lost(report):
        return
    reasons = (*report.skipped, *(n for n in report.notes if "left out" in n))
    named = "".join(f"\n{reason}" for reason in reasons[:_SHOWN])
    raise IntegrityError(
        f"restore {report.restore_id} of {report.topic} to {report.to_topic}: {judge_report(report).text}. Its page is "
        f"{report.page_key}. Correct what failed, and restore under another restore id{named}"
    )


def _is_all_lost(report: RestoreReport) -> bool:
    left_out = report.left_out_records
    # Not the objects left out of the listing: if they were sent before, nothing had to be restored.
    skipped = sum(p.skipped_count for p in report.kafka_partitions)
    lost = skipped + left_out.failed + left_out.without_key + left_out.elsewhere
    return report.verified and not report.record_count and bool(lost)
