"""Simulated worlds: a Kafka, users and clocks of one process, around the platform's real code, and who knows all."""
