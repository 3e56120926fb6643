"""The keys that decide what objects hold, how they are named and where they end."""

from kafka_s3_platform.config.table import alias, honoured, not_yet, refused, without_meaning

_BY_FORMAT = "snappy for `ParquetFormat`, null for `AvroFormat`, none for the others; zstd for the Parquet envelope"

FORMAT_KEYS = (
    honoured(
        "format.class",
        "EnvelopeParquetFormat",
        "What objects hold. Connect's `AvroFormat`, `JsonFormat`, `ByteArrayFormat`, `ParquetFormat`, by full or short"
        " name; ours: `EnvelopeParquetFormat`, `EnvelopeAvroFormat`, `EnvelopeJsonFormat` (whole records, their bytes"
        " as they are, with the columns of Spark's Kafka source), `BlockGzipFormat`; or the dotted name of an allowed"
        " Python class, which is code.",
    ),
    honoured("output.data.format", None, "Cloud's word for the format: `AVRO`, `JSON`, `BYTES` or `PARQUET`."),
    honoured("format.output.type", None, "Aiven's word for the format: `csv`, `jsonl`, `avro` or `parquet`."),
    honoured("format.output.fields", "value", "Aiven's: only `value`. The envelope formats hold all of a record."),
    honoured("format.output.envelope", "true", "Aiven's: `false`, which `jsonl`, `avro` and `parquet` need here."),
    honoured("format.output.fields.value.encoding", "base64", "Aiven's: `none`, which `csv` needs here."),
    honoured(
        "compression.codec",
        None,
        "Cloud's word for the codec, with its format: `JSON - gzip`, `BYTES - gzip`, `AVRO - snappy`, `PARQUET - gzip`"
        " and so on, or `none`.",
    ),
    honoured(
        "s3.compression.type",
        "none",
        "For `JsonFormat`, `ByteArrayFormat` and `EnvelopeJsonFormat`: `none`, `gzip`, `bzip2` or `zstd`. Keys and"
        " headers beside them too. A source knows `lz4`, `snappy` and `xz` as well.",
    ),
    honoured(
        "s3.compression.level",
        "the codec's own",
        "For gzip 1 to 9, as for bzip2; for zstd 1 to 22. `-1` or unset: gzip by a library that needs a tenth of the"
        " time, its objects 4 to 12 % larger than those of level 6.",
    ),
    alias("file.compression.type", "s3.compression.type", "Aiven's"),
    alias("format.avro.codec", "avro.codec", "Aiven's"),
    honoured("avro.codec", "null", "For Avro objects: `null`, `deflate`, `snappy`, `bzip2` or `zstd`."),
    honoured(
        "parquet.codec",
        "snappy; zstd for the envelope",
        "For Parquet objects: `none`, `snappy`, `gzip`, `zstd` or `lz4`.",
    ),
    honoured("format.bytearray.extension", ".bin", "The extension of `ByteArrayFormat`'s objects."),
    honoured(
        "format.bytearray.separator",
        "`\\n`",
        "What follows each record of `ByteArrayFormat`; may hold `\\n`, `\\r`, `\\t`, `\\\\` and `\\uXXXX`. A record"
        " that holds it fails, or it would read back as two. `length`: four bytes before each record tell its length."
        " In a source's file it also says that raw bytes may be told apart by it.",
    ),
    honoured("json.decimal.format", "BASE64", "How JSON objects hold decimals: `BASE64` or `NUMERIC`."),
    honoured("compressed_block_size", "67108864", "Uncompressed bytes of one gzip member of `BlockGzipFormat`."),
    honoured("store.kafka.keys", "false", "Keys go to objects of their own, beside those of the values."),
    honoured("store.kafka.headers", "false", "Headers go to objects of their own, beside those of the values."),
    honoured("keys.format.class", "AvroFormat", "The format of keys' objects; needs `store.kafka.keys`."),
    honoured("headers.format.class", "AvroFormat", "The format of headers' objects; needs `store.kafka.headers`."),
    honoured("output.keys.format", None, "Cloud's word for `keys.format.class`: `AVRO`, `JSON`, `BYTES` or `PARQUET`."),
    honoured("output.headers.format", None, "Cloud's word for `headers.format.class`: `AVRO`, `JSON` or `PARQUET`."),
    honoured(
        "behavior.on.null.values",
        "fail; write for the envelope",
        "Records without a value: `ignore`, `fail`, or `write`, which puts their keys into a folder of their own and"
        " needs `store.kafka.keys`. The envelope always writes them where their timestamp puts them.",
    ),
    honoured("tombstone.encoded.partition", "tombstone", "The folder of records without a value."),
    honoured(
        "schema.compatibility", "NONE", "`NONE`, `BACKWARD`, `FORWARD` or `FULL`: when a schema begins an object."
    ),
)

PATH_KEYS = (
    honoured(
        "topics.dir",
        "topics",
        "The folder that all objects go to. Slashes at its ends are trimmed: `/` is the bucket's root, for a source.",
    ),
    alias("s3.prefix", "topics.dir", "DeviantArt's"),
    honoured("aws.s3.prefix", None, "Aiven's: what every key begins with, up to its last slash the folder."),
    alias("file.name.prefix", "aws.s3.prefix", "Aiven's new"),
    alias("file.prefix.template", "aws.s3.prefix", "Aiven's newest"),
    alias("aws_s3_prefix", "aws.s3.prefix", "Aiven's old"),
    honoured(
        "partitioner.class",
        "HourlyPartitioner for the envelope, else DefaultPartitioner",
        "`DefaultPartitioner`, `FieldPartitioner`, `HourlyPartitioner`, `DailyPartitioner` or `TimeBasedPartitioner`,"
        " by full or short name, or the dotted name of an allowed Python class, which is code. Objects end with"
        " their hour all the same.",
    ),
    honoured("time.interval", None, "Cloud's word for the partitioner: `HOURLY` or `DAILY`."),
    honoured(
        "partition.field.name",
        None,
        "For `FieldPartitioner`, required: fields of the value, separated by commas; `a.b` is a nested one.",
    ),
    honoured(
        "path.format",
        "`'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH`; Daily: without the hour; TimeBased: required",
        "The time folders, as a Joda pattern. Honoured for every time-based partitioner, as in Cloud; Connect's own"
        " Hourly and Daily partitioners overwrite it. `YYYY` is the year of era, never the week year.",
    ),
    honoured(
        "partition.duration.ms",
        "an hour; Daily: a day; TimeBased: required",
        "How long a time folder of `TimeBasedPartitioner` lasts. Without meaning for the others, whose span is fixed.",
    ),
    honoured("locale", "en", "A locale id, such as `en` or `fr-FR`: the names of months and days in `path.format`."),
    honoured("timezone", "UTC", "Timezone of hours, days and folders, such as `Europe/Paris`, or a Java id (`PST`)."),
    alias("file.name.timestamp.timezone", "timezone", "Aiven's"),
    honoured(
        "timestamp.extractor",
        "Record",
        "What time decides the folder: `Record` (the record's timestamp; Connect's default is `Wallclock`),"
        " `Wallclock`, `RecordField`, by full or short name, or the dotted name of an allowed Python class, which"
        " is code.",
    ),
    honoured("file.name.timestamp.source", "WALLCLOCK", "Aiven's: `WALLCLOCK`, or `EVENT`, the record's timestamp."),
    honoured(
        "timestamp.field",
        "timestamp",
        "For `RecordField`: the value's field, `a.b` a nested one; epoch seconds or ms, ISO 8601 or a date. `S3_SINK`"
        " needs no extractor beside it.",
    ),
    honoured("filename.offset.zero.pad.width", "10", "Digits that the offset in an object's key is padded to."),
    honoured("directory.delim", "/", "What folders are separated by."),
    honoured("file.delim", "+", "What the parts of a file name are separated by."),
    honoured(
        "file.name.template", "`{{topic}}-{{partition}}-{{start_offset}}`", "Aiven's file names, with their folders."
    ),
    honoured(
        "archive.key.layout",
        "connect",
        "How objects are named: `connect`; `block_gzip` as DeviantArt's sink; `zooz` as Zooz's; `template` by"
        " `file.name.template`; `lenses`, of a source, as Lenses' sink.",
    ),
    honoured(
        "archive.key.extension", "the format's own", "The extension of objects, without its leading dot. `.`: none."
    ),
)

ROTATION_KEYS = (
    honoured("flush.size", "none; 1000 for `S3_SINK`", "Records after which an object ends. None: it ends by bytes."),
    alias("file.max.records", "flush.size", "Aiven's"),
    honoured(
        "rotate.interval.ms",
        "none; `S3_SINK`: the span of `time.interval`",
        "An object ends before a record whose time is this far from that of its first record. At least 600000 for"
        " `S3_SINK`. `-1`: off.",
    ),
    honoured(
        "rotate.schedule.interval.ms",
        "-1",
        "How often the open hour is archived. Objects end with each such slot of their hour. At least 600000 for"
        " `S3_SINK`. `-1`: off.",
    ),
)

LAYOUT_KEYS = (
    *FORMAT_KEYS,
    *PATH_KEYS,
    *ROTATION_KEYS,
    *without_meaning(
        "Schemas are written as the registry has them, so Connect's own conversions do not come in.",
        "connect.meta.data",
        "enhanced.avro.schema.support",
        "allow.optional.map.keys",
    ),
    *without_meaning("Schemas are few: those of a run are kept.", "schema.cache.size", "schemas.cache.config"),
    *without_meaning(
        "Open writers and buffers are bounded without it.", "partitioner.max.open.files", "local.buffer.dir"
    ),
    *without_meaning(
        "An object holds the records of one folder, and ends where they end.", "rotate.file.on.partition.change"
    ),
    *without_meaning("Belongs to `hive.integration`.", "hive.*"),
    not_yet("s3.schema.partition.affix.type", "folders do not name schemas", "NONE"),
    refused(
        "storage.class",
        "objects go to S3, or to what speaks its protocol at `store.url`",
        "S3Storage",
        "io.confluent.connect.s3.storage.S3Storage",
    ),
    refused(
        "schema.generator.class",
        "it makes Hive's schemas, and Java classes cannot run here",
        "DefaultSchemaGenerator",
        "TimeBasedSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.TimeBasedSchemaGenerator",
    ),
    refused("hive.integration", "no Hive metastore is written to", "false"),
)
