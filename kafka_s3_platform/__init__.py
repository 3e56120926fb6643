"""Archive Kafka topics to S3 in hourly and daily chunks, and replay them exactly as they were."""
