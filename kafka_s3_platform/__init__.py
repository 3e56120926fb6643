"""Archive Kafka topics to S3 in hourly and daily chunks, and replay them exactly as they were."""

from kafka_s3_platform.text import guard_logs

guard_logs()
