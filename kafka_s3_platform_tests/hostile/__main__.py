"""What each attack costs, as a table: `python -m kafka_s3_platform_tests.hostile`."""

import sys

from kafka_s3_platform_tests.hostile.attacks import ATTACKS
from kafka_s3_platform_tests.hostile.measure import measured


def main() -> None:
    """Print it, the dearest last."""
    rows = []
    for name, attack in ATTACKS.items():
        body = attack.build()
        found = measured(attack.format, body)
        rows.append((found.megabytes, found.seconds, attack.format, len(body), name))
    sys.stdout.write("| attack | reader | bytes | MB above the base | CPU seconds |\n|---|---|---:|---:|---:|\n")
    for megabytes, seconds, reader, size, name in sorted(rows):
        sys.stdout.write(f"| {name} | {reader} | {size:,} | {megabytes:.0f} | {seconds:.1f} |\n")


if __name__ == "__main__":
    main()
