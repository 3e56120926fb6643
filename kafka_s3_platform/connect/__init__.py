"""Everything that interprets: Connect's converters, transforms and formats, and what other tools have written."""

from collections.abc import Mapping

EXTENSIONS: Mapping[str, str] = {
    "collect_schema_ids": "kafka_s3_platform.connect.segments.schema_ids:collect_schema_ids",
    "fetch_archived_schemas": "kafka_s3_platform.connect.segments.schema_ids:fetch_archived_schemas",
    "formats": "kafka_s3_platform.connect.config.formats_of_connect:FORMATS_OF_CONNECT",
    "key_layouts": "kafka_s3_platform.connect.layouts.time_folders:KEY_LAYOUTS",
    "list_record_steps": "kafka_s3_platform.connect.segments.record_steps:list_record_steps",
    "load_connectors": "kafka_s3_platform.connect.config.files:load_connectors",
    "new_schema_targets": "kafka_s3_platform.connect.segments.schema_targets:SchemaTargets",
    "partitioners": "kafka_s3_platform.connect.partitioners.fields:PARTITIONERS",
    "read_target_cluster": "kafka_s3_platform.connect.config.files:read_target_cluster",
    "timestamp_extractors": "kafka_s3_platform.connect.partitioners.fields:TIMESTAMP_EXTRACTORS",
}
"""What the core finds here, by the name that it asks for: see `kafka_s3_platform.core.extensions`."""
