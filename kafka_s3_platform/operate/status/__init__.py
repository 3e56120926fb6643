"""The state of connectors as a whole, and the concerns about it."""
