"""Archives topics in tries, within one run: what fails for a reason that may pass is tried again, and nothing else."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import dagster as dg

from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.defs.failures import choose_delay, count_retries
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.errors import PlatformError, TransientError

Outcome: TypeAlias = ArchiveReport | PlatformError


def archive_in_tries(
    context: dg.AssetExecutionContext, requests: Sequence[ArchiveRequest], spark: SparkResource
) -> Iterator[Mapping[str, Outcome]]:
    """Yield the outcomes of the topics that need no further try, after each try.

    Dagster's own retries would do all topics again. Here the others are reported while one waits for its next try.
    """
    archived: dict[str, ArchiveReport] = {}
    untried = requests
    for retry_number in count():
        outcomes = {t: _add_to(archived.get(t), outcome) for t, outcome in _try_archive(untried, spark).items()}
        again: dict[str, TransientError] = {}
        for topic, outcome in outcomes.items():
            err = find_error(outcome)
            if isinstance(err, TransientError) and retry_number < count_retries(context):
                again[topic] = err
            if isinstance(outcome, ArchiveReport):
                archived[topic] = outcome
        yield {topic: outcome for topic, outcome in outcomes.items() if topic not in again}
        if not again:
            return
        untried = [request for request in untried if request.topic in again]
        delay = max(choose_delay(err, retry_number) for err in again.values())
        topic, err = next(iter(again.items()))
        context.log.warning("%d topic(s) are tried again in %g s; %s: %s", len(again), delay, topic, err)
        time.sleep(delay)


def find_error(outcome: Outcome) -> PlatformError | None:
    """Return the error of an outcome, if there is one. A report with an error tells what was archived all the same."""
    return outcome.failure if isinstance(outcome, ArchiveReport) else outcome


def _try_archive(requests: Sequence[ArchiveRequest], spark: SparkResource) -> Mapping[str, Outcome]:
    """Archive once. An error that all topics share is the outcome of each: what was committed before it stays."""
    # its readers and converters take a second to import, which a code location need not
    from kafka_s3_platform.archive.run import archive_topics

    try:
        return archive_topics(requests, spark.make_runner())
    except PlatformError as err:
        return {request.topic: err for request in requests}


def _add_to(before: ArchiveReport | None, outcome: Outcome) -> Outcome:
    """Add what earlier tries archived of the topic. Of an hour, the index's newest numbers hold."""
    if before is None:
        return outcome
    if not isinstance(outcome, ArchiveReport):
        return replace(before, failure=outcome)
    hours = {hour.hour: hour for hour in (*before.hours, *outcome.hours)}
    return replace(
        outcome,
        hours=tuple(hours[hour] for hour in sorted(hours)),
        record_count=before.record_count + outcome.record_count,
        record_bytes=before.record_bytes + outcome.record_bytes,
        object_count=before.object_count + outcome.object_count,
        filtered_count=before.filtered_count + outcome.filtered_count,
        dead_letter_count=before.dead_letter_count + outcome.dead_letter_count,
        out_of_range_count=before.out_of_range_count + outcome.out_of_range_count,
        gaps=(*before.gaps, *outcome.gaps),
        seconds=before.seconds + outcome.seconds,
    )
