"""Translates the keys of Lenses' S3 connectors, above all their KCQL, into the keys of the other connectors.

Source: Lenses' stream-reactor (`S3CommonConfigDef`, `S3SinkConfigDef`, `S3SourceConfigDef`), and the grammar of its
`kafka-connect-query-language` (ConnectorLexer.g4, ConnectorParser.g4).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from pydantic import SecretStr

from kafka_s3_platform.connect.config.config_providers import ConfigProviders
from kafka_s3_platform.connect.config.dialects import LENSES, LENSES_SOURCE
from kafka_s3_platform.connect.config.formats_of_connect import LENSES_WORDS
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.table import (
    REQUIRED,
    Key,
    declare_aliases,
    declare_honoured,
    declare_refused,
    declare_without_meaning,
)

_PIECE = re.compile(r"`[^`]+`|'[^'\r\n]*'|[=,();]|[^\s=,();`']+|\S")
_QUOTED = re.compile(r"`([^`]+)`|'([^']*)'", re.DOTALL)
_CLAUSES = ("PARTITIONBY", "NOPARTITION", "STOREAS", "PROPERTIES", "BATCH", "LIMIT")
_FORM = (
    "INSERT INTO <target> SELECT * FROM <source> [BATCH = n] [PARTITIONBY ... | NOPARTITION] [STOREAS format]"
    " [LIMIT n] [PROPERTIES('name'=value, ...)]"
)


@dataclass(frozen=True)
class Statement:
    """A statement of Lenses' KCQL. `partition_by` is None for the default folders, and empty for no folders."""

    target: str
    source: str
    format: str = "JSON"
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def parse_statements(text: str) -> list[Statement]:
    """Return the statements in a text, separated by semicolons.

    Raises:
        ValueError: the text holds no statement, or an unknown one.
    """
    pieces = _PIECE.findall(text)
    ends = [at for at, piece in enumerate(pieces) if piece == ";"]
    parts = [pieces[start:end] for start, end in zip([0, *(at + 1 for at in ends)], [*ends, len(pieces)], strict=True)]
    statements = [_parse_statement(part) for part in parts if part]
    if not statements:
        raise ValueError(f"holds no statement; write {_FORM}")
    return statements


def _parse_statement(pieces: Sequence[str]) -> Statement:
    """Parse one statement of KCQL, given as a sequence of words, names and signs."""
    words = [piece.upper() for piece in pieces]
    if words[:2] != ["INSERT", "INTO"] or "SELECT" not in words or "FROM" not in words[words.index("SELECT") :]:
        raise ValueError(f"{' '.join(pieces)!r} is not understood; write {_FORM}")
    select = words.index("SELECT")
    start = words.index("FROM", select) + 1
    if words[select + 1 : start - 1] != ["*"]:
        raise ValueError(f"only SELECT * is understood, not {' '.join(pieces[select : start - 1])!r}")
    end = next((at for at in range(start, len(words)) if words[at] in _CLAUSES), len(words))
    target, source = _join_name(pieces[2:select]), _join_name(pieces[start:end])
    return Statement(target, source, **_parse_clauses(pieces[end:]))


def _join_name(pieces: Sequence[str]) -> str:
    """Return the bucket and prefix, or the topic, formed by the pieces. Any part may be in backticks or quotes."""
    name = "".join(_strip_quotes(piece) for piece in pieces)
    if not name or re.search(r"[\s=,();`']", name):
        raise ValueError(f"{' '.join(pieces)!r} is no name: {_FORM}")
    return name


def _strip_quotes(piece: str) -> str:
    """Return a piece of a statement without its backticks or quotes."""
    return _QUOTED.sub(lambda match: match[1] or match[2] or "", piece)


def _parse_clauses(pieces: Sequence[str]) -> dict[str, Any]:
    """Parse the clauses after a statement's source into fields of Statement. BATCH and LIMIT have no effect here."""
    clauses: dict[str, Any] = {}
    starts = [at for at, piece in enumerate(pieces) if piece.upper() in _CLAUSES]
    for start, end in pairwise([*starts, len(pieces)]):
        rest = pieces[start + 1 : end]
        match pieces[start].upper():
            case "STOREAS":
                if len(rest) != 1:
                    raise ValueError(f"STOREAS {' '.join(rest)!r} is not understood; write {_FORM}")
                clauses["format"] = _strip_quotes(rest[0]).upper()
            case "NOPARTITION":
                clauses["partition_by"] = ()
            case "PARTITIONBY":
                clauses["partition_by"] = tuple(_strip_quotes(name) for name in "".join(rest).split(","))
            case "PROPERTIES":
                clauses["properties"] = _parse_properties(rest)
    return clauses


def _parse_properties(pieces: Sequence[str]) -> dict[str, str]:
    """Parse the pieces of a statement's `PROPERTIES('name'=value, ...)`."""
    if not pieces or pieces[0] != "(" or pieces[-1] != ")":
        raise ValueError(f"PROPERTIES {' '.join(pieces)!r} is not understood; write PROPERTIES('name'=value, ...)")
    inner = list(pieces[1:-1])
    properties: dict[str, str] = {}
    while inner:
        name, sign, value, comma = [*inner, ","][:4] if len(inner) >= 3 else (*inner, "", "", "")[:4]
        if sign != "=" or comma != ",":
            raise ValueError(f"PROPERTIES {' '.join(pieces)!r} is not understood; write PROPERTIES('name'=value, ...)")
        properties[_strip_quotes(name).casefold()] = _strip_quotes(value)
        inner = inner[4:]
    return properties


LENSES_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "connect.s3.kcql",
        "Lenses' statement that names source and target: `INSERT INTO bucket:prefix SELECT * FROM topic ...`, for a"
        " source the other way round, or as its sink has it. Its parts become keys, which `kafka-s3 check` shows; see"
        " [migrating](migrating.md#lenses-stream-reactor).",
        f"{REQUIRED} by Lenses' classes",
    ),
    declare_honoured(
        "connect.s3.compression.codec", "Lenses' key for the codec of the objects that its sink writes.", "UNCOMPRESSED"
    ),
    declare_honoured(
        "connect.s3.disable.flush.count", "Lenses' key. `true`: objects do not end by their number of records.", "false"
    ),
    declare_honoured("connect.s3.vhost.bucket", "Lenses' key. `true`: name the bucket in the host name.", "false"),
    *declare_aliases(
        "Lenses'",
        """connect.s3.path.style.access=s3.path.style.access.enabled connect.s3.aws.region=s3.region
        connect.s3.aws.access.key=aws.access.key.id connect.s3.aws.secret.key=aws.secret.access.key
        connect.s3.custom.endpoint=store.url connect.s3.compression.level=s3.compression.level
        connect.s3.http.max.retries=s3.part.retries connect.s3.http.retry.interval=s3.retry.backoff.ms""",
    ),
    *declare_without_meaning(
        "If access keys are set, they are used, else the default chain.", "connect.s3.aws.auth.mode"
    ),
    *declare_without_meaning(
        "Delivery is exactly once without Lenses' index files.",
        "connect.s3.exactly.once.enable connect.s3.indexes.* connect.s3.seek.max.files",
    ),
    *declare_without_meaning(
        "Not needed here.",
        """connect.s3.pool.max.connections connect.s3.http.socket.timeout connect.s3.http.connection.timeout
        connect.s3.local.tmp.directory connect.s3.log.metrics connect.s3.task.index connect.progress.enabled
        connect.s3.latest.schema.optimization.enabled""",
    ),
    *declare_without_meaning(
        "`schema.compatibility` decides when a new schema begins a new object.", "connect.s3.schema.change.detector"
    ),
    *declare_without_meaning(
        "Offsets in names are written with 20 digits, and read with any padding.",
        "connect.s3.padding.strategy connect.s3.padding.length",
    ),
    *declare_without_meaning(
        "Objects are found by listing, and read in the order of their offsets within each kafka partition.",
        """connect.s3.ordering.type connect.s3.source.ordering.type connect.s3.source.partition.search.*
        connect.s3.source.empty.results.backoff.* connect.s3.source.late.arrival.interval""",
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
        "Temporary failures are tried again in any case.", "connect.s3.max.retries connect.s3.retry.interval"
    ),
    declare_refused("connect.s3.skip.null.values", "say `behavior.on.null.values=ignore`", "false"),
    declare_refused("connect.s3.delete.mode", "objects are written in parts, and no run deletes any", "BatchDelete"),
    declare_refused("connect.s3.location", "belongs to the sink of consumer groups: say `archive.consumer.groups`"),
)


KCQL = "connect.s3.kcql"

_PREFIX = "connect.s3."
_TRANSFORM = "kcql"
_ENVELOPE = "store.envelope"
_FIELDS = tuple(f"{_ENVELOPE}.fields.{name}" for name in ("key", "headers", "value", "metadata"))
_NO_MEANING = ("padding.",)
_OF_SINKS = ("flush.size", "flush.count", "flush.interval", "partition.include.keys", "key.suffix")
_OF_NAMES = ("padding.", "store.file.namer")
_OF_LINES = (
    "a record of Kafka is not one line there, or is one taken apart: read objects whose lines are records by the"
    " class io.confluent.connect.s3.source.S3SourceConnector, archive.source.template and ByteArrayFormat"
)
_OF_OBJECTS = (
    "an object of BYTES is one record as a whole: read the objects with the class"
    " io.confluent.connect.s3.source.S3SourceConnector, archive.source.template and a format of your own"
)


@dataclass(frozen=True)
class Expansion:
    """The entries of a file, with keys added for its KCQL, and the reasons (`refusals`) if the KCQL is refused."""

    entries: Mapping[str, SecretStr]
    refusals: tuple[str, ...] = ()


def expand_lenses(entries: Mapping[str, SecretStr], providers: ConfigProviders) -> Expansion:
    """Translate Lenses' keys in the entries of a file. The entries of other classes' files stay unchanged."""
    try:
        settings = {
            name: providers.replace(entries[name].get_secret_value()).strip()
            for name in (*_EXPANDED, "connector.class", "topics", "topics.regex", "transforms")
            if name in entries
        }
    except ValueError:
        return Expansion(entries)  # `ConfigFile` reports it with its key
    is_source = settings.get("connector.class") == LENSES_SOURCE.class_name
    if not is_source and settings.get("connector.class") != LENSES.class_name:
        return Expansion(entries)
    try:
        translated = dict(_expand_source(settings) if is_source else _expand_sink(settings))
    except ValueError as err:
        return Expansion(entries, (str(err),))
    doubled = [n for n in translated if n in entries and n != "transforms" and entries[n].get_secret_value().strip()]
    if doubled:
        return Expansion(entries, (f"says what {' and '.join(doubled)} says as well; keep one",))
    return Expansion({**entries, **{name: SecretStr(value) for name, value in translated.items()}})


_EXPANDED = (KCQL, f"{_PREFIX}compression.codec", f"{_PREFIX}disable.flush.count", f"{_PREFIX}vhost.bucket")
"""The keys of Lenses' connectors that are translated into other keys."""


def _expand_source(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys for `INSERT INTO topic SELECT * FROM bucket:prefix`, or for the sink's own statement."""
    statements = parse_statements(settings.get(KCQL, ""))
    if all(_is_of_sink(statement, settings) for statement in statements):
        yield from _expand_sink_to_read(statements, settings)
        return
    if len(statements) > 1:
        raise ValueError("holds several statements: write a file for each")
    [statement] = statements
    _refuse_unknown_properties(statement, (*_FIELDS, _ENVELOPE), _explain_unread)
    if statement.partition_by is not None:
        raise ValueError("PARTITIONBY belongs to the sink: names tell the kafka partition")
    yield from _expand_place(statement.source, settings)
    yield "archive.key.layout", "lenses"
    yield from _expand_source_format(statement)
    # In Connect, the records that transforms get already have the target's topic. So this router comes first.
    yield "transforms", ",".join(filter(None, (_TRANSFORM, settings.get("transforms", ""))))
    yield f"transforms.{_TRANSFORM}.type", "org.apache.kafka.connect.transforms.RegexRouter"
    yield f"transforms.{_TRANSFORM}.regex", ".*"
    yield f"transforms.{_TRANSFORM}.replacement", statement.target.replace("\\", "\\\\").replace("$", "\\$")


def _is_of_sink(statement: Statement, settings: Mapping[str, str]) -> bool:
    """Return True if a statement in a source's file is its sink's, which writes a topic into a bucket."""
    if ":" in statement.source:
        return False
    topics = [name.strip() for name in settings.get("topics", "").split(",")]
    is_topic = statement.source == "*" or statement.source in topics
    has_own = any(name.startswith((*_OF_SINKS, *_OF_NAMES)) for name in statement.properties)
    return ":" in statement.target or is_topic or has_own or statement.partition_by is not None


def _expand_sink_to_read(statements: list[Statement], settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys to read the objects of `INSERT INTO bucket:prefix SELECT * FROM topic` into the same topics."""
    first = _find_same(statements)
    _refuse_unknown_properties(first, (*_OF_SINKS, *_OF_NAMES, *_FIELDS, _ENVELOPE), _explain_unread)
    yield from _expand_place(first.target, settings)
    yield from _expand_topics(statements, settings)
    yield "archive.key.layout", "lenses"
    yield from _expand_source_format(first)


def _find_same(statements: list[Statement]) -> Statement:
    """Return the first statement. Raise ValueError if the others differ from it in more than their topic."""
    first = statements[0]
    if any(replace(statement, source=first.source) != first for statement in statements):
        raise ValueError("holds statements that differ in more than their topic: write a file for each")
    return first


def _expand_source_format(statement: Statement) -> Iterator[tuple[str, str]]:
    """Yield the format's keys for a source's statement: the format of the values alone, or of Lenses' envelope.

    `format.output.fields` lists the fields of the envelope each record must have. Keys and headers may be missing.
    """
    format_name = _find_format_word(statement)
    fields = {name: values.parse_boolean(statement.properties.get(name, "true")) for name in _FIELDS}
    if not values.parse_boolean(statement.properties.get(_ENVELOPE, "false")):
        yield "format.class", LENSES_WORDS[format_name].short_class_name
        return
    if format_name == "TEXT":
        raise ValueError(f"'{_ENVELOPE}' is of JSON, AVRO and PARQUET")
    if not fields[f"{_ENVELOPE}.fields.value"]:
        raise ValueError("envelopes without values hold no records")
    yield "input.format", f"lenses.{format_name.lower()}"
    # If the file sets the field, a record without a value is an error. By default, such a record is a tombstone.
    promised = ["value"] if f"{_ENVELOPE}.fields.value" in statement.properties else []
    has_metadata = fields[f"{_ENVELOPE}.fields.metadata"]
    yield "format.output.fields", ",".join([*promised, *(["offset", "timestamp"] if has_metadata else [])]) or "key"


def _expand_sink(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the connector keys for a sink's statement `INSERT INTO bucket:prefix SELECT * FROM topic`."""
    statements = parse_statements(settings.get(KCQL, ""))
    first = _find_same(statements)
    _refuse_unknown_properties(first, (*_OF_SINKS, *_FIELDS, _ENVELOPE), _explain_unwritten)
    if values.parse_boolean(first.properties.get(_ENVELOPE, "false")):
        raise ValueError(
            f"'{_ENVELOPE}': whole records are kept in this platform's own envelope: leave the property out, and set"
            " format.class=EnvelopeParquetFormat and archive.key.layout=connect"
        )
    if first.partition_by is not None:
        raise ValueError(
            "PARTITIONBY and NOPARTITION: leave the clause out, and set partitioner.class=FieldPartitioner with"
            " partition.field.name, or an hourly or daily one, and archive.key.layout=connect"
        )
    yield from _expand_place(first.target, settings)
    yield from _expand_topics(statements, settings)
    yield "format.class", LENSES_WORDS[_find_format_word(first)].short_class_name
    yield from _expand_sink_properties(first, settings)


def _expand_topics(statements: list[Statement], settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the topics of a sink's statements, unless the file names them. Raise ValueError if it names others."""
    named = [statement.source for statement in statements]
    if "*" in named:
        return
    if "topics.regex" in settings:
        raise ValueError("names its topics: with topics.regex write FROM `*`")
    if not settings.get("topics"):
        yield "topics", ",".join(named)
    elif set(named) != set(values.parse_topics(settings["topics"])):
        raise ValueError(f"is of {', '.join(named)}, topics are {settings['topics']}: name the same")


def _expand_sink_properties(statement: Statement, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the connector keys for the properties of a sink's statement: its objects' names, bounds and codec."""
    of = statement.properties
    topic, number = (
        ("topic=", "partition=") if values.parse_boolean(of.get("partition.include.keys", "false")) else ("", "")
    )
    name = f"{topic}{{{{topic}}}}/{number}{{{{partition}}}}/{{{{start_offset:padding=true}}}}{of.get('key.suffix', '')}"
    yield "archive.key.layout", "template"
    yield "file.name.template", name
    # Lenses' own defaults: an object ends after 50,000 records or 500 MB.
    if not values.parse_boolean(settings.get(f"{_PREFIX}disable.flush.count", "false")):
        yield "flush.size", of.get("flush.count", "50000")
    yield "archive.segment.bytes", of.get("flush.size", "500000000")
    if "flush.interval" in of:
        yield "rotate.schedule.interval.ms", str(values.expect_integer(1)(of["flush.interval"]) * 1000)
    if statement.format == "JSON":
        yield "json.decimal.format", "NUMERIC"
    if statement.format == "TEXT":
        yield "format.bytearray.extension", "text"
    elif codec := _find_codec(statement.format, settings):
        yield LENSES_WORDS[statement.format].codec_key, codec


def _find_codec(format_name: str, settings: Mapping[str, str]) -> str:
    """Return the codec in which Lenses' sink writes objects, by this platform's name for it."""
    written = settings.get(f"{_PREFIX}compression.codec", "UNCOMPRESSED").casefold()
    if written == "uncompressed":
        return "null" if format_name == "AVRO" else "none"
    return written


def _find_format_word(statement: Statement) -> str:
    """Return the word after STOREAS. Raise ValueError if objects of this format cannot be read or written here."""
    kind = statement.format.partition("_")[0]
    if kind in {"CSV", "BYTES"}:
        raise ValueError(f"STOREAS {statement.format}: {_OF_LINES if kind == 'CSV' else _OF_OBJECTS}")
    if statement.format not in LENSES_WORDS:
        raise ValueError(f"STOREAS {statement.format} is none of {', '.join(LENSES_WORDS)}")
    return statement.format


def _expand_place(text: str, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the connector keys for `bucket:prefix` in a statement."""
    bucket, _, prefix = text.partition(":")
    yield "s3.bucket.name", bucket
    yield "topics.dir", prefix or "/"
    if f"{_PREFIX}vhost.bucket" in settings:
        yield "s3.path.style.access.enabled", str(not values.parse_boolean(settings[f"{_PREFIX}vhost.bucket"])).lower()


def _refuse_unknown_properties(statement: Statement, allowed: tuple[str, ...], why: Callable[[str], str]) -> None:
    """Raise ValueError if a property is not in `allowed`. `why` returns the explanation for a property's name."""
    for name in statement.properties:
        if name not in allowed and not name.startswith(_NO_MEANING):
            raise ValueError(f"'{name}': {why(name)}")


def _explain_unread(name: str) -> str:
    """Explain why a property of a source's statement is refused."""
    if name.startswith("post.process."):
        return "objects are read, never deleted or moved: leave it out"
    if name.startswith("read.text."):
        return f"{_OF_LINES}; of these the line feed is the one separator"
    return "is no property of the source"


def _explain_unwritten(name: str) -> str:
    """Explain why a property of a sink's statement is refused."""
    if name.startswith("store.file.namer"):
        return "Java classes cannot run here: name objects by file.name.template"
    return "is no property of the sink"
