"""Everything that interprets: Connect's converters, transforms and formats, and what other tools have written."""

from collections.abc import Mapping

EXTENSIONS: Mapping[str, str] = {
    "load_connectors": "kafka_s3_platform.connect.config.files:load_connectors",
    "read_target_cluster": "kafka_s3_platform.connect.config.files:read_target_cluster",
}
"""What the core finds here, by the name that it asks for: see `kafka_s3_platform.core.extensions`."""
