"""What `dagster.yaml`, the web server and the user's commands open of Dagster's own storage."""
