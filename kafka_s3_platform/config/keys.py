"""Every key that a connector file or worker.properties may hold, and what this version does with it.

One table: the loader, the check report and `docs/connector-files.md` read it.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NOT_YET = "known, not honoured by this version yet"


class Support(Enum):
    """What this version does with a key."""

    HONOURED = "honoured"
    WITHOUT_MEANING = "accepted without meaning here"
    NOT_YET = NOT_YET
    REFUSED = "refused"


@dataclass(frozen=True)
class Key:
    """A key, or a family of keys where `name` ends in `.*`.

    `neutral` are the values of an unsupported key that ask for nothing beyond what is done anyway: they are accepted
    without meaning, so that a file which spells out Connect's defaults loads.
    """

    name: str
    support: Support
    doc: str
    default: str | None = None
    neutral: tuple[str, ...] = ()

    def is_neutral(self, value: str) -> bool:
        """Whether `value` asks for nothing that is missing here."""
        return value.strip().casefold() in {known.casefold() for known in self.neutral}


class KeyTable:
    """Looks keys up by exact name, else by the longest family they belong to."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._exact = {key.name: key for key in keys}
        self._families = sorted((name for name in self._exact if name.endswith(".*")), key=len, reverse=True)

    def find(self, name: str) -> Key | None:
        if name in self._exact:
            return self._exact[name]
        family = next((family for family in self._families if name.startswith(family[:-1])), None)
        return None if family is None else self._exact[family]

    def nearest(self, name: str) -> str | None:
        """The known key that `name` is most likely meant to be."""
        return nearest(name, (known for known in self._exact if not known.endswith(".*")))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` closest to `word`, or None where none is close."""
    by_fold = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), by_fold, 1)
    return by_fold[close[0]] if close else None


def _honoured(name: str, default: str | None, doc: str) -> Key:
    return Key(name, Support.HONOURED, doc, default)


def _without_meaning(doc: str, *names: str) -> tuple[Key, ...]:
    return tuple(Key(name, Support.WITHOUT_MEANING, doc) for name in names)


def _not_yet(name: str, doc: str, *neutral: str) -> Key:
    return Key(name, Support.NOT_YET, doc, neutral=neutral)


def _refused(name: str, doc: str, *neutral: str) -> Key:
    return Key(name, Support.REFUSED, doc, neutral=neutral)


REQUIRED = "required"
"""The `default` of a key without which a file does not load."""

HONOURED_KEYS = (
    _honoured("name", REQUIRED, "The connector's name: letters, digits, `.`, `_`, `-`. In asset keys and the index."),
    _honoured(
        "connector.class", "S3SinkConnector", "Confluent's S3 sink, by full or short name, or Cloud's `S3_SINK`."
    ),
    _honoured("tasks.max", "1", "The most Spark tasks that one run has at work at a time. Changes nothing else."),
    _honoured("topics", REQUIRED, "Topics to archive, separated by commas."),
    _honoured("s3.bucket.name", REQUIRED, "The bucket."),
    _honoured("s3.region", "us-west-2", "The AWS region of the bucket."),
    _honoured("store.url", "AWS's endpoint", "Endpoint of an S3-compatible store, `http://` or `https://`."),
    _honoured("s3.path.style.access.enabled", "true", "The bucket is named in the path instead of the host name."),
    _honoured("s3.part.size", "26214400", "Bytes of one part of a multipart upload, 5242880 or more."),
    _honoured("s3.part.retries", "3", "How often a failed S3 request is tried again."),
    _honoured("aws.access.key.id", "AWS's credentials chain", "Access key id; needs `aws.secret.access.key`."),
    _honoured("aws.secret.access.key", "AWS's credentials chain", "Secret access key; needs `aws.access.key.id`."),
    _honoured("s3.credentials.provider.aws.access.key.id", None, "Another name of `aws.access.key.id`."),
    _honoured("s3.credentials.provider.aws.secret.access.key", None, "Another name of `aws.secret.access.key`."),
    _honoured("s3.credentials.provider.access_key_id", None, "Aiven's name of `aws.access.key.id`."),
    _honoured("s3.credentials.provider.secret_access_key", None, "Aiven's name of `aws.secret.access.key`."),
    _honoured("topics.dir", "topics", "The folder that all objects go to. Slashes at its ends are trimmed."),
    _honoured(
        "format.class",
        "EnvelopeParquetFormat",
        "`kafka_s3_platform.formats.EnvelopeParquetFormat`, by full or short name: Parquet with zstd, whose columns are"
        " those of Spark's Kafka source. Connect's own formats are not honoured by this version yet.",
    ),
    _honoured("flush.size", "none; 1000 for `S3_SINK`", "Records after which an object ends. None: it ends by bytes."),
    _honoured(
        "partitioner.class",
        "HourlyPartitioner",
        "`HourlyPartitioner`, `DailyPartitioner` or `TimeBasedPartitioner`, by full or short name. Connect's default is"
        " `DefaultPartitioner`; this platform archives hours. `DefaultPartitioner` and `FieldPartitioner` are not"
        " honoured by this version yet.",
    ),
    _honoured("time.interval", None, "Cloud's word for the partitioner: `HOURLY` or `DAILY`."),
    _honoured(
        "path.format",
        "`'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH`; Daily: without the hour; TimeBased: required",
        "The time folders, as a Joda pattern. Honoured for every partitioner, as in Cloud; Connect's own Hourly and"
        " Daily partitioners overwrite it.",
    ),
    _honoured(
        "partition.duration.ms",
        "an hour; Daily: a day; TimeBased: required",
        "How long a time folder of `TimeBasedPartitioner` lasts. Without meaning for the others, whose span is fixed.",
    ),
    _honoured("locale", "en", "A locale id, such as `en` or `fr-FR`. Paths hold numbers only, so all write the same."),
    _honoured("timezone", "UTC", "Timezone of hours, days and folders, such as `Europe/Paris`, or a Java id (`PST`)."),
    _honoured(
        "timestamp.extractor",
        "Record",
        "`Record` (the record's timestamp) or `Wallclock`, by full or short name. `RecordField` is not honoured by this"
        " version yet.",
    ),
    _honoured("filename.offset.zero.pad.width", "10", "Digits that the offset in an object's key is padded to."),
    _honoured("kafka.api.key", None, "Cloud's API key: the cluster is read over SASL_SSL with mechanism PLAIN."),
    _honoured("kafka.api.secret", None, "The secret of `kafka.api.key`."),
    _honoured("kafka.endpoint", None, "Cloud's bootstrap servers, instead of those of worker.properties."),
    _honoured("consumer.override.*", None, "A consumer property for this connector, over `consumer.*` of the worker."),
    _honoured("producer.override.*", None, "A producer property for this connector, over `producer.*` of the worker."),
    _honoured("admin.override.*", None, "An admin client property for this connector, over `admin.*` of the worker."),
)

OWN_KEYS = (
    _honoured(
        "archive.start.hour",
        "2020-01-01T00:00",
        "The first hour of the archive, ISO 8601, in the connector's timezone. Older records are archived too, in the"
        " folder `__out_of_range__`.",
    ),
    _honoured("archive.allowed.lateness.ms", "300000", "How long after its end an hour waits for late records."),
    _honoured("archive.index.dir", "_index", "The folder of the index, in the same bucket."),
    _honoured("archive.restore.dir", "_restore", "The folder of restore plans, in the same bucket."),
    _honoured("archive.task.size", "1000000", "Offsets that one Spark task scans at the most."),
    _honoured("archive.segment.bytes", "268435456", "Uncompressed record bytes after which an object ends."),
    _honoured("archive.daily.segment.bytes", "1073741824", "Bytes that the objects of a compacted day aim at."),
    _honoured(
        "archive.allow.gaps", "false", "`true`: offsets that retention took are recorded as a gap; else it fails."
    ),
    _honoured("archive.records.per.second", "unlimited", "The most records that a run reads in a second."),
    _honoured("archive.bytes.per.second", "unlimited", "The most bytes that a run reads in a second."),
)

_BYTES_STAY = "The envelope keeps keys, values and headers as the bytes that they are."
_OTHER_FORMATS = "Belongs to formats that this version does not write; the envelope is Parquet with zstd."
_NO_CONNECT = "Belongs to Connect's own runtime."
_NO_GROUP = "Ranges are assigned, not subscribed: there is no consumer group to keep alive."
_NO_LICENCE = "No licence is needed, and no topic to keep one."
_DEAD_LETTERS = "Belongs to the dead letter topic, which this version does not write."

WITHOUT_MEANING_KEYS = (
    *_without_meaning(
        _BYTES_STAY,
        "key.converter",
        "value.converter",
        "header.converter",
        "key.converter.*",
        "value.converter.*",
        "header.converter.*",
        "input.data.format",
        "input.key.format",
        "input.header.format",
        "schema.context.name",
        "schema.registry.*",
        "subject.name.strategy",
        "key.subject.name.strategy",
        "value.subject.name.strategy",
    ),
    *_without_meaning(
        _OTHER_FORMATS,
        "avro.codec",
        "json.decimal.format",
        "format.bytearray.extension",
        "format.bytearray.separator",
        "connect.meta.data",
        "schema.cache.size",
        "schemas.cache.config",
        "enhanced.avro.schema.support",
        "allow.optional.map.keys",
    ),
    *_without_meaning(
        "Belongs to `store.kafka.keys` and `store.kafka.headers`; the envelope holds both.",
        "keys.format.class",
        "headers.format.class",
        "output.keys.format",
        "output.headers.format",
    ),
    *_without_meaning("Tombstones stay where their timestamp puts them.", "tombstone.encoded.partition"),
    *_without_meaning("Tombstones are archived, so none is reported.", "report.null.values.to.dlq"),
    *_without_meaning(
        "Objects are always written once, on condition that they do not exist.",
        "enable.conditional.writes",
        "max.files.scan.limit",
    ),
    *_without_meaning("Every object carries a checksum.", "s3.send.digest"),
    *_without_meaning(
        "The S3 client has its own rules for this.", "s3.retry.backoff.ms", "s3.http.send.expect.continue"
    ),
    *_without_meaning(
        "Open writers and buffers are bounded without it.",
        "s3.elastic.buffer.enable",
        "s3.elastic.buffer.init.capacity",
        "partitioner.max.open.files",
        "local.buffer.dir",
    ),
    *_without_meaning("Belongs to `rotate.interval.ms`.", "rotate.file.on.partition.change"),
    *_without_meaning("Belongs to `hive.integration`.", "hive.*"),
    *_without_meaning(
        _NO_CONNECT,
        "tasks.max.enforce",
        "config.action.reload",
        "connector.plugin.version",
        "max.write.duration.ms",
        "retry.backoff.ms",
        "shutdown.timeout.ms",
        "errors.retry.delay.max.ms",
        "auto.restart.on.user.error",
    ),
    *_without_meaning(_NO_GROUP, "max.poll.interval.ms", "max.poll.records"),
    *_without_meaning(
        _DEAD_LETTERS,
        "errors.deadletterqueue.topic.replication.factor",
        "errors.deadletterqueue.context.headers.enable",
    ),
    *_without_meaning(_NO_LICENCE, "confluent.*"),
    *_without_meaning(
        "Says where Confluent Cloud runs the connector.",
        "kafka.region",
        "kafka.dedicated",
        "kafka.service.account.id",
        "cloud.environment",
        "cloud.provider",
    ),
)

_ENVELOPE_INSTEAD = "remove the key to archive in the native Parquet envelope"
_DEVIANTART = "a key of DeviantArt's Block-GZIP sink"
_AIVEN = "a key of Aiven's S3 sink; write the file with Confluent's keys"
_DEFAULT_CHAIN = (
    "DefaultAWSCredentialsProviderChain",
    "com.amazon.auth.DefaultAWSCredentialsProviderChain",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    "io.aiven.kafka.connect.util.AivenAWSCredentialsProvider",
)

NOT_YET_KEYS = (
    _not_yet("topics.regex", "list the topics in `topics`", ""),
    _not_yet("output.data.format", _ENVELOPE_INSTEAD),
    _not_yet("compression.codec", "the envelope is compressed with zstd; " + _ENVELOPE_INSTEAD, "", "none"),
    _not_yet("s3.compression.type", "the envelope is compressed with zstd; " + _ENVELOPE_INSTEAD, "", "none"),
    _not_yet("s3.compression.level", "the envelope is compressed with zstd; " + _ENVELOPE_INSTEAD, "", "-1"),
    _not_yet("parquet.codec", "the envelope is compressed with zstd; " + _ENVELOPE_INSTEAD, "zstd"),
    _not_yet("store.kafka.keys", "the envelope holds keys; an object of their own is not written", "false"),
    _not_yet("store.kafka.headers", "the envelope holds headers; an object of their own is not written", "false"),
    _not_yet("behavior.on.null.values", "the envelope archives tombstones, which is `write`", "write"),
    _not_yet("timestamp.field", "the record's own timestamp is used; set `timestamp.extractor` to `Record`", ""),
    _not_yet("partition.field.name", "values are not decoded, so no field can be read", ""),
    _not_yet("rotate.interval.ms", "objects end by `flush.size`, by bytes and with their hour", "-1", "0"),
    _not_yet("rotate.schedule.interval.ms", "objects end by `flush.size`, by bytes and with their hour", "-1", "0"),
    _not_yet("schema.compatibility", "the envelope has one schema, which is `NONE`", "NONE"),
    _not_yet("s3.schema.partition.affix.type", "values are not decoded, so their schema is not known", "NONE"),
    _not_yet("directory.delim", "folders are separated by `/`", "", "/"),
    _not_yet("file.delim", "the parts of a file name are separated by `+`", "", "+"),
    _not_yet("errors.tolerance", "no record is dropped: an error fails the run, which is `none`", "none"),
    _not_yet("errors.retry.timeout", "a run that failed for a passing reason is run again", "0"),
    _not_yet("errors.log.enable", "an error fails the run and is logged with it", "false"),
    _not_yet("errors.log.include.messages", "records are never logged", "false"),
    _not_yet("errors.deadletterqueue.topic.name", "no record is dropped, so none is a dead letter", ""),
    _not_yet("transforms", "records are archived as they are", ""),
    _not_yet("transforms.*", "records are archived as they are"),
    _not_yet("predicates", "they choose records for transforms", ""),
    _not_yet("predicates.*", "they choose records for transforms"),
    _not_yet("s3.acl.canned", "objects get the bucket's default ACL", ""),
    _not_yet("s3.ssea.name", "the bucket's default encryption applies", ""),
    _not_yet("s3.sse.customer.key", "the bucket's default encryption applies", ""),
    _not_yet("s3.sse.kms.key.id", "the bucket's default encryption applies", ""),
    _not_yet("s3.object.tagging", "objects are not tagged", "false"),
    _not_yet("s3.object.tagging.key.value.pairs", "objects are not tagged", ""),
    _not_yet("s3.object.behavior.on.tagging.error", "objects are not tagged", "ignore"),
    _not_yet("s3.wan.mode", "the accelerated endpoint is not used", "false"),
    _not_yet("s3.proxy.url", "S3 is reached without a proxy", ""),
    _not_yet("s3.proxy.user", "S3 is reached without a proxy", ""),
    _not_yet("s3.proxy.password", "S3 is reached without a proxy", ""),
    _not_yet(
        "s3.credentials.provider.class",
        "AWS's default chain or `aws.access.key.id` with `aws.secret.access.key` is used",
        "",
        *_DEFAULT_CHAIN,
    ),
    _not_yet("s3.credentials.provider.*", "only the default provider's own keys are read"),
    _not_yet("sts.*", "no role is assumed by key; AWS's default chain assumes those of its profiles"),
    _not_yet("authentication.method", "use `aws.access.key.id` with `aws.secret.access.key`", "", "Access Keys"),
    _not_yet("provider.integration.id", "use `aws.access.key.id` with `aws.secret.access.key`", ""),
    _not_yet("csfle.*", "values are archived as they are, encrypted fields included"),
    _not_yet("behavior.on.error", "a key of the S3 source connector; restore with `kafka-s3 restore`"),
    _not_yet("s3.bucket", f"{_DEVIANTART}; Confluent's is `s3.bucket.name`"),
    _not_yet("s3.prefix", f"{_DEVIANTART}; Confluent's is `topics.dir`"),
    _not_yet("s3.endpoint", f"{_DEVIANTART}; Confluent's is `store.url`"),
    _not_yet("s3.path_style", f"{_DEVIANTART}; Confluent's is `s3.path.style.access.enabled`"),
    _not_yet("compressed_block_size", f"{_DEVIANTART}; objects end by `flush.size` and `archive.segment.bytes`"),
    *(
        _not_yet(name, _AIVEN)
        for name in (
            "aws.s3.bucket.name",
            "aws.s3.region",
            "aws.s3.endpoint",
            "aws.s3.prefix",
            "aws.s3.part.size.bytes",
            "aws.sts.*",
            "file.name.template",
            "file.name.prefix",
            "file.name.timestamp.source",
            "file.name.timestamp.timezone",
            "file.compression.type",
            "file.max.records",
            "format.output.type",
            "format.output.envelope",
            "format.output.fields",
            "format.output.fields.value.encoding",
        )
    ),
)

REFUSED_KEYS = (
    _refused(
        "storage.class",
        "objects go to S3, or to what speaks its protocol at `store.url`",
        "S3Storage",
        "io.confluent.connect.s3.storage.S3Storage",
    ),
    _refused(
        "schema.generator.class",
        "objects have the envelope's schema, and Java classes cannot run here",
        "DefaultSchemaGenerator",
        "TimeBasedSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.TimeBasedSchemaGenerator",
    ),
    _refused("hive.integration", "no Hive metastore is written to", "false"),
    _refused(
        "kafka.auth.mode",
        "service accounts exist in Confluent Cloud only; use `kafka.api.key` and `kafka.api.secret`",
        "KAFKA_API_KEY",
    ),
)

CONNECTOR_KEYS = KeyTable((*HONOURED_KEYS, *OWN_KEYS, *WITHOUT_MEANING_KEYS, *NOT_YET_KEYS, *REFUSED_KEYS))

WORKER_HONOURED_KEYS = (
    _honoured("bootstrap.servers", REQUIRED, "The cluster's brokers, `host:port`, separated by commas."),
    _honoured("consumer.*", None, "A property of the consumers that read topics."),
    _honoured("producer.*", None, "A property of the producers that restore topics."),
    _honoured("admin.*", None, "A property of the admin clients that look up offsets and create topics."),
)

WORKER_WITHOUT_MEANING_KEYS = (
    *_without_meaning(
        "Workers form no group here: state is in the index, and Dagster runs the work.",
        "group.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "rebalance.timeout.ms",
        "worker.sync.timeout.ms",
        "worker.unsync.backoff.ms",
        "scheduled.rebalance.max.delay.ms",
        "connect.protocol",
        "inter.worker.*",
        "config.storage.*",
        "offset.storage.*",
        "status.storage.*",
        "offset.flush.*",
        "task.shutdown.graceful.timeout.ms",
        "exactly.once.source.support",
        "topic.creation.enable",
        "topic.tracking.enable",
        "topic.tracking.allow.reset",
    ),
    *_without_meaning(
        "There is no Connect REST interface here.",
        "listeners",
        "listeners.https.*",
        "rest.*",
        "admin.listeners",
        "admin.listeners.*",
        "access.control.allow.origin",
        "access.control.allow.methods",
        "response.http.headers.config",
    ),
    *_without_meaning("No Java plugin is loaded.", "plugin.path", "plugin.discovery"),
    *_without_meaning(
        _BYTES_STAY,
        "key.converter",
        "value.converter",
        "header.converter",
        "key.converter.*",
        "value.converter.*",
        "header.converter.*",
        "internal.key.converter",
        "internal.value.converter",
        "internal.key.converter.*",
        "internal.value.converter.*",
    ),
    *_without_meaning("`${env:NAME}` works without it; other providers are refused.", "config.providers"),
    *_without_meaning("`${env:NAME}` works without it; other providers are refused.", "config.providers.*"),
    *_without_meaning(
        "Connectors may override any property that is honoured.", "connector.client.config.override.policy"
    ),
    *_without_meaning(_NO_LICENCE, "confluent.*"),
    *_without_meaning(
        "Metrics of a Java client.",
        "metric.reporters",
        "metrics.context.*",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
)
