"""A Spark session in a process of its own, for many runs of one user on one machine (ADR 35)."""
