"""Tells people of incidents, and of their end, by a webhook and by email."""
