"""Plays worlds by their seeds, and shrinks those that fail to the few steps that it takes."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from itertools import pairwise

from kafka_s3_platform_tests.worlds.oracle import Violation
from kafka_s3_platform_tests.worlds.steps import Archive, Mode, Produce, Step, Wait, draw_world
from kafka_s3_platform_tests.worlds.world import World


@dataclass(frozen=True)
class Failure:
    """A world with a violation. `kind` is that of the first one; `log` tells what happened."""

    mode: str
    seed: int
    kafka_partitions: int
    steps: tuple[Step, ...]
    violations: tuple[Violation, ...]
    log: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.violations[0].kind

    def __str__(self) -> str:
        """Return a test that can be pasted."""
        steps = "".join(f"        {_format_step(step)},\n" for step in self.steps)
        return (
            f"def test_{'_'.join(self.kind.replace(',', '').replace(':', '').split())}() -> None:\n"
            f'    """{self.mode}, seed {self.seed}: {self.violations[0].text}"""\n'
            f"    steps = (\n{steps}    )\n"
            f"    assert find_violations({self.kafka_partitions}, steps) == ()\n"
        )


def play(kafka_partitions: int, steps: Sequence[Step]) -> World:
    """Play a world to its end. The seams have to be `simulated`."""
    world = World(kafka_partitions)
    world.play(steps)
    return world


def find_violations(kafka_partitions: int, steps: Sequence[Step]) -> tuple[Violation, ...]:
    return tuple(play(kafka_partitions, steps).violations)


def try_seed(mode: Mode, seed: int) -> tuple[World, Failure | None]:
    """Play the world of a seed. Return its failure, if it has one."""
    kafka_partitions, steps = draw_world(seed, mode)
    world = play(kafka_partitions, steps)
    if not world.violations:
        return world, None
    return world, Failure(mode.name, seed, kafka_partitions, tuple(steps), tuple(world.violations), tuple(world.log))


def shrink(failure: Failure) -> Failure:
    """Leave out steps, and make them simpler, while the world fails in the same way."""
    best = failure
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for kafka_partitions, steps in _list_smaller(best):
            world = play(kafka_partitions, steps)
            if world.violations and world.violations[0].kind == failure.kind:
                best = replace(
                    best,
                    kafka_partitions=kafka_partitions,
                    steps=steps,
                    violations=tuple(world.violations),
                    log=tuple(world.log),
                )
                is_smaller = True
                break
    return best


def _list_smaller(failure: Failure) -> Iterator[tuple[int, tuple[Step, ...]]]:
    """Yield smaller worlds: without runs of steps, the longest first, then with simpler steps."""
    steps = failure.steps
    size = len(steps)
    while size := size // 2:
        for at in range(0, len(steps), size):
            yield failure.kafka_partitions, (*steps[:at], *steps[at + size :])
    for at, (one, other) in enumerate(pairwise(steps)):
        if isinstance(one, Wait) and isinstance(other, Wait):
            yield failure.kafka_partitions, (*steps[:at], Wait(one.minutes + other.minutes), *steps[at + 2 :])
    if failure.kafka_partitions > 1:
        yield failure.kafka_partitions - 1, steps
    for at, step in enumerate(steps):
        for simpler in _list_simpler(step):
            yield failure.kafka_partitions, (*steps[:at], simpler, *steps[at + 1 :])


def _list_simpler(step: Step) -> Iterator[Step]:
    """Yield the step with one field at its default, or with a smaller one."""
    for field in fields(step):
        if field.default is not MISSING and getattr(step, field.name) != field.default:
            yield replace(step, **{field.name: field.default})
    match step:
        case Produce(minutes=minutes) if len(minutes) > 1:
            yield from (replace(step, minutes=(*minutes[:at], *minutes[at + 1 :])) for at in range(len(minutes)))
        case Archive(meanwhile=some) if len(some) > 1:
            yield from (replace(step, meanwhile=(one,)) for one in some)
        case Wait(minutes=minutes) if minutes != 60:
            yield Wait(60)
        case _:
            pass


def _format_step(step: Step) -> str:
    """Return the step as code, without what is as it is by default."""
    said = []
    for field in fields(step):
        value = getattr(step, field.name)
        if value == field.default:
            continue
        if field.name == "meanwhile":
            inner = "".join(f"({at}, {_format_step(other)}), " for at, other in value)
            said.append(f"meanwhile=({inner.strip()})")
        else:
            said.append(f"{field.name}={value!r}")
    return f"{type(step).__name__}({', '.join(said)})"
