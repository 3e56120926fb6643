"""The keys of source connectors' files, which say how objects are read back.

Sources: Confluent's "Amazon S3 Source Connector Configuration Properties", the README of Aiven's S3 source connector.
"""

from kafka_s3_platform.config.table import alias, honoured, not_yet, refused, without_meaning

SOURCE_KEYS = (
    honoured(
        "behavior.on.error",
        "fail",
        "What becomes of objects and records that cannot be read, names that do not parse and objects in the wrong"
        " folder: `fail`, `ignore` or `log`. An Avro or Parquet object goes out whole or not at all.",
    ),
    honoured(
        "s3.poll.interval.ms",
        "60000",
        "How often the connector's sensor looks for new objects, once it is turned on: see"
        " [restore](restore.md#going-on-with-what-appears).",
    ),
    honoured(
        "input.format",
        "bytes",
        "Aiven's word for what objects hold: `avro`, `parquet`, `jsonl` or `bytes` (lines). Lenses' envelopes:"
        " `lenses.json`, `lenses.avro`, `lenses.parquet`.",
    ),
    honoured("topic", None, "Aiven's: the topic of all objects, where `file.name.template` names none."),
    honoured(
        "archive.source.template",
        None,
        "The keys below `topics.dir`, whoever wrote them: see [layouts](layouts.md#names-that-others-gave). Secor's:"
        " `{{topic}}/dt={{any}}/{{any}}_{{partition}}_{{start_offset}}.gz`.",
    ),
    honoured(
        "archive.source.thaw.days",
        "none",
        "Objects in the storage classes `GLACIER` and `DEEP_ARCHIVE` are asked for, for so many days. None: they are"
        " reported.",
    ),
    honoured(
        "archive.source.csv.empty",
        "refuse",
        "Of Aiven's csv, in which null and empty look the same: an empty key or value is `null`, `empty`, or a bad"
        " record (`refuse`). Unset: keys are null, values bad, since a null value deletes its key.",
    ),
    honoured(
        "archive.source.offset.field",
        None,
        "The field of the records in JSON, Avro or Parquet that tells the source offset, by names with dots between:"
        " `metadata.offset` in the envelope of Lenses.",
    ),
    honoured(
        "archive.source.timestamp.field",
        None,
        "The field that tells the timestamp, epoch ms or ISO 8601: `metadata.timestamp` in the envelope of Lenses.",
    ),
    honoured("archive.source.thaw.tier", "Standard", "How fast they come: `Standard`, `Bulk` or `Expedited`."),
    honoured(
        "archive.source.cluster",
        None,
        "The cluster that the records are of, by its id (surer) or its bootstrap servers: on another one they may go to"
        " topics of the same name, as long as no connector here archives those.",
    ),
    alias("aws.s3.poll.interval.ms", "s3.poll.interval.ms", "Another"),
    *without_meaning(
        "Objects are read batch by batch, whatever their size.",
        "record.batch.max.size",
        "task.batch.size",
        "aws.s3.fetch.buffer.size",
        "transformer.max.buffer.size",
        "ring.buffer.size",
        "distribution.type",
    ),
    not_yet("file.discovery.starting.timestamp", "choose hours or offsets with the restore's own windows", "0"),
    refused(
        "mode",
        "objects of any name need `archive.source.template` to say what their keys tell",
        "RESTORE_BACKUP",
    ),
    refused("topic.regex.list", "belongs to `mode=GENERIC`; describe the keys with `archive.source.template`"),
    refused("native.start.key", "choose hours or offsets with the restore's own windows"),
    refused("folders", "Connect sets it for its own tasks"),
)
