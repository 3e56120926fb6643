"""A Spark session that outlives its process, for the runs of one user on one machine (ADR 35)."""
