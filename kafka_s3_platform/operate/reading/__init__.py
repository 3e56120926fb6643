"""Reads the archive as tables: Arrow for DuckDB, polars and pandas, and a data source of Spark."""
