"""The connectors whose files can be read, and the defaults of each.

Sources: Confluent's "Amazon S3 Sink Connector" and "Amazon S3 Source Connector" pages for Platform and for Cloud,
DeviantArt's kafka-connect-s3 README, the READMEs of Aiven's S3 sink and S3 source connectors,
Lenses' stream-reactor.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kafka_s3_platform.connect.config.keys import values


@dataclass(frozen=True)
class Dialect:
    """A connector class, a sink's or a source's, and the peculiarities of its files.

    `topics_dir`, `format`, `partitioner`, `flush_size` and `key_layout` are its defaults; None stands for this
    platform's own default. `required_there` are the keys required by the original. `implied` are keys required here
    whose values follow from one of those.
    """

    name: Literal["connect", "cloud", "deviantart", "aiven", "lenses", "archive"]
    class_name: str
    title: str
    required_there: tuple[str, ...] = ()
    own_keys: tuple[str, ...] = ()
    topics_dir: str = "topics"
    format: str | None = None
    partitioner: str | None = None
    flush_size: int | None = None
    key_layout: str = "connect"
    lowest_rotation_ms: int = 1
    is_source: bool = False
    implied: tuple[str, ...] = ()
    has_dead_letters: bool = False
    """True if bad records go to a dead letter topic of the connector's own, unless its file says otherwise."""

    @property
    def short_name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]


def _split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, separated by blanks."""
    return tuple(text.split())


CONNECT = Dialect(
    "connect",
    "io.confluent.connect.s3.S3SinkConnector",
    "Confluent's S3 sink for Platform",
    required_there=_split_names("name connector.class topics s3.bucket.name storage.class format.class flush.size"),
)
CLOUD = Dialect(
    "cloud",
    "S3_SINK",
    "Confluent Cloud's S3 sink",
    required_there=_split_names(
        """connector.class name kafka.api.key kafka.api.secret aws.access.key.id aws.secret.access.key input.data.format
        output.data.format compression.codec s3.compression.level s3.bucket.name time.interval tasks.max topics"""
    ),
    own_keys=("kafka.", "input.", "output.", "time.interval", "compression.codec", "schema.registry.", "cloud."),
    partitioner="Hourly",
    # Confluent Cloud's default, and the shortest interval that it allows.
    flush_size=1000,
    lowest_rotation_ms=600_000,
    has_dead_letters=True,
)
DEVIANTART = Dialect(
    "deviantart",
    "com.deviantart.kafka_connect_s3.S3SinkConnector",
    "DeviantArt's Block-GZIP sink",
    required_there=("name", "connector.class", "topics", "s3.bucket", "local.buffer.dir"),
    own_keys=("s3.bucket", "s3.prefix", "s3.endpoint", "s3.path_style", "compressed_block_size", "local.buffer.dir"),
    topics_dir="",
    format="block_gzip",
    partitioner="Daily",
    key_layout="block_gzip",
)
AIVEN = Dialect(
    "aiven",
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
    "Aiven's S3 sink",
    required_there=("name", "connector.class", "topics", "aws.s3.bucket.name"),
    own_keys=_split_names(
        "aws. aws_ file.name. file.prefix.template file.compression.type file.max.records format.output."
    ),
    topics_dir="",
    partitioner="Default",
    key_layout="template",
)
_SOURCE_KEYS = ("behavior.on.error", "s3.poll.interval.ms", "mode", "archive.source.")
CONNECT_SOURCE = Dialect(
    "connect",
    "io.confluent.connect.s3.source.S3SourceConnector",
    "Confluent's S3 source for Platform",
    required_there=("name", "connector.class", "s3.bucket.name", "format.class"),
    own_keys=_SOURCE_KEYS,
    is_source=True,
)
CLOUD_SOURCE = Dialect(
    "cloud",
    "S3_SOURCE",
    "Confluent Cloud's S3 source",
    required_there=("name", "connector.class", "s3.bucket.name", "tasks.max"),
    own_keys=(*CLOUD.own_keys, *_SOURCE_KEYS),
    partitioner="Hourly",
    is_source=True,
)
AIVEN_SOURCE = Dialect(
    "aiven",
    "io.aiven.kafka.connect.s3.source.S3SourceConnector",
    "Aiven's S3 source",
    required_there=("name", "connector.class", "aws.s3.bucket.name", "file.name.template"),
    own_keys=(*AIVEN.own_keys, *_SOURCE_KEYS, "input.format", "topic"),
    topics_dir="",
    partitioner="Default",
    key_layout="template",
    is_source=True,
)
_KCQL = "connect.s3.kcql"
LENSES = Dialect(
    "lenses",
    "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector",
    "Lenses' S3 sink (Stream Reactor)",
    required_there=("name", "connector.class", "topics", _KCQL),
    own_keys=("connect.s3.",),
    partitioner="Default",
    key_layout="template",
    implied=("s3.bucket.name",),
)
LENSES_SOURCE = Dialect(
    "lenses",
    "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
    "Lenses' S3 source (Stream Reactor)",
    required_there=("name", "connector.class", _KCQL),
    own_keys=(*LENSES.own_keys, *_SOURCE_KEYS, "input.format"),
    partitioner="Default",
    key_layout="lenses",
    is_source=True,
    implied=("s3.bucket.name",),
)
_READ_AS = (
    (
        ("s3.bucket",),
        replace(
            CONNECT_SOURCE,
            name="deviantart",
            topics_dir=DEVIANTART.topics_dir,
            format=DEVIANTART.format,
            partitioner=DEVIANTART.partitioner,
            key_layout=DEVIANTART.key_layout,
        ),
    ),
    (("aws.s3.bucket.name", "aws_s3_bucket", "aws_s3_bucket_name"), AIVEN_SOURCE),
    (("output.data.format",), CLOUD_SOURCE),
)
_SAID = ("format.class", "archive.key.layout", "archive.source.template")
"""Keys that describe objects. A source's file that has one needs no defaults of the sink that wrote the objects."""

ARCHIVE = Dialect("archive", "kafka_s3_platform.S3Archive", "this platform's own words", own_keys=("archive.",))

DIALECTS = (
    CONNECT,
    CLOUD,
    DEVIANTART,
    AIVEN,
    CONNECT_SOURCE,
    CLOUD_SOURCE,
    AIVEN_SOURCE,
    LENSES,
    LENSES_SOURCE,
    ARCHIVE,
)

_BY_CLASS: Mapping[str, Dialect] = {
    **{dialect.class_name: dialect for dialect in DIALECTS},
    "S3Sink": CONNECT,
    "io.aiven.kafka.connect.s3.S3SinkConnector": AIVEN,
    "S3Source": CONNECT_SOURCE,
    "io.aiven.kafka.connect.s3.S3SourceConnector": AIVEN_SOURCE,
}


def read_as(dialect: Dialect, keys: Container[str]) -> Dialect:
    """Return the dialect whose defaults apply to a file with these keys.

    If somebody changes only the class in a sink's file, to read its objects, the file keeps the defaults of the sink.
    """
    if dialect is not CONNECT_SOURCE or any(key in keys for key in _SAID):
        return dialect
    return next((sink for key_names, sink in _READ_AS if any(key in keys for key in key_names)), dialect)


CONNECTOR_CLASS: values.Parser[Dialect] = values.expect_class(_BY_CLASS)
