"""Dagster's own storage, as `dagster.yaml`, the webserver and the user's commands open it."""
