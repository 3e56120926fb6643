"""Knows every record that was produced, and judges an archive by them.

What is judged, at any moment: an offset that the index calls covered is stored (nobody will read it again), a complete
hour holds the records that were written before the archive first looked at the log, no offset is live twice, nothing is
live that was never committed, and what is live is what was produced. After the liars have become honest and the archive
has run again: everything is stored, every hour complete.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

import pyarrow as pa

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.lies import Hidden
from kafka_s3_platform_tests.support import snapshot

Place = tuple[int, int]
"""Kafka partition and offset."""

Kind = Literal["lost", "twice", "never committed", "altered", "damaged", "wedged", "hung", "defect"]
SHOWN = 6


@dataclass(frozen=True)
class Known:
    """A record that the log holds, as its writer knows it.

    A `hostile` one need not be stored, or not as it is. But before somebody decided so, its hour is not complete.
    """

    kafka_partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_hostile: bool = False

    @property
    def place(self) -> Place:
        return self.kafka_partition, self.offset

    @property
    def hour(self) -> datetime:
        moment = datetime.fromtimestamp(self.timestamp_ms / 1000, timezone.utc)
        return moment.replace(minute=0, second=0, microsecond=0)


@dataclass
class Truth:
    """Every committed record by its place. What else the log holds (aborted, markers) must never be stored.

    `promised` are those that were written before the archive first looked at the log: a complete hour holds them.
    """

    records: dict[Place, Known] = field(default_factory=dict)
    promised: set[Place] = field(default_factory=set)

    def add(self, records: Iterable[Known]) -> None:
        self.records |= {r.place: r for r in records}

    def before_the_first_look(self, index: IndexSnapshot | None) -> None:
        """To be called before every run: what there is now is promised, if no run has seen the log so far."""
        if index is None or not index.state.frontiers:
            self.promised = set(self.records)

    @property
    def hours(self) -> list[datetime]:
        return sorted({r.hour for r in self.records.values()})


@dataclass(frozen=True)
class Verdict:
    """Something that must not be."""

    kind: Kind
    message: str


@dataclass
class Judgement:
    """What was found. `believed` are records missing from complete hours on the word of a lie that nobody can see."""

    verdicts: list[Verdict] = field(default_factory=list)
    believed: int = 0


@dataclass(frozen=True)
class _Archive:
    """What an index of one moment says, and what its live objects hold."""

    state: IndexState
    rows: dict[Place, dict[str, Any]]
    repeated: tuple[Place, ...]
    damaged: tuple[str, ...]


def judge(config: ConnectorConfig, truth: Truth, hidden: Sequence[Hidden] = ()) -> Judgement:
    """The archive as it is now. `config` reaches the store without a liar between."""
    found = _read(snapshot(config), ObjectStore(config.store))
    judgement = Judgement()
    judgement.verdicts += [Verdict("damaged", text) for text in found.damaged]
    judgement.verdicts += _verdicts("twice", found.repeated, "are live twice")
    judgement.verdicts += _never_committed(found, truth)
    judgement.verdicts += _altered(found, truth)
    for missing, what in (
        (_covered_but_not_stored(found, truth), "are covered by the index and in no live object"),
        (_missing_from_complete_hours(config, found, truth), "are in no object of an hour called complete"),
    ):
        seen = [place for place in missing if not any(lie.holds(*place) for lie in hidden)]
        judgement.believed += len(missing) - len(seen)
        judgement.verdicts += _verdicts("lost", seen, what)
    return judgement


def judge_healed(config: ConnectorConfig, truth: Truth) -> Judgement:
    """As `judge`, of an archive that has run after every liar became honest: nothing may be missing any more."""
    judgement = judge(config, truth)
    found = _read(snapshot(config), ObjectStore(config.store))
    missing = [r.place for r in truth.records.values() if not r.is_hostile and r.place not in found.rows]
    judgement.verdicts += _verdicts("wedged", missing, "are not archived though all answers are good again")
    undecided = any(place not in found.rows and not _is_decided(found.state, r) for place, r in _hostile(truth))
    stuck = [h for h in truth.hours if not _is_complete(config, found.state, h)]
    if stuck and not undecided:
        judgement.verdicts.append(Verdict("wedged", f"hours {[f'{h:%H}' for h in stuck]} never become complete"))
    return judgement


def _read(index: IndexSnapshot, store: ObjectStore) -> _Archive:
    rows: dict[Place, dict[str, Any]] = {}
    seen: Counter[Place] = Counter()
    damaged = []
    for segment in index.segments:
        try:
            batches = list(EnvelopeReader(store.open(segment.key), segment.key).batches())
        except PlatformError as err:
            damaged.append(f"live object {segment.key}: {err}")
            continue
        for row in (r for batch in batches for r in _rows(batch)):
            place = (row["partition"], row["offset"])
            seen[place] += 1
            rows[place] = row
    repeated = tuple(place for place, times in seen.items() if times > 1)
    return _Archive(index.state, rows, repeated, tuple(damaged))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Times in ms: not every one is a `datetime`."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.int64())
    rows: list[dict[str, Any]] = batch.set_column(at, "timestamp", times).to_pylist()
    return rows


def _never_committed(found: _Archive, truth: Truth) -> Iterator[Verdict]:
    return _verdicts("never committed", found.rows.keys() - truth.records.keys(), "are live, though never committed")


def _altered(found: _Archive, truth: Truth) -> Iterator[Verdict]:
    both = found.rows.keys() & truth.records.keys()
    other = [p for p in both if not truth.records[p].is_hostile and not _same(truth.records[p], found.rows[p])]
    return _verdicts("altered", other, "are live with other content than was produced")


def _same(known: Known, row: dict[str, Any]) -> bool:
    headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
    stored = (row["timestamp"], row["key"], row["value"], headers)
    return stored == (known.timestamp_ms, known.key, known.value, known.headers)


def _covered_but_not_stored(found: _Archive, truth: Truth) -> list[Place]:
    """Nobody reads such an offset again, so no later honest answer brings it back."""
    return [
        r.place
        for r in truth.records.values()
        if not r.is_hostile and r.place not in found.rows and _is_covered(found.state, r)
    ]


def _is_covered(state: IndexState, record: Known) -> bool:
    return state.coverage(record.kafka_partition).covers(record.offset, record.offset + 1)


def _missing_from_complete_hours(config: ConnectorConfig, found: _Archive, truth: Truth) -> list[Place]:
    """What was written after the first look came late: no observation promised it."""
    complete = {h for h in truth.hours if _is_complete(config, found.state, h)}
    missing = [r for r in truth.records.values() if r.place in truth.promised and r.place not in found.rows]
    return [r.place for r in missing if r.hour in complete and not _is_decided(found.state, r)]


def _hostile(truth: Truth) -> Iterator[tuple[Place, Known]]:
    return ((place, r) for place, r in truth.records.items() if r.is_hostile)


def _is_decided(state: IndexState, record: Known) -> bool:
    """Whether somebody decided to do without a hostile record."""
    skipped = (g for g in state.gaps if (g.kafka_partition, g.reason) == (record.kafka_partition, "skipped"))
    return record.is_hostile and any(g.start_offset <= record.offset < g.end_offset for g in skipped)


def _is_complete(config: ConnectorConfig, state: IndexState, hour: datetime) -> bool:
    return state.judge.is_complete(hour, timedelta(milliseconds=config.archive.allowed_lateness_ms))


def _verdicts(kind: Kind, places: Iterable[Place], what: str) -> Iterator[Verdict]:
    found = sorted(places)
    if found:
        some = ", ".join(f"{p}:{o}" for p, o in found[:SHOWN])
        yield Verdict(kind, f"{len(found)} offsets {what}: {some}{', ...' if len(found) > SHOWN else ''}")
