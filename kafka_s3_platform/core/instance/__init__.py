"""Dagster's own storage: the storage in `dagster.yaml`, and the retention of its runs."""
