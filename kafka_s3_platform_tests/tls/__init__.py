"""Kafka, S3 and the Schema Registry over TLS, with certificates of a private authority."""
