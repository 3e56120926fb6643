"""Dagster's own storage: what `dagster.yaml` names, and how long it keeps what."""
