"""What the last look found, as metrics of Prometheus. What is not known is absent: a 0 would say that it is well."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from kafka_s3_platform.model.health import ArchivedTotals, ConnectorHealth, RunHistory, TopicHealth
from kafka_s3_platform.monitoring.lookout import Seen
from kafka_s3_platform.text import escape_unprintable

NAMESPACE = "kafka_s3"
Number = float | int | bool | None


@dataclass(frozen=True)
class TopicMetric:
    """A metric of each topic. `find` returns None where it is not known."""

    name: str
    text: str
    find: Callable[[TopicHealth], Number]


@dataclass(frozen=True)
class TotalMetric:
    """A metric of what is archived of each topic."""

    name: str
    text: str
    find: Callable[[ArchivedTotals], Number]
    is_counter: bool = True


@dataclass(frozen=True)
class ConnectorMetric:
    """A metric of each connector. `find` gets also when a look last knew everything about it."""

    name: str
    text: str
    find: Callable[[ConnectorHealth], Number]


TOPIC_METRICS = (
    TopicMetric("lag_offsets", "Offsets between what is archived and the end of the topic.", lambda t: t.lag),
    TopicMetric(
        "at_risk_level",
        "The check at_risk: 0 passes, 1 warns, 2 fails.",
        lambda t: None if t.risk is None else t.risk.level,
    ),
    TopicMetric(
        "retention_left_seconds",
        "For how long Kafka keeps the oldest record that is not archived, at least. 0 if nobody knows its age, absent "
        "if nothing can be lost by age.",
        lambda t: t.retention_left,
    ),
    TopicMetric(
        "newest_complete_hour_timestamp_seconds",
        "The start of the newest hour that is complete.",
        lambda t: t.newest_complete.timestamp() if t.newest_complete else None,
    ),
    TopicMetric(
        "oldest_incomplete_hour_timestamp_seconds",
        "The start of the oldest hour that is over and not complete. Absent if there is none.",
        lambda t: t.oldest_incomplete.timestamp() if t.oldest_incomplete else None,
    ),
    TopicMetric(
        "last_proven_timestamp_seconds",
        "When records of the topic last came back: a verified restore, or a deep verification. Absent if never.",
        lambda t: t.proof.at.timestamp() if t.proof else None,
    ),
    TopicMetric(
        "unresolved_offsets",
        "Offsets that could not be archived, and that nobody has decided about.",
        lambda t: t.unresolved_offsets,
    ),
)
TOTAL_METRICS = (
    TotalMetric("archived_records", "Records that are archived.", lambda a: a.records),
    TotalMetric("archived_bytes", "Bytes of keys, values and headers of archived records.", lambda a: a.record_bytes),
    TotalMetric(
        "late_records",
        "Archived records that came after their hour and the allowed lateness.",
        lambda a: a.late_records,
    ),
    TotalMetric(
        "dead_letters", "Records that failed and were tolerated (errors.tolerance=all).", lambda a: a.dead_letters
    ),
    TotalMetric("segments", "Objects with records that readers need now.", lambda a: a.segments, is_counter=False),
    TotalMetric("segment_bytes", "Bytes of these objects.", lambda a: a.segment_bytes, is_counter=False),
)
CONNECTOR_METRICS = (
    ConnectorMetric(
        "look_success", "Whether the last look knew everything about the connector's topics.", lambda c: c.is_known
    ),
    ConnectorMetric("kafka_up", "Whether the connector's cluster answers.", lambda c: c.is_kafka_up),
    ConnectorMetric("store_up", "Whether the connector's store answers.", lambda c: c.is_store_up),
    ConnectorMetric(
        "running_restores", "Restores under way.", lambda c: len(c.history.restores) if c.history else None
    ),
    ConnectorMetric(
        "restore_planned_records",
        "Records that the restores under way are to send, at most.",
        lambda c: _sum_restores(c, "planned_records"),
    ),
    ConnectorMetric(
        "restore_sent_records",
        "Records of these that were sent by the last checkpoints.",
        lambda c: _sum_restores(c, "sent_records"),
    ),
)


def render_metrics(seen: Seen, accept: str) -> tuple[bytes, str]:
    """Return the exposition in the best format that the scraper accepts, and its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(seen))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield _make_gauge(
            "build_info", "The version of the platform.", ("version",), [((version("kafka-s3-platform"),), 1)]
        )
        yield from self._collect_look()
        for metric in CONNECTOR_METRICS:
            yield _make_gauge(metric.name, metric.text, ("connector",), self._of_connectors(metric.find))
        yield from self._collect_runs()
        for of_topic in TOPIC_METRICS:
            yield _make_gauge(of_topic.name, of_topic.text, ("connector", "topic"), self._of_topics(of_topic.find))
        yield from self._collect_totals()

    def _collect_look(self) -> Iterator[Metric]:
        seen = self._seen
        yield _make_gauge(
            "look_up", "Whether the last look ended, and is no older than it may be.", (), [((), not seen.error)]
        )
        ended = seen.looked_at.timestamp() if seen.looked_at else None
        yield _make_gauge("last_look_timestamp_seconds", "When the last look ended.", (), [((), ended)])
        yield _make_gauge("look_duration_seconds", "How long the last look took.", (), [((), seen.seconds)])
        yield _make_gauge(
            "last_good_look_timestamp_seconds",
            "When a look last knew everything about the connector's topics.",
            ("connector",),
            [((name,), good.looked_at.timestamp()) for name, good in sorted(seen.good.items())],
        )

    def _collect_runs(self) -> Iterator[Metric]:
        labels = ("connector", "kind")
        runs = [
            ((each.connector, run.kind), run)
            for each in self._seen.connectors
            for run in (each.history or RunHistory()).ended
        ]
        yield _make_gauge(
            "last_run_duration_seconds",
            "How long the last run of its kind took.",
            labels,
            [(k, r.seconds) for k, r in runs],
        )
        yield _make_gauge(
            "last_run_success", "Whether it succeeded.", labels, [(key, run.is_success) for key, run in runs]
        )
        yield _make_gauge(
            "last_run_timestamp_seconds",
            "When it ended.",
            labels,
            [(key, run.ended_at.timestamp()) for key, run in runs],
        )

    def _collect_totals(self) -> Iterator[Metric]:
        labels = ("connector", "topic")
        for metric in TOTAL_METRICS:
            make = _make_counter if metric.is_counter else _make_gauge
            yield make(
                metric.name,
                metric.text,
                labels,
                self._of_topics(partial(_find_total, metric)),
            )
        gaps = [
            ((each.connector, topic.topic, reason), count)
            for each in self._seen.connectors
            for topic in each.topics
            if topic.totals is not None
            for reason, count in sorted(topic.totals.gap_offsets.items())
        ]
        yield _make_gauge(
            "gap_offsets",
            "Offsets whose records this archive does not hold, and never will.",
            (*labels, "reason"),
            gaps,
        )

    def _of_connectors(self, find: Callable[[ConnectorHealth], Number]) -> list[tuple[tuple[str, ...], Number]]:
        return [((each.connector,), find(each)) for each in self._seen.connectors]

    def _of_topics(self, find: Callable[[TopicHealth], Number]) -> list[tuple[tuple[str, ...], Number]]:
        return [((each.connector, topic.topic), find(topic)) for each in self._seen.connectors for topic in each.topics]


def _find_total(metric: TotalMetric, topic: TopicHealth) -> Number:
    return None if topic.totals is None else metric.find(topic.totals)


def _sum_restores(found: ConnectorHealth, name: str) -> Number:
    """Sum over the restores of which it is known. None if it is known of none."""
    counts = [getattr(restore, name) for restore in (found.history.restores if found.history else ())]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


Samples = Sequence[tuple[tuple[str, ...], Number]]


def _make_gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    return _fill(GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _make_counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    return _fill(CounterMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric([*map(escape_unprintable, labels)], float(value))
    return family
