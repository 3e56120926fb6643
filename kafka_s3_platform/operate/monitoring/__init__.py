"""Looks at connectors from outside of their runs: what is late, what is at risk, what failed."""
