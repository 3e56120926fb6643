"""Looks at connectors from outside of their runs: late topics, records at risk, failed runs."""
