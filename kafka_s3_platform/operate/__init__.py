"""Watches and runs the platform: pages, metrics, alerts, warm Spark, the embedded stack, groups, reading."""
