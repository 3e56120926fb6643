"""How long Dagster keeps runs."""
