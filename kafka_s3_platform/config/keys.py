"""Every key that a connector file or worker.properties may hold, and what this version does with it.

One table: the loader, the check report and `docs/connector-files.md` read it.
"""

from kafka_s3_platform.config.layout_keys import LAYOUT_KEYS
from kafka_s3_platform.config.lenses_keys import LENSES_KEYS
from kafka_s3_platform.config.limit_keys import LIMIT_KEYS
from kafka_s3_platform.config.record_keys import RECORD_KEYS
from kafka_s3_platform.config.source_keys import SOURCE_KEYS
from kafka_s3_platform.config.store_keys import STORE_KEYS
from kafka_s3_platform.config.table import REQUIRED, KeyTable, honoured, refused, without_meaning

_NO_LICENCE = "No licence is needed, and no topic to keep one."

GENERAL_KEYS = (
    honoured("name", REQUIRED, "The connector's name: letters, digits, `.`, `_`, `-`. In asset keys and the index."),
    honoured(
        "connector.class",
        "S3SinkConnector",
        "Whose words the file is written in: Confluent's, DeviantArt's or Aiven's S3 sink, Confluent's or Aiven's S3"
        " source, by full or short name, Lenses' S3 sink or source by full name, Cloud's `S3_SINK` or `S3_SOURCE`, or"
        " our own `S3Archive`. `kafka-s3 describe CLASS` tells its keys.",
    ),
    honoured("tasks.max", "1", "The most Spark tasks that one run has at work at a time. Changes nothing else."),
    honoured(
        "topics",
        "required, or `topics.regex`; a source's: every topic found",
        "Topics to archive, or to restore, separated by commas.",
    ),
    honoured("topics.regex", None, "Archives every topic that the whole of this pattern matches, instead of `topics`."),
    honoured("kafka.api.key", None, "Cloud's API key: the cluster is read over SASL_SSL with mechanism PLAIN."),
    honoured("kafka.api.secret", None, "The secret of `kafka.api.key`."),
    honoured("kafka.endpoint", None, "Cloud's bootstrap servers, instead of those of worker.properties."),
    honoured("consumer.override.*", None, "A consumer property for this connector, over `consumer.*` of the worker."),
    honoured("producer.override.*", None, "A producer property for this connector, over `producer.*` of the worker."),
    honoured("admin.override.*", None, "An admin client property for this connector, over `admin.*` of the worker."),
    *without_meaning(
        "Belongs to Connect's own runtime.",
        "tasks.max.enforce",
        "config.action.reload",
        "connector.plugin.version",
        "max.write.duration.ms",
        "retry.backoff.ms",
        "shutdown.timeout.ms",
        "auto.restart.on.user.error",
    ),
    *without_meaning(
        "Ranges are assigned, not subscribed: there is no consumer group to keep alive.",
        "max.poll.interval.ms",
        "max.poll.records",
    ),
    *without_meaning(_NO_LICENCE, "confluent.*"),
    *without_meaning(
        "Says where Confluent Cloud runs the connector.",
        "kafka.region",
        "kafka.dedicated",
        "kafka.service.account.id",
        "cloud.environment",
        "cloud.provider",
    ),
    refused(
        "kafka.auth.mode",
        "service accounts exist in Confluent Cloud only; use `kafka.api.key` and `kafka.api.secret`",
        "KAFKA_API_KEY",
    ),
)

OWN_KEYS = (
    honoured(
        "archive.start.hour",
        "2020-01-01T00:00",
        "The first hour of the archive, ISO 8601, in the connector's timezone. Older records are archived too, in the"
        " folder `__out_of_range__`.",
    ),
    honoured("archive.allowed.lateness.ms", "300000", "How long after its end an hour waits for late records."),
    honoured("archive.index.dir", "_index", "The folder of the index, in the same bucket."),
    honoured("archive.restore.dir", "_restore", "The folder of the plans, progress and reports of restores."),
    honoured(
        "archive.restore.bucket",
        "the archive's",
        "The bucket of that folder, for credentials that may only read the archive; same store and region.",
    ),
    honoured("archive.task.size", "1000000", "Offsets that one Spark task scans at the most."),
    honoured("archive.segment.bytes", "268435456", "Uncompressed record bytes after which an object ends."),
    honoured("archive.daily.segment.bytes", "1073741824", "Bytes that the objects of a compacted day aim at."),
    honoured(
        "archive.allow.gaps", "false", "`true`: offsets that retention took are recorded as a gap; else it fails."
    ),
    honoured(
        "archive.clock.tolerance.ms",
        "60000",
        "How far this machine's clock may be from the store's, or a broker's. Beyond that nothing is archived.",
    ),
    honoured(
        "archive.publish.offsets",
        "false",
        "`true`: after each commit, what is archived is committed as offsets of the group `connect-<name>`, for tools"
        " that show lag.",
    ),
    honoured(
        "archive.consumer.groups",
        None,
        "Names of consumer groups, or patterns that match whole names, separated by commas. Each run notes what they"
        " have committed of the topic, so that `kafka-s3 groups` can set them at a restored one.",
    ),
    honoured("archive.records.per.second", "unlimited", "The most records that a run reads in a second."),
    honoured("archive.bytes.per.second", "unlimited", "The most bytes that a run reads in a second."),
    *LIMIT_KEYS,
)

ALL_KEYS = (*GENERAL_KEYS, *RECORD_KEYS, *LAYOUT_KEYS, *STORE_KEYS, *SOURCE_KEYS, *LENSES_KEYS, *OWN_KEYS)
CONNECTOR_KEYS = KeyTable(ALL_KEYS)

WORKER_HONOURED_KEYS = (
    honoured("bootstrap.servers", REQUIRED, "The cluster's brokers, `host:port`, separated by commas."),
    honoured("value.converter", None, "The value's converter of connectors that name none."),
    honoured("key.converter", None, "The key's converter of connectors that name none."),
    honoured(
        "value.converter.*", None, "An option of that converter. Not for connectors that name one, as in Connect."
    ),
    honoured("key.converter.*", None, "An option of that converter. Not for connectors that name one, as in Connect."),
    honoured("header.converter", None, "That of source connectors that name none."),
    honoured("consumer.*", None, "A property of the consumers that read topics."),
    honoured("producer.*", None, "A property of the producers that restore topics."),
    honoured("admin.*", None, "A property of the admin clients that look up offsets and create topics."),
)

WORKER_WITHOUT_MEANING_KEYS = (
    *without_meaning(
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
    *without_meaning(
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
    *without_meaning("No Java plugin is loaded.", "plugin.path", "plugin.discovery"),
    *without_meaning("The value of a header is written as the bytes that it is.", "header.converter.*"),
    *without_meaning(
        "Connect's own state is not kept.",
        "internal.key.converter",
        "internal.value.converter",
        "internal.key.converter.*",
        "internal.value.converter.*",
    ),
    *without_meaning("`${env:NAME}` works without it; other providers are refused.", "config.providers"),
    *without_meaning("`${env:NAME}` works without it; other providers are refused.", "config.providers.*"),
    *without_meaning(
        "Connectors may override any property that is honoured.", "connector.client.config.override.policy"
    ),
    *without_meaning(_NO_LICENCE, "confluent.*"),
    *without_meaning(
        "Metrics of a Java client.",
        "metric.reporters",
        "metrics.context.*",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
)
