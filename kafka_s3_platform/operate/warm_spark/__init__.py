"""One Spark session for many runs of a user on one machine, in a process of its own (ADR 35)."""
