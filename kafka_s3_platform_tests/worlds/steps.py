"""What happens in a world, as data: a world is played again from its steps. And how they are drawn from a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Wait:
    minutes: int


@dataclass(frozen=True)
class Produce:
    """Append records with these times (minutes): plain ones, or of the writer's transaction, which stays open.

    `claims`: the first of them stands at an offset that is so much higher.
    """

    kafka_partition: int
    minutes: tuple[int, ...]
    writer: int | None = None
    is_poison: bool = False
    claims: int | None = None


@dataclass(frozen=True)
class EndTransaction:
    kafka_partition: int
    writer: int
    is_committed: bool


@dataclass(frozen=True)
class Delete:
    """Delete the first `count` offsets. Retention deletes log segments as a whole (`rolls`), DeleteRecords does not."""

    kafka_partition: int
    count: int
    rolls: bool = False


@dataclass(frozen=True)
class Compact:
    kafka_partition: int


@dataclass(frozen=True)
class Elect:
    """Another replica leads. `lost`: so many offsets were only on the one before."""

    kafka_partition: int
    lost: int = 0


@dataclass(frozen=True)
class Silence:
    """Its leader does not answer, until it is silenced again."""

    kafka_partition: int


@dataclass(frozen=True)
class AddKafkaPartition:
    pass


@dataclass(frozen=True)
class Recreate:
    """The topic is deleted and created again."""


@dataclass(frozen=True)
class LieAboutEnd:
    """The next answer says that the log ends `less` offsets earlier."""

    kafka_partition: int
    less: int


@dataclass(frozen=True)
class SetClock:
    """The clock of the platform's machine is wrong by so much."""

    minutes: int


@dataclass(frozen=True)
class FailCommit:
    """The next commit is lost, or only its answer."""

    fault: Literal["lost", "answer lost"]


@dataclass(frozen=True)
class Repair:
    """The connector file is corrected: poison can be written."""


@dataclass(frozen=True)
class Archive:
    """A run of `count` hours from `first` on, or with None up to now.

    `meanwhile`: what happens before a question is answered, by its number. `killed_at` such a question it is killed,
    `asleep_at` it is suspended until `Wake`.
    """

    first: int | None = None
    count: int = 1
    allow_gaps: bool = False
    meanwhile: "tuple[tuple[int, Step], ...]" = ()
    killed_at: int | None = None
    asleep_at: int | None = None


@dataclass(frozen=True)
class Wake:
    """The run that sleeps longest goes on."""


@dataclass(frozen=True)
class Follow:
    """Carry out the commands that the last errors name."""


@dataclass(frozen=True)
class Skip:
    kafka_partition: int
    start: int
    count: int


@dataclass(frozen=True)
class Accept:
    """Accept that the log was truncated."""

    kafka_partition: int


@dataclass(frozen=True)
class BeginAt:
    kafka_partition: int
    offset: int


@dataclass(frozen=True)
class TakeOver:
    """Take over from a sink that has archived all but the last `count` offsets of each kafka partition."""

    count: int


@dataclass(frozen=True)
class Fold:
    """Fold the index, all but what is as young as that."""

    minutes: int


@dataclass(frozen=True)
class EndReservations:
    """Vacuum what killed runs have reserved."""


@dataclass(frozen=True)
class AllowGaps:
    """`archive.allow.gaps=true` from now on."""


@dataclass(frozen=True)
class NewConnector:
    """Archive under another name of the connector: into another index."""


Step: TypeAlias = (
    Wait
    | Produce
    | EndTransaction
    | Delete
    | Compact
    | Elect
    | Silence
    | AddKafkaPartition
    | Recreate
    | LieAboutEnd
    | SetClock
    | FailCommit
    | Repair
    | Archive
    | Wake
    | Follow
    | Skip
    | Accept
    | BeginAt
    | TakeOver
    | Fold
    | EndReservations
    | AllowGaps
    | NewConnector
)

QUESTIONS = 14
"""About so many questions a run asks."""


@dataclass(frozen=True)
class Mode:
    """A kind of worlds: how often a step is drawn, besides what every world has."""

    name: str
    weights: Mapping[type, int]
    is_ordered: bool = False
    """Whether records have the time at which they are written."""


_DISORDER: dict[type, int] = {EndTransaction: 3, Silence: 2, AddKafkaPartition: 1, Skip: 1, Repair: 1}
_RETENTION: dict[type, int] = {Delete: 8}
_TRUNCATION: dict[type, int] = {Elect: 6, Accept: 2}
_ALL = _DISORDER | _RETENTION | _TRUNCATION | {Compact: 3, Recreate: 1, SetClock: 3, TakeOver: 1, BeginAt: 1}

MODES = (
    Mode("nothing is lost", _DISORDER),
    Mode("retention, in order", _RETENTION, is_ordered=True),
    Mode("retention, out of order", _DISORDER | _RETENTION),
    Mode("truncation", _DISORDER | _TRUNCATION),
    Mode("all together", _ALL),
    Mode("ends are lies", _ALL | {LieAboutEnd: 4}),
)

_DECISIONS = (Skip, Accept, BeginAt, TakeOver, Repair, SetClock)

_EVERYWHERE: Mapping[type, int] = {
    Wait: 14,
    Produce: 22,
    Archive: 22,
    Wake: 3,
    Follow: 4,
    Fold: 2,
    EndReservations: 1,
    FailCommit: 1,
}


class Drawing:
    """Draws the steps of one world."""

    def __init__(self, seed: int | str, mode: Mode) -> None:
        rnd = self._random = Random(f"{mode.name} {seed}")
        self._mode = mode
        # Each world has habits of its own: what is rare in all of them together is frequent in one.
        habits = {kind: weight * rnd.choice((0, 1, 1, 3)) for kind, weight in mode.weights.items()}
        weights = {**_EVERYWHERE, **habits}
        self._kinds = [*weights]
        self._weights = [*weights.values()]
        self._outside = [kind for kind, weight in habits.items() if weight and kind not in _DECISIONS]
        self._until_now = rnd.choice((0.0, 0.1, 0.3))
        self._allow_gaps = rnd.choice((0.0, 0.0, 0.4, 1.0))
        self._disturbed = rnd.choice((0.0, 0.3, 0.6))
        self._lags = rnd.choice(
            ((0,), (0, -20, -60), (0, -20, -60, -130, 30), (0, 0, 0, 1, -1, -20, -60, -130, 30, 200))
        )
        self._now = 0
        self.kafka_partitions = rnd.choice((1, 1, 2, 3))

    def steps(self) -> tuple[Step, ...]:
        """Draw the steps: half of the topics are older than their archive."""
        rnd = self._random
        history: list[Step] = []
        for _ in range(rnd.choice((0, 0, 1, 3, 5))):
            history += (self._draw_produce(), self._draw_produce(), self._wait(60))
        kinds = rnd.choices(self._kinds, self._weights, k=rnd.randint(10, 40))
        return (*history, *(self._draw(kind) for kind in kinds))

    def _draw(self, kind: type) -> Step:
        draw: Callable[[], Step] = getattr(self, f"_draw_{kind.__name__.lower()}", kind)
        return draw()

    @property
    def _place(self) -> int:
        return self._random.randrange(self.kafka_partitions)

    def _draw_wait(self) -> Step:
        return self._wait(self._random.choice((4, 15, 40, 60, 60, 90, 150)))

    def _wait(self, minutes: int) -> Wait:
        self._now += minutes
        return Wait(minutes)

    def _draw_produce(self) -> Step:
        rnd = self._random
        count = rnd.choice((1, 1, 2, 3, 5))
        if self._mode.is_ordered:
            return Produce(self._place, (self._now,) * count)
        minutes = tuple(max(0, self._now + rnd.choice(self._lags)) for _ in range(count))
        writer = rnd.choice((None, None, None, 1, 2))
        claims = rnd.randint(1, 9) if rnd.random() < 0.03 else None
        return Produce(self._place, minutes, writer, rnd.random() < 0.04, claims)

    def _draw_endtransaction(self) -> Step:
        return EndTransaction(self._place, self._random.randint(1, 2), self._random.random() < 0.7)

    def _draw_delete(self) -> Step:
        return Delete(self._place, self._random.choice((1, 2, 3, 5, 8, 99)), self._random.random() < 0.5)

    def _draw_compact(self) -> Step:
        return Compact(self._place)

    def _draw_elect(self) -> Step:
        return Elect(self._place, self._random.choice((0, 1, 2, 3, 5, 99)))

    def _draw_addkafkapartition(self) -> Step:
        self.kafka_partitions = min(4, self.kafka_partitions + 1)
        return AddKafkaPartition()

    def _draw_silence(self) -> Step:
        return Silence(self._place)

    def _draw_lieaboutend(self) -> Step:
        return LieAboutEnd(self._place, self._random.choice((1, 2, 5, 9)))

    def _draw_setclock(self) -> Step:
        return SetClock(self._random.choice((0, 0, 4, -4, 70, -70, 600)))

    def _draw_failcommit(self) -> Step:
        return FailCommit(self._random.choice(("lost", "answer lost")))

    def _draw_hours(self) -> int:
        return max(0, self._now // 60 - self._random.choice((0, 1, 1, 1, 2, 2, 3, 5)))

    def _draw_archive(self) -> Step:
        rnd = self._random
        first = None if rnd.random() < self._until_now else self._draw_hours()
        count = 1 if first is None else rnd.choice((1, 1, 1, 2, 4))
        meanwhile = self._draw_meanwhile() if rnd.random() < self._disturbed else ()
        killed_at = rnd.randint(3, QUESTIONS) if rnd.random() < 0.12 else None
        asleep_at = rnd.randint(3, QUESTIONS) if killed_at is None and rnd.random() < 0.1 else None
        return Archive(first, count, rnd.random() < self._allow_gaps, meanwhile, killed_at, asleep_at)

    def _draw_meanwhile(self) -> tuple[tuple[int, Step], ...]:
        rnd = self._random
        kinds = (Produce, Produce, *self._outside, *self._outside, Archive, Wait, FailCommit)
        found: list[tuple[int, Step]] = []
        for _ in range(rnd.choice((1, 1, 2))):
            kind = rnd.choice(kinds)
            step = (
                Archive(self._draw_hours(), 1, rnd.random() < self._allow_gaps) if kind is Archive else self._draw(kind)
            )
            found.append((rnd.choice((rnd.randint(1, QUESTIONS), rnd.randint(4, 7))), step))
        return tuple(found)

    def _draw_skip(self) -> Step:
        return Skip(self._place, self._random.randint(0, 12), self._random.randint(1, 4))

    def _draw_accept(self) -> Step:
        return Accept(self._place)

    def _draw_beginat(self) -> Step:
        return BeginAt(self._place, self._random.randint(1, 12))

    def _draw_takeover(self) -> Step:
        return TakeOver(self._random.randint(0, 5))

    def _draw_fold(self) -> Step:
        return Fold(self._random.choice((0, 60)))


def draw_world(seed: int | str, mode: Mode) -> tuple[int, Sequence[Step]]:
    """Return the number of kafka partitions at the beginning, and the steps."""
    drawing = Drawing(seed, mode)
    return drawing.kafka_partitions, drawing.steps()
