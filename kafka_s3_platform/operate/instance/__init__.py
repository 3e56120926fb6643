"""Dagster's own storage, as `dagster.yaml`, the web server and the user's commands open it."""
