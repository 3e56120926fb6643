"""Everything that interprets data: Connect's converters, transforms and formats, and other tools' objects."""

from collections.abc import Mapping

EXTENSIONS: Mapping[str, str] = {
    "can_select_foreign": "kafka_s3_platform.connect.defs.restore.foreign:can_select_foreign",
    "check_decoding": "kafka_s3_platform.connect.restore.outgoing.stream:check_decoding",
    "collect_schema_ids": "kafka_s3_platform.connect.segments.schema_ids:collect_schema_ids",
    "fetch_archived_schemas": "kafka_s3_platform.connect.segments.schema_ids:fetch_archived_schemas",
    "find_connector": "kafka_s3_platform.connect.config.files:find_connector",
    "find_public_options": "kafka_s3_platform.connect.config.keys.transforms:find_public_options",
    "formats": "kafka_s3_platform.connect.config.formats_of_connect:FORMATS_OF_CONNECT",
    "keeps_content": "kafka_s3_platform.connect.config.keys.transforms:keeps_content",
    "key_layouts": "kafka_s3_platform.connect.layouts.time_folders:KEY_LAYOUTS",
    "list_outside_values": "kafka_s3_platform.connect.config.config_providers:list_outside_values",
    "list_record_steps": "kafka_s3_platform.connect.segments.record_steps:list_record_steps",
    "load_connectors": "kafka_s3_platform.connect.config.files:load_connectors",
    "map_schemas": "kafka_s3_platform.connect.restore.outgoing.schemas:map_schemas",
    "new_chain": "kafka_s3_platform.connect.transforms:new_chain",
    "new_changing_stream": "kafka_s3_platform.connect.restore.outgoing.stream:OutgoingStream",
    "new_schema_targets": "kafka_s3_platform.connect.segments.schema_targets:SchemaTargets",
    "partitioners": "kafka_s3_platform.connect.partitioners.fields:PARTITIONERS",
    "read_outgoing": "kafka_s3_platform.connect.restore.outgoing.keys:read_outgoing",
    "read_target_cluster": "kafka_s3_platform.connect.config.files:read_target_cluster",
    "timestamp_extractors": "kafka_s3_platform.connect.partitioners.fields:TIMESTAMP_EXTRACTORS",
    "users_key_layout": "kafka_s3_platform.connect.layouts.own_class:UsersLayout",
}
"""The functions and classes of this package by the names the core asks for: see `kafka_s3_platform.core.extensions`."""
