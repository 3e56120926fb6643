"""The core: records, the archive, its index, restores, and Dagster's assets of them."""
