"""Tells people, by a webhook and by email, what needs them and when it is over."""
