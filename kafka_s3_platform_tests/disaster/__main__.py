"""`make disaster`: a cluster is lost, and comes back by one command. Prints each phase, and the seconds of all."""

import signal
import sys

import click

from kafka_s3_platform.cli.messages import align_columns
from kafka_s3_platform_tests.disaster.play import Outcome, play


@click.command(help=__doc__)
@click.option("--records", type=click.IntRange(1), default=20_000, show_default=True, help="Records of each topic.")
@click.option("--seed", type=int, default=1, show_default=True, help="It draws records, and moments of kills.")
@click.option("--kills", type=click.IntRange(0), default=0, show_default=True, help="Kill the restore so many times.")
def main(records: int, seed: int, kills: int) -> None:
    # ended by `kill` or a supervisor, it ends the command and the servers that it started, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcome = play(records, seed, kills, lambda line: click.echo(line, err=True))
    click.echo("\n".join([*make_table(outcome), *outcome.verdicts]))
    sys.exit(1 if outcome.verdicts else 0)


def make_table(outcome: Outcome) -> list[str]:
    """Return the lines of the seconds by phase, and of what was compared."""
    rows = [("phase", "seconds"), *((phase, f"{seconds:.1f}") for phase, seconds in outcome.seconds.items())]
    known = outcome.known
    topics = f"{known.record_count:,} records of {len(known.topics)} topics, {len(known.acls)} ACLs"
    offsets = f"{sum(map(len, known.next_offsets.values()))} offsets of {len(known.next_offsets)} groups"
    compared = f"compared: {topics}, {len(known.schemas)} versions of the registry, {offsets}"
    aborted = f"{known.aborted_count:,} records of aborted transactions were to stay away"
    return [*align_columns(rows, numbers=(1,)), compared, aborted, f"differences: {len(outcome.verdicts)}"]


if __name__ == "__main__":
    main()
