"""`python -m kafka_s3_platform.cli` is `kafka-s3`."""

from kafka_s3_platform.cli import main

if __name__ == "__main__":
    main(prog_name="kafka-s3")
