"""Marked secrets in every place where a user may put one, searched for in everything that is written."""
