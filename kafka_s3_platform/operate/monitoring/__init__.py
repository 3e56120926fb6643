"""Looks at connectors from outside of their runs, for late topics, records at risk, and failed runs."""
