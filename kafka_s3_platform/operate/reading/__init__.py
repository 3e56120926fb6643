"""Reads the archive as tables: with Arrow for DuckDB, polars and pandas, and with a data source for Spark."""
