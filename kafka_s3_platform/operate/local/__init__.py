"""The embedded stack: one Apache Kafka broker and one SeaweedFS S3 server, for development and tests."""
