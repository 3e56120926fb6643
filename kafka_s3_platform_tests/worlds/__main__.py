"""`make worlds`: play many simulated worlds, shrink those in which something is wrong, and print a table of them."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import click

from kafka_s3_platform_tests.worlds.play import Failure, shrink, try_seed
from kafka_s3_platform_tests.worlds.seams import simulated
from kafka_s3_platform_tests.worlds.steps import MODES, Mode

AT_ONCE = 100
SHOWN = 3
"""How many failures of one kind are shrunk and shown."""


@dataclass
class Tally:
    """What became of worlds of one mode. `kinds` counts the worlds by the kind of what was wrong first."""

    worlds: int = 0
    runs: int = 0
    complete: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def play_seeds(mode: Mode, seeds: Iterable[int]) -> tuple[str, Tally, list[Failure]]:
    """Play a world for each seed in this process."""
    tally = Tally()
    failures: list[Failure] = []
    with simulated():
        for seed in seeds:
            world, failure = try_seed(mode, seed)
            tally.worlds += 1
            tally.runs += world.runs
            tally.complete += world.oracle.complete_hours
            if failure is not None:
                tally.kinds[failure.kind] += 1
                failures.append(failure)
    return mode.name, tally, failures


def _share_out(seed: int, worlds: int, modes: Sequence[Mode]) -> Iterator[tuple[Mode, range]]:
    """Yield the seeds in portions, of one mode after the other."""
    each = -(-worlds // len(modes))
    for start in range(seed, seed + each, AT_ONCE):
        for mode in modes:
            yield mode, range(start, min(start + AT_ONCE, seed + each))


@click.command(help=__doc__)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the first world; each next one adds 1.")
@click.option("--worlds", type=int, default=6_000, show_default=True, help="How many, of all modes together.")
@click.option("--mode", type=click.Choice([m.name for m in MODES]), multiple=True, help="Only worlds of these modes.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes.")
def main(seed: int, worlds: int, mode: tuple[str, ...], jobs: int) -> None:
    modes = [m for m in MODES if not mode or m.name in mode]
    tallies = {m.name: Tally() for m in modes}
    shown: Counter[tuple[str, str]] = Counter()
    begun = time.monotonic()
    logging.disable(logging.CRITICAL)
    portions = [*_share_out(seed, worlds, modes)]
    with ProcessPoolExecutor(jobs) as pool:
        for n, (name, tally, failures) in enumerate(pool.map(play_seeds, *zip(*portions, strict=True))):
            _add(tallies[name], tally)
            for failure in failures:
                shown[name, failure.kind] += 1
                if shown[name, failure.kind] <= SHOWN:
                    click.echo(_show(failure))
            if n % 20 == 19:
                done = sum(t.worlds for t in tallies.values())
                click.echo(f"{done:,} worlds in {time.monotonic() - begun:.0f} s", err=True)
    click.echo("\n".join(format_table(tallies, time.monotonic() - begun)))
    sys.exit(1 if any(t.kinds for t in tallies.values()) else 0)


def _show(failure: Failure) -> str:
    """Return the shrunk failure as a test, with what happened."""
    with simulated():
        small = shrink(failure)
    return f"{small}\n" + "".join(f"# {line}\n" for entry in small.log for line in entry.splitlines())


def _add(one: Tally, other: Tally) -> None:
    one.worlds += other.worlds
    one.runs += other.runs
    one.complete += other.complete
    one.kinds += other.kinds


def format_table(tallies: dict[str, Tally], seconds: float) -> Iterator[str]:
    """Yield the lines of a table by mode, and of one by kind."""
    worlds = sum(t.worlds for t in tallies.values())
    yield f"{worlds:,} worlds in {seconds:.0f} s"
    yield ""
    yield "| mode | worlds | runs | complete hours at the end | worlds with something wrong |"
    yield "|---|---|---|---|---|"
    for name, tally in tallies.items():
        yield f"| {name} | {tally.worlds:,} | {tally.runs:,} | {tally.complete:,} | {tally.kinds.total():,} |"
    kinds = sum((t.kinds for t in tallies.values()), Counter[str]())
    if kinds:
        yield ""
        yield f"| what is wrong | {' | '.join(tallies)} |"
        yield f"|---|{'---|' * len(tallies)}"
        for kind, _ in kinds.most_common():
            yield f"| {kind} | {' | '.join(str(t.kinds[kind]) for t in tallies.values())} |"


if __name__ == "__main__":
    main()
