"""Retention of Dagster's runs."""
