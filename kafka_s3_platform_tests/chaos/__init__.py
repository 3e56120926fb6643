"""Seeded liars between us and the broker and the store, and a checker that knows every record."""
