"""The hourly chunks of a connector's topics: one op, and so one run, archives all picked hours of all picked topics.

A run archives in tries: only topics with transient errors are tried again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import TypeAlias

import dagster as dg
from pydantic import Field

from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.defs.archive.checks import evaluate_hourly, make_hourly_check, read_hours_at_risk
from kafka_s3_platform.core.defs.failures import (
    choose_delay,
    count_retries,
    make_assets_failure,
    raise_dagster_failures,
)
from kafka_s3_platform.core.defs.metadata import NOT_COMPLETE, make_hour_metadata, make_totals_metadata
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.form import make_form_metadata
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.topic import TopicAssets, make_topic_assets, pick_topics
from kafka_s3_platform.core.errors import PlatformError, TransientError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.spark.progress import Snapshot, call_watchers
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.text import count_noun

Outcome: TypeAlias = ArchiveReport | PlatformError


def archive_in_tries(
    context: dg.AssetExecutionContext, requests: Sequence[ArchiveRequest], spark: SparkResource
) -> Iterator[Mapping[str, Outcome]]:
    """Archive the topics, try topics with transient errors again, and yield each outcome as soon as it is final.

    Dagster's own retries would archive all topics again. Here, finished topics are reported while others wait for their
    next try.
    """
    archived: dict[str, ArchiveReport] = {}
    untried = requests
    for retry_number in count():
        outcomes = {
            t: _add_earlier_tries(archived.get(t), outcome) for t, outcome in _try_archive(untried, spark).items()
        }
        transient: dict[str, TransientError] = {}
        for topic, outcome in outcomes.items():
            err = find_error(outcome)
            if isinstance(err, TransientError) and retry_number < count_retries(context):
                transient[topic] = err
            if isinstance(outcome, ArchiveReport):
                archived[topic] = outcome
        yield {topic: outcome for topic, outcome in outcomes.items() if topic not in transient}
        if not transient:
            return
        untried = [request for request in untried if request.topic in transient]
        delay = max(choose_delay(err, retry_number) for err in transient.values())
        topic, err = next(iter(transient.items()))
        context.log.warning("trying %s again in %g s; %s: %s", count_noun(len(transient), "topic"), delay, topic, err)
        time.sleep(delay)


def find_error(outcome: Outcome) -> PlatformError | None:
    """Return the error of a topic's try, or None if it succeeded. A report with an error counts what was archived."""
    return outcome.failure if isinstance(outcome, ArchiveReport) else outcome


def _try_archive(requests: Sequence[ArchiveRequest], spark: SparkResource) -> Mapping[str, Outcome]:
    """Archive once. An error of the run as a whole becomes the outcome of each topic, while earlier commits stay."""
    # its readers and converters take a second to import, and a code location does not need them
    from kafka_s3_platform.core.archive.run import archive_topics

    try:
        return archive_topics(requests, spark.make_runner())
    except PlatformError as err:
        return {request.topic: err for request in requests}


def _add_earlier_tries(earlier_report: ArchiveReport | None, outcome: Outcome) -> Outcome:
    """Return the outcome of a topic's try with the counts of its earlier tries in the same run added.

    The numbers of an hour come from the newest try, because they count all runs.
    """
    if earlier_report is None:
        return outcome
    if not isinstance(outcome, ArchiveReport):
        return replace(earlier_report, failure=outcome)
    hours = {hour.hour: hour for hour in (*earlier_report.hours, *outcome.hours)}
    return replace(
        outcome,
        hours=tuple(hours[hour] for hour in sorted(hours)),
        record_count=earlier_report.record_count + outcome.record_count,
        record_bytes=earlier_report.record_bytes + outcome.record_bytes,
        object_count=earlier_report.object_count + outcome.object_count,
        filtered_count=earlier_report.filtered_count + outcome.filtered_count,
        dead_letter_count=earlier_report.dead_letter_count + outcome.dead_letter_count,
        out_of_range_count=earlier_report.out_of_range_count + outcome.out_of_range_count,
        gaps=(*earlier_report.gaps, *outcome.gaps),
        seconds=earlier_report.seconds + outcome.seconds,
    )


STAYS = (
    "What the run had committed to the index stays archived; what it had only written counts for nothing. The "
    "next run of these hours does what is left. No offset is archived twice."
)
HourEvent = dg.AssetMaterialization | dg.AssetCheckEvaluation


class ArchiveConfig(dg.Config):
    """Options of an archive run."""

    until_now: bool = Field(
        default=False,
        description="Also archive everything else that is readable now, whatever its hour. A run for which no hour is "
        "picked does only this.",
    )


def make_hourly_assets(topics: Sequence[TopicAssets]) -> dg.AssetsDefinition:
    """Make `<connector>/hourly/<topic>` for each topic. One run archives the picked hours of the picked topics.

    Without picked hours, the run archives all up to now. If a topic fails, the others are still archived and reported.
    Then the run fails, and names each failed topic.
    """
    connector = topics[0].config.name
    by_key = {topic.key("hourly"): topic for topic in topics}

    def hourly(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[HourEvent]:
        picked_topics = [topic for key, topic in by_key.items() if key in context.selected_asset_keys]
        run = _HourlyRun(context, spark)
        with raise_dagster_failures(context, STAYS):
            yield from run.archive(picked_topics)
            # the UI can also run checks alone
            yield from run.check([topic for topic in topics if topic not in picked_topics])
        if run.failures:
            raise make_assets_failure(context, run.failures, len(picked_topics), STAYS)

    return make_topic_assets(
        hourly,
        name=make_op_name("hourly", connector),
        specs=[_make_spec(topic) for topic in topics],
        checks=[make_hourly_check(topic) for topic in topics],
        config_schema=make_plain_schema(ArchiveConfig),
        # An op has one pool, so a run of today's hours would wait for a backfill of any other topic. What keeps two
        # runs of one topic apart is the reservation in the index.
        pool=None,
    )


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    """Define the asset of a topic's archived hours."""
    return topic.make_spec(
        "hourly",
        deps=[topic.key("kafka")],
        kinds=topic.kinds,
        partitions_def=topic.offered_hours,
        # The events of hours are the op's own: Dagster adds none for an output that is not there.
        skippable=True,
        description=f"Records of topic `{topic.topic}` by the hour of their timestamp. Each offset is archived exactly "
        "once.",
        metadata={"dagster/uri": f"s3://{topic.config.store.bucket}/{topic.config.layout.topics_dir}/{topic.topic}"},
    )


class _HourlyRun:
    """One run of the op. `failures` are the final errors of topics, by asset key."""

    def __init__(self, context: dg.AssetExecutionContext, spark: SparkResource) -> None:
        self._context = context
        self._spark = spark
        has_keys = context.has_partition_key or context.has_partition_key_range
        self._keys = frozenset(context.partition_keys if has_keys else ())
        self._until_now = not self._keys or read_config(context, ArchiveConfig).until_now
        self.failures: dict[dg.AssetKey, PlatformError] = {}

    def archive(self, topics: Sequence[TopicAssets]) -> Iterator[HourEvent]:
        """Archive the topics. Yield the events of each topic as soon as it needs no further try."""
        if not topics:
            return
        windows = topics[0].hours
        windows.check(self._keys)
        if self._until_now:
            yield from self._archive(topics, None, is_last=not self._keys)
        if self._keys:
            hours = tuple(sorted(windows.start(key) for key in self._keys))
            topics = [topic for topic in topics if topic.key("hourly") not in self.failures]
            yield from self._archive(topics, hours, is_last=True)

    def check(self, topics: Sequence[TopicAssets]) -> Iterator[dg.AssetCheckEvaluation]:
        """Evaluate the selected checks of these topics. A topic whose index cannot be read fails."""
        checked_topics = pick_topics(self._context, topics, "hourly")
        if not checked_topics:
            return
        at_risk = read_hours_at_risk(self._context.instance, checked_topics)
        with closing(IndexLook("checks", checked_topics)) as index_look:
            for topic in checked_topics:
                try:
                    evaluation = evaluate_hourly(topic, index_look, at_risk.get(topic.topic))
                except PlatformError as err:
                    self.failures.setdefault(topic.key("hourly"), err)
                else:
                    yield evaluation

    def _archive(
        self, topics: Sequence[TopicAssets], hours: tuple[datetime, ...] | None, *, is_last: bool
    ) -> Iterator[HourEvent]:
        """Archive `hours` of the topics, or all up to now if None.

        Yield each topic's events when it needs no further try. If `is_last`, no other call of this run follows, so the
        checks of topics are evaluated after it.
        """
        if not topics:
            return
        run_id = self._context.run.run_id
        requests = [ArchiveRequest(topic.config, topic.topic, run_id, hours) for topic in topics]
        by_name = {topic.topic: topic for topic in topics}
        for outcomes in archive_in_tries(self._context, requests, self._spark):
            final_topics = []
            for name, outcome in outcomes.items():
                err = find_error(outcome)
                if err is not None:
                    self.failures[by_name[name].key("hourly")] = err
                if isinstance(outcome, ArchiveReport):
                    is_final = is_last or err is not None
                    yield from self._make_events(by_name[name], outcome, is_final=is_final)
                    final_topics += [by_name[name]] if is_final else []
            yield from self.check(final_topics)

    def _make_events(
        self, topic: TopicAssets, report: ArchiveReport, *, is_final: bool
    ) -> Iterator[dg.AssetMaterialization]:
        """Make the materialization of each picked hour, and of other hours archived in passing."""
        key = topic.key("hourly")
        for number, hour in enumerate(report.hours, 1):
            text = f"{number:,} of {len(report.hours):,} hours"
            call_watchers(Snapshot(f"tell Dagster of {topic.topic}", number, len(report.hours), text))
            if hour.hour < topic.start_hour:
                continue
            partition_key = topic.hours.key(hour.hour)
            is_picked = partition_key in self._keys
            if is_picked and not is_final:
                continue
            is_done = is_picked and report.failure is None
            if is_done or hour.scanned or hour.complete or hour.segments:
                metadata = make_form_metadata(self._context.run, topic, hours=[partition_key])
                metadata |= make_hour_metadata(hour, report, topic.config.store.bucket, can_drop=topic.can_drop)
                if is_done and "not_complete" in metadata:
                    self._context.log.info("%s, hour %s: %s", topic.topic, partition_key, NOT_COMPLETE)
                yield dg.AssetMaterialization(key, partition=partition_key, metadata=metadata)
        if not self._keys and report.failure is None:
            yield dg.AssetMaterialization(key, metadata=make_totals_metadata(report, can_drop=topic.can_drop))
