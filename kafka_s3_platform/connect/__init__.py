"""Everything that interprets: Connect's converters, transforms and formats, and what other tools have written."""

from collections.abc import Mapping

EXTENSIONS: Mapping[str, str] = {}
"""What the core finds here, by the name that it asks for: see `kafka_s3_platform.extensions`."""
