"""The keys of Lenses' S3 sink and source. What their KCQL comes to says `config.lenses`.

Source: Lenses' stream-reactor, `S3CommonConfigDef`, `S3SinkConfigDef`, `S3SourceConfigDef`.
"""

from kafka_s3_platform.config.table import REQUIRED, alias, honoured, refused, without_meaning

LENSES_KEYS = (
    honoured(
        "connect.s3.kcql",
        f"{REQUIRED} by Lenses' classes",
        "Lenses' statement of what goes where: `INSERT INTO bucket:prefix SELECT * FROM topic ...`, of a source the"
        " other way round. Its parts become keys, which `kafka-s3 check` shows: see"
        " [migrating](migrating.md#lenses-stream-reactor).",
    ),
    honoured("connect.s3.compression.codec", "UNCOMPRESSED", "Lenses': the codec of what its sink writes."),
    honoured("connect.s3.disable.flush.count", "false", "Lenses': `true`: objects do not end by their count."),
    honoured("connect.s3.vhost.bucket", "false", "Lenses': `true`: the bucket is named in the host name."),
    alias("connect.s3.path.style.access", "s3.path.style.access.enabled", "Lenses'"),
    alias("connect.s3.aws.region", "s3.region", "Lenses'"),
    alias("connect.s3.aws.access.key", "aws.access.key.id", "Lenses'"),
    alias("connect.s3.aws.secret.key", "aws.secret.access.key", "Lenses'"),
    alias("connect.s3.custom.endpoint", "store.url", "Lenses'"),
    alias("connect.s3.compression.level", "s3.compression.level", "Lenses'"),
    alias("connect.s3.http.max.retries", "s3.part.retries", "Lenses'"),
    alias("connect.s3.http.retry.interval", "s3.retry.backoff.ms", "Lenses'"),
    *without_meaning("Keys win over the default chain where they are there.", "connect.s3.aws.auth.mode"),
    *without_meaning(
        "Delivery is exactly once without Lenses' files of indexes.",
        "connect.s3.exactly.once.enable",
        "connect.s3.indexes.*",
        "connect.s3.seek.max.files",
    ),
    *without_meaning(
        "Nothing of the kind is needed here.",
        "connect.s3.pool.max.connections",
        "connect.s3.http.socket.timeout",
        "connect.s3.http.connection.timeout",
        "connect.s3.local.tmp.directory",
        "connect.s3.log.metrics",
        "connect.s3.task.index",
        "connect.progress.enabled",
        "connect.s3.latest.schema.optimization.enabled",
    ),
    *without_meaning(
        "A new schema begins a new object, by `schema.compatibility`.", "connect.s3.schema.change.detector"
    ),
    *without_meaning(
        "Offsets in names are padded here to 20 digits, and read however they are padded.",
        "connect.s3.padding.strategy",
        "connect.s3.padding.length",
    ),
    *without_meaning(
        "Objects are read in the order of their offsets, kafka partition by kafka partition, found by listing.",
        "connect.s3.ordering.type",
        "connect.s3.source.ordering.type",
        "connect.s3.source.partition.search.*",
        "connect.s3.source.empty.results.backoff.*",
        "connect.s3.source.late.arrival.interval",
    ),
    refused(
        "connect.s3.source.partition.extractor.type",
        "names tell the kafka partition as Lenses' sink writes them; describe others with `archive.source.template` in"
        " a file of Confluent's class",
        "hierarchical",
        "none",
    ),
    refused("connect.s3.source.partition.extractor.regex", "belongs to the extractor `regex`", "none"),
    refused("connect.s3.source.extension.excludes", "all objects of the format's extension are read"),
    refused("connect.s3.source.extension.includes", "all objects of the format's extension are read"),
    refused("connect.s3.source.write.watermark.headers", "`--provenance-headers` of a restore tells more", "false"),
    refused(
        "connect.s3.error.policy",
        "say `errors.tolerance`, or `behavior.on.error` of a source; failures that may pass are tried again anyway",
        "THROW",
        "RETRY",
    ),
    *without_meaning(
        "Failures that may pass are tried again in any case.",
        "connect.s3.max.retries",
        "connect.s3.retry.interval",
    ),
    refused("connect.s3.skip.null.values", "say `behavior.on.null.values=ignore`", "false"),
    refused("connect.s3.delete.mode", "objects are written in parts, and no run deletes any", "BatchDelete"),
    refused("connect.s3.location", "belongs to the sink of consumer groups: say `archive.consumer.groups`"),
)
