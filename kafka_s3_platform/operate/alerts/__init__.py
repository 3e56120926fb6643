"""Tells people about incidents and their end, by a webhook and by email."""
