"""A Kafka of three brokers: leaders here and there, and one that dies."""
