"""The keys of Lenses' S3 sink and source. `config.lenses` translates their KCQL.

Source: Lenses' stream-reactor, `S3CommonConfigDef`, `S3SinkConfigDef`, `S3SourceConfigDef`.
"""

from kafka_s3_platform.config.keys.table import (
    REQUIRED,
    Key,
    declare_alias,
    declare_honoured,
    declare_refused,
    declare_without_meaning,
)

LENSES_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "connect.s3.kcql",
        f"{REQUIRED} by Lenses' classes",
        "Lenses' statement that names source and target: `INSERT INTO bucket:prefix SELECT * FROM topic ...`, for a"
        " source the other way round, or as its sink has it. Its parts become keys, which `kafka-s3 check` shows; see"
        " [migrating](migrating.md#lenses-stream-reactor).",
    ),
    declare_honoured(
        "connect.s3.compression.codec", "UNCOMPRESSED", "Lenses' key for the codec of the objects that its sink writes."
    ),
    declare_honoured(
        "connect.s3.disable.flush.count", "false", "Lenses' key. `true`: objects do not end by their number of records."
    ),
    declare_honoured("connect.s3.vhost.bucket", "false", "Lenses' key. `true`: name the bucket in the host name."),
    declare_alias("connect.s3.path.style.access", "s3.path.style.access.enabled", "Lenses'"),
    declare_alias("connect.s3.aws.region", "s3.region", "Lenses'"),
    declare_alias("connect.s3.aws.access.key", "aws.access.key.id", "Lenses'"),
    declare_alias("connect.s3.aws.secret.key", "aws.secret.access.key", "Lenses'"),
    declare_alias("connect.s3.custom.endpoint", "store.url", "Lenses'"),
    declare_alias("connect.s3.compression.level", "s3.compression.level", "Lenses'"),
    declare_alias("connect.s3.http.max.retries", "s3.part.retries", "Lenses'"),
    declare_alias("connect.s3.http.retry.interval", "s3.retry.backoff.ms", "Lenses'"),
    *declare_without_meaning(
        "If access keys are set, they are used, else the default chain.", "connect.s3.aws.auth.mode"
    ),
    *declare_without_meaning(
        "Delivery is exactly once without Lenses' index files.",
        "connect.s3.exactly.once.enable",
        "connect.s3.indexes.*",
        "connect.s3.seek.max.files",
    ),
    *declare_without_meaning(
        "Not needed here.",
        "connect.s3.pool.max.connections",
        "connect.s3.http.socket.timeout",
        "connect.s3.http.connection.timeout",
        "connect.s3.local.tmp.directory",
        "connect.s3.log.metrics",
        "connect.s3.task.index",
        "connect.progress.enabled",
        "connect.s3.latest.schema.optimization.enabled",
    ),
    *declare_without_meaning(
        "`schema.compatibility` decides when a new schema begins a new object.", "connect.s3.schema.change.detector"
    ),
    *declare_without_meaning(
        "Offsets in names are written with 20 digits, and read with any padding.",
        "connect.s3.padding.strategy",
        "connect.s3.padding.length",
    ),
    *declare_without_meaning(
        "Objects are found by listing, and read in the order of their offsets within each kafka partition.",
        "connect.s3.ordering.type",
        "connect.s3.source.ordering.type",
        "connect.s3.source.partition.search.*",
        "connect.s3.source.empty.results.backoff.*",
        "connect.s3.source.late.arrival.interval",
    ),
    declare_refused(
        "connect.s3.source.partition.extractor.type",
        "names tell the kafka partition as Lenses' sink writes them; describe others with `archive.source.template` in"
        " a file of Confluent's class",
        "hierarchical",
        "none",
    ),
    declare_refused("connect.s3.source.partition.extractor.regex", "belongs to the extractor `regex`", "none"),
    declare_refused("connect.s3.source.extension.excludes", "all objects of the format's extension are read"),
    declare_refused("connect.s3.source.extension.includes", "all objects of the format's extension are read"),
    declare_refused(
        "connect.s3.source.write.watermark.headers", "`--provenance-headers` of a restore tells more", "false"
    ),
    declare_refused(
        "connect.s3.error.policy",
        "say `errors.tolerance`, or `behavior.on.error` of a source; failures that may pass are tried again anyway",
        "THROW",
        "RETRY",
    ),
    *declare_without_meaning(
        "Temporary failures are tried again in any case.",
        "connect.s3.max.retries",
        "connect.s3.retry.interval",
    ),
    declare_refused("connect.s3.skip.null.values", "say `behavior.on.null.values=ignore`", "false"),
    declare_refused("connect.s3.delete.mode", "objects are written in parts, and no run deletes any", "BatchDelete"),
    declare_refused("connect.s3.location", "belongs to the sink of consumer groups: say `archive.consumer.groups`"),
)
