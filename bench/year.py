"""`python -m bench.year`: an archive of 40 topics over a year of simulated time, on the embedded stack's real store.

Prints a line for each month: what is in the bucket at its end, and what the month asked of the store. Then the archive
is compared with what its topics received. See `kafka_s3_platform_tests/aged/year.py`.
"""

import argparse
import time
from typing import Any

from bench.archive import connector
from kafka_s3_platform.core.config.settings import ConnectorConfig, RetentionSettings
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack
from kafka_s3_platform_tests.aged.year import REQUESTS, START, Size, Year

DAY_MS = 86_400_000
HEAD = ("month", "records", "live objects", "objects", "MB", "index rows", "index files", "index MB", *REQUESTS)


def main() -> None:
    """Play the year, and print its table."""
    parser = argparse.ArgumentParser(prog="python -m bench.year", description=__doc__)
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--monthly-bytes", type=int, default=2**26, help="archive.monthly.segment.bytes")
    parser.add_argument("--merged-days", type=int, default=7, help="archive.retention.merged.ms, in days; -1: for ever")
    parser.add_argument("--kept-days", type=int, default=90, help="archive.retention.ms, in days; -1: for ever")
    options = parser.parse_args()
    start_stack(StackSettings.from_environment())
    begun = time.monotonic()
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for size in Year(_make_config(options), options.seed).play(options.days):
        print(_format(size), flush=True)
    print(f"\n{options.days} days in {time.monotonic() - begun:.0f} s, seed {options.seed}")


def _make_config(options: argparse.Namespace) -> ConnectorConfig:
    name = f"year-{time.time_ns()}"
    config = connector(name, f"{name}.0")
    rules: dict[str, Any] = {
        rule: (("", days * DAY_MS),)
        for rule, days in (("merged_ms", options.merged_days), ("ms", options.kept_days))
        if days >= 0
    }
    archive = config.archive.model_copy(
        update={
            "start_hour": START,
            "monthly_segment_bytes": options.monthly_bytes,
            "retention": RetentionSettings(**rules),
        }
    )
    return config.model_copy(update={"topics": tuple(f"{name}.{n}" for n in range(options.topics)), "archive": archive})


def _format(size: Size) -> str:
    numbers = [size.records, size.live_objects, size.objects, size.object_bytes / 1e6, size.index_rows]
    numbers += [size.index_files, size.index_bytes / 1e6, *size.requests.values()]
    cells = (f"{number:,}" if isinstance(number, int) else f"{number:,.1f}" for number in numbers)
    return f"| {size.month} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
