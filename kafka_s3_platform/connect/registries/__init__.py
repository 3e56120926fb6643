"""Archives whole Schema Registries, and restores them."""
