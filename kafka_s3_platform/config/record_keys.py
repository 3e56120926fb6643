"""The keys of what happens to records between Kafka and their objects: converters, transforms, errors."""

from kafka_s3_platform.config.table import honoured, not_yet, without_meaning

_CONVERTERS = (
    "`ByteArrayConverter`, `StringConverter`, `JsonConverter`, `JsonSchemaConverter`, `AvroConverter` or"
    " `ProtobufConverter`, by full or short name"
)
_INPUTS = "`BYTES`, `STRING`, `JSON` (without a schema), `JSON_SR`, `AVRO` or `PROTOBUF`"

RECORD_KEYS = (
    honoured(
        "value.converter",
        "that of worker.properties",
        f"How values are understood: {_CONVERTERS}. `ByteArrayFormat` and `BlockGzipFormat` do without; an envelope"
        " uses it only where something looks at values.",
    ),
    honoured("key.converter", "that of worker.properties", "How keys are understood, by the same names."),
    honoured("value.converter.*", None, "An option of the value's converter; see below."),
    honoured("key.converter.*", None, "An option of the key's converter."),
    honoured("input.data.format", None, f"Cloud's word for the value's converter: {_INPUTS}."),
    honoured("input.key.format", None, "Cloud's word for the key's converter, by the same words."),
    honoured(
        "schema.registry.*",
        None,
        "Cloud's words for the registry, of both converters; `value.converter.schema.registry.*` comes first.",
    ),
    honoured("transforms", None, "Aliases of transforms, separated by commas, in their order."),
    honoured(
        "transforms.*",
        None,
        "`transforms.<alias>.type`, its options, and `predicate` and `negate`. The dotted name of an allowed Python"
        " class as a type is code.",
    ),
    honoured("predicates", None, "Aliases of predicates, separated by commas."),
    honoured("predicates.*", None, "`predicates.<alias>.type` and its options."),
    honoured(
        "errors.tolerance",
        "none",
        "`none`: a record that cannot be converted or written fails the run, naming it; `all`: it is left out and"
        " counted.",
    ),
    honoured("errors.log.enable", "false", "Each record that is left out is logged, with the reason."),
    honoured("errors.log.include.messages", "false", "The log shows key and value, too."),
    honoured(
        "errors.deadletterqueue.topic.name",
        None,
        "The dead letter topic: a record that is left out is written to it first. Created when absent.",
    ),
    honoured("errors.deadletterqueue.topic.replication.factor", "3", "Of a dead letter topic that is created."),
    honoured(
        "errors.deadletterqueue.context.headers.enable", "false", "Dead letters carry `__connect.errors.*` headers."
    ),
    honoured(
        "report.null.values.to.dlq",
        "false",
        "`true` is refused where `behavior.on.null.values=ignore` stands beside a dead letter topic: records without a"
        " value that are left out are counted, never sent there.",
    ),
    *without_meaning("A run that failed for a passing reason is run again.", "errors.retry.timeout"),
    *without_meaning("A run that failed for a passing reason is run again.", "errors.retry.delay.max.ms"),
    honoured(
        "header.converter",
        "SimpleHeaderConverter",
        "Of source connectors: what the sink understood headers by. Those of `ByteArrayConverter` are base64 where a"
        " format has no bytes. A sink here writes the value of a header as it is.",
    ),
    honoured("input.header.format", None, "Cloud's word for it: `BYTES`, `STRING`, `JSON` ..."),
    *without_meaning("The value of a header is written as the bytes that it is.", "header.converter.*"),
    *without_meaning(
        "Nothing is written to a registry.",
        "schema.context.name",
        "subject.name.strategy",
        "key.subject.name.strategy",
        "value.subject.name.strategy",
    ),
    not_yet("csfle.*", "values are archived as they are, encrypted fields included"),
)
