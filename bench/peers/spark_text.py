"""Spark's own Kafka source, to gzip lines by its own text writer: `python spark_text.py SERVERS TOPIC FOLDER JARS`.

FOLDER is a URL with s3a. S3 is where the variables of the AWS SDK say.
"""

import os
import sys


def main() -> None:
    """Write the values of the topic, as far as it goes now."""
    from pyspark.sql import SparkSession

    servers, topic, folder, jars = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    conf = {
        "spark.jars": jars,
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_DEFAULT_REGION"],
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "kafka.isolation.level": "read_committed",
    }
    records = spark.read.format("kafka").options(**options).load()
    records.selectExpr("CAST(value AS STRING)").write.option("compression", "gzip").text(folder)
    spark.stop()


if __name__ == "__main__":
    main()
