"""`make chaos`: many seeds on a Kafka and an S3 of its own, and a table of what was told and what came of it."""

import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import click

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.chaos import elections, kills
from kafka_s3_platform_tests.chaos.scenario import hasty, run
from kafka_s3_platform_tests.chaos.world import Outcome, Servers
from kafka_s3_platform_tests.cluster.brokers import Cluster, started_cluster
from kafka_s3_platform_tests.conftest import TEST_BROKER, free_port_settings, stopped_at_exit, store_of


@click.command(help=__doc__)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the first run; each next one adds 1.")
@click.option("--runs", type=int, default=300, show_default=True)
@click.option("--jobs", type=int, default=2, show_default=True, help="Runs at once.")
@click.option("--kills", "is_kills", is_flag=True, help="Kill and stop restores, instead of lying.")
@click.option("--elections", "is_elections", is_flag=True, help="Kill leaders of restores' targets, instead of lying.")
@click.option("--verbose", is_flag=True, help="Show what happened in each run, not only in those with a verdict.")
def main(seed: int, runs: int, jobs: int, is_kills: bool, is_elections: bool, verbose: bool) -> None:
    logging.disable(logging.ERROR)
    outcomes: list[Outcome] = []
    begun = time.monotonic()
    kind = " KILLS=1" * is_kills or " ELECTIONS=1" * is_elections
    # A cluster has one broker to kill at a time.
    with _servers() as servers, ExitStack() as stack, ThreadPoolExecutor(1 if is_elections else jobs) as pool:
        if is_elections:
            cluster = stack.enter_context(_three_brokers())
            play = partial(elections.run, stack.enter_context(elections.made_archive(servers, cluster)))
        elif is_kills:
            play = partial(kills.run, stack.enter_context(kills.made_archive(servers)))
        else:
            stack.enter_context(hasty())
            play = partial(run, servers)
        for future in as_completed([pool.submit(play, str(seed + n)) for n in range(runs)]):
            outcomes.append(future.result())
            _tell_run(outcomes[-1], verbose, kind)
            if len(outcomes) % 20 == 0:
                click.echo(f"{len(outcomes)} of {runs} runs in {time.monotonic() - begun:.0f} s", err=True)
    click.echo(table(outcomes, time.monotonic() - begun))
    sys.exit(1 if any(o.verdicts for o in outcomes) else 0)


@contextmanager
def _servers() -> Iterator[Servers]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        settings = _new_settings(folder)
        with stopped_at_exit(settings):
            status = embedded.start_stack(settings)
            kafka = KafkaSettings(bootstrap_servers=status.bootstrap_servers)
            yield Servers(kafka, store_of(status, ""), SeaweedFS(settings).client())


@contextmanager
def _three_brokers() -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        started_cluster(_new_settings(folder), Path(folder)) as cluster,
    ):
        yield cluster


def _new_settings(folder: str) -> StackSettings:
    cache = StackSettings.from_environment().cache
    return StackSettings(data_dir=Path(folder), cache=cache, kafka_properties=TEST_BROKER, **free_port_settings())


def _tell_run(outcome: Outcome, verbose: bool, kind: str) -> None:
    if outcome.verdicts or verbose:
        click.echo(f"seed {outcome.seed}: {outcome.seconds:.1f} s")
        for line in outcome.log:
            click.echo(f"    {line}")
    for verdict in outcome.verdicts:
        click.echo(f"  {verdict.kind}: {verdict.message}")
    if outcome.verdicts:
        click.echo(f"  again: make chaos{kind} SEED={outcome.seed} RUNS=1")


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """What was told, how runs ended, and the verdicts; of no outcome, only heads and zeros."""
    told: Counter[str] = sum((o.told for o in outcomes), Counter())
    ends: Counter[str] = sum((o.ends for o in outcomes), Counter())
    verdicts = Counter(v.kind for o in outcomes for v in o.verdicts)
    records, believed = sum(o.records for o in outcomes), [o.believed for o in outcomes if o.believed]
    lines = [
        f"{len(outcomes)} runs in {seconds:.0f} s, {records:,} records, {told.total():,} lies told",
        "",
        "| lie, kill or stop | times |",
        "|---|---|",
        *(f"| {kind} | {count:,} |" for kind, count in sorted(told.items())),
        "",
        "| how runs ended, those under lies and kills and the last ones | |",
        "|---|---|",
        *(f"| {kind} | {count:,} |" for kind, count in ends.most_common()),
        "",
        "| verdict | runs |",
        "|---|---|",
        *(f"| {kind} | {verdicts[kind]} |" for kind in ("lost", "twice", "wedged")),
        *(f"| {kind} | {count} |" for kind, count in sorted(verdicts.items()) if kind not in _ALWAYS),
        "",
        f"Lies that nobody can see, believed until an honest answer: {sum(believed):,} records in {len(believed)} runs",
    ]
    return "\n".join(lines)


_ALWAYS = frozenset({"lost", "twice", "wedged"})

if __name__ == "__main__":
    main()
