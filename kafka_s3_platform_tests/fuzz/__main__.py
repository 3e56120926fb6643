"""`python -m kafka_s3_platform_tests.fuzz FORMAT --seconds N [--seed N] [--keep]`."""

import sys

from kafka_s3_platform_tests.fuzz.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
