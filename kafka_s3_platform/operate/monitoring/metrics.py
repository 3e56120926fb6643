"""The results of the last look as metrics for Prometheus. Unknown numbers are absent, since a 0 would look healthy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from kafka_s3_platform.core.model.health import ArchivedTotals, ConnectorHealth, EndedRun, RunHistory, TopicHealth
from kafka_s3_platform.core.text import escape_unprintable
from kafka_s3_platform.operate.monitoring.lookout import HealthReport

NAMESPACE = "kafka_s3"
Number = float | int | bool | None


T = TypeVar("T")


@dataclass(frozen=True)
class MetricOf(Generic[T]):
    """A metric of each connector, topic, total or run. `find` returns None if the value is unknown."""

    name: str
    text: str
    find: Callable[[T], Number]
    is_counter: bool = False

    def make(self, labels: Sequence[str], subjects: Iterable[tuple[tuple[str, ...], T]]) -> Metric:
        """Make the family of samples, one for each subject with a known value. Subjects come with values of labels."""
        family_class = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        family = family_class(f"{NAMESPACE}_{self.name}", self.text, labels=labels)
        for names, subject in subjects:
            value = self.find(subject)
            if value is not None:
                family.add_metric([*map(escape_unprintable, names)], float(value))
        return family


def _find_ratio(topic: TopicHealth) -> Number:
    """Return the share of the topic's hours that a rehearsal (a trial restore) has restored within the period."""
    turns = topic.turns
    return turns.count_proven(datetime.now(timezone.utc)) / turns.hour_count if turns and turns.hour_count else None


TOPIC_METRICS: Sequence[MetricOf[TopicHealth]] = (
    MetricOf("lag_offsets", "Offsets between what is archived and the end of the topic.", lambda t: t.lag),
    MetricOf(
        "at_risk_level",
        "Whether the topic is at risk: 0 no, 1 soon, 2 yes.",
        lambda t: None if t.risk is None else t.risk.level,
    ),
    MetricOf(
        "retention_left_seconds",
        "For how long Kafka keeps the oldest record that is not archived, at least. 0 if nobody knows its age, absent "
        "if nothing can be lost by age.",
        lambda t: t.retention_left,
    ),
    MetricOf(
        "newest_complete_hour_timestamp_seconds",
        "The start of the newest hour that is complete.",
        lambda t: t.newest_complete.timestamp() if t.newest_complete else None,
    ),
    MetricOf(
        "oldest_incomplete_hour_timestamp_seconds",
        "The start of the oldest hour that is over and not complete. Absent if there is none.",
        lambda t: t.oldest_incomplete.timestamp() if t.oldest_incomplete else None,
    ),
    MetricOf(
        "last_proven_timestamp_seconds",
        "When records of the topic last came back: a verified restore, a rehearsal, or a deep verification. Absent if "
        "never.",
        lambda t: t.proof.at.timestamp() if t.proof else None,
    ),
    MetricOf(
        "rehearsal_due_timestamp_seconds",
        "When an hour of the topic has to come back in a rehearsal, at the latest. 0 if none was rehearsed yet, absent "
        "if none is to be.",
        lambda t: t.rehearsal_due.timestamp() if t.rehearsal_due else None,
    ),
    MetricOf(
        "rehearsal_failed_hours",
        "Hours that did not come back when they were rehearsed last.",
        lambda t: t.turns.failed_count if t.turns else None,
    ),
    MetricOf(
        "rehearsed_hours_ratio",
        "The part of the archived hours that came back in a rehearsal within the period.",
        _find_ratio,
    ),
    MetricOf(
        "restore_estimate_seconds",
        "How long a restore of the whole topic takes, at the rate of the last rehearsal.",
        lambda t: t.return_seconds,
    ),
    MetricOf(
        "unresolved_offsets",
        "Offsets that could not be archived, and that nobody has decided about.",
        lambda t: t.unresolved_offsets,
    ),
)
TOTAL_METRICS: Sequence[MetricOf[ArchivedTotals]] = (
    MetricOf("archived_records", "Records that are archived.", lambda a: a.records, is_counter=True),
    MetricOf(
        "archived_bytes",
        "Bytes of keys, values and headers of archived records.",
        lambda a: a.record_bytes,
        is_counter=True,
    ),
    MetricOf(
        "late_records",
        "Archived records that came after their hour and the allowed lateness.",
        lambda a: a.late_records,
        is_counter=True,
    ),
    MetricOf(
        "dead_letters",
        "Records that failed and were tolerated (errors.tolerance=all).",
        lambda a: a.dead_letters,
        is_counter=True,
    ),
    MetricOf("segments", "Objects with records that readers need now.", lambda a: a.segments),
    MetricOf("segment_bytes", "Bytes of these objects.", lambda a: a.segment_bytes),
    MetricOf(
        "day_segment_bytes", "Bytes of these objects, if they are of merged days or months.", lambda a: a.day_bytes
    ),
    MetricOf(
        "merged_segment_bytes",
        "Bytes of objects of hours that a day holds, until retention removes them.",
        lambda a: a.merged_bytes,
    ),
    MetricOf(
        "expired_records", "Records that rules of retention removed.", lambda a: a.expired_records, is_counter=True
    ),
)
CONNECTOR_METRICS: Sequence[MetricOf[ConnectorHealth]] = (
    MetricOf(
        "look_success", "Whether the last look knew everything about the connector's topics.", lambda c: c.is_known
    ),
    MetricOf("kafka_up", "Whether the connector's cluster answers.", lambda c: c.is_kafka_up),
    MetricOf("store_up", "Whether the connector's store answers.", lambda c: c.is_store_up),
    MetricOf(
        "dagster_up",
        "Whether Dagster answers, and evaluates in time what is on to request the connector's runs. Absent if there is "
        "no Dagster here.",
        lambda c: c.is_dagster_up,
    ),
    MetricOf(
        "failed_runs",
        "Failed runs that no later one has made good, and that nothing requests again.",
        lambda c: len(c.failures) if c.history else None,
    ),
    MetricOf("running_restores", "Restores under way.", lambda c: len(c.history.restores) if c.history else None),
    MetricOf(
        "restore_planned_records",
        "Records that the restores under way are to send, at most.",
        lambda c: _sum_restores(c, "planned_records"),
    ),
    MetricOf(
        "restore_sent_records",
        "Records of these that were sent by the last checkpoints.",
        lambda c: _sum_restores(c, "sent_records"),
    ),
)


LOOK_METRICS: Sequence[MetricOf[HealthReport]] = (
    MetricOf("look_up", "Whether the last look ended, and is no older than it may be.", lambda s: not s.error),
    MetricOf(
        "last_look_timestamp_seconds",
        "When the last look ended.",
        lambda s: s.looked_at.timestamp() if s.looked_at else None,
    ),
    MetricOf("look_duration_seconds", "How long the last look took.", lambda s: s.seconds),
)
RUN_METRICS: Sequence[MetricOf[EndedRun]] = (
    MetricOf("last_run_duration_seconds", "How long the last run of its kind took.", lambda r: r.seconds),
    MetricOf("last_run_success", "Whether it succeeded.", lambda r: r.is_success),
    MetricOf("last_run_timestamp_seconds", "When it ended.", lambda r: r.ended_at.timestamp()),
)
GOOD_LOOK = MetricOf[ConnectorHealth](
    "last_good_look_timestamp_seconds",
    "When a look last knew everything about the connector's topics.",
    lambda c: c.looked_at.timestamp(),
)
GAP_OFFSETS = MetricOf[int](
    "gap_offsets", "Offsets whose records this archive does not hold, and never will.", lambda count: count
)
BUILD_INFO = MetricOf[int]("build_info", "The version of the platform.", lambda count: count)


def render_metrics(report: HealthReport, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the scraper's preferred format, and their content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(report))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    def __init__(self, report: HealthReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the report, for Prometheus's client."""
        report = self._report
        connectors = [((c.connector,), c) for c in report.connectors if not c.is_removed]
        topics = [((*names, topic.topic), topic) for names, c in connectors for topic in c.topics]
        totals = [(names, topic.totals) for names, topic in topics if topic.totals is not None]
        runs = [((*names, r.kind), r) for names, c in connectors for r in (c.history or RunHistory()).ended]
        gaps = [((*names, why), n) for names, total in totals for why, n in sorted(total.gap_offsets.items())]
        yield BUILD_INFO.make(("version",), [((version("kafka-s3-platform"),), 1)])
        yield from (metric.make((), [((), report)]) for metric in LOOK_METRICS)
        yield GOOD_LOOK.make(("connector",), [((name,), good) for name, good in sorted(report.good.items())])
        yield from (metric.make(("connector",), connectors) for metric in CONNECTOR_METRICS)
        yield from (metric.make(("connector", "kind"), runs) for metric in RUN_METRICS)
        yield from (metric.make(("connector", "topic"), topics) for metric in TOPIC_METRICS)
        yield from (metric.make(("connector", "topic"), totals) for metric in TOTAL_METRICS)
        yield GAP_OFFSETS.make(("connector", "topic", "reason"), gaps)


def _sum_restores(health: ConnectorHealth, name: str) -> Number:
    """Return the sum of a number over the restores for which it is known, or None if there are none."""
    counts = [getattr(restore, name) for restore in (health.history.restores if health.history else ())]
    counts = [count for count in counts if count is not None]
    return sum(counts) if counts else None
