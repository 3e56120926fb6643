"""Converts the environment variables of Zooz's kafka-s3-connector into the keys of a connector file.

Source: its README and conf/application.conf, with every variable and its default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_s3_platform.connect.config.keys.values import expect_integer, parse_connector_name
from kafka_s3_platform.core.codecs.table import CODECS

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEFAULT_PATH = "date=%s/hour=%s"

_NO_COUNTERPART: Mapping[str, str] = {
    "LOADING_MODULE": "write the mapper or the BuffersManager as a Python class: transforms, timestamp.extractor",
    "PORT": "it is an option of the status page: kafka-s3 serve --port",
    "PLAY_SECRET_KEY": "the status page has no sessions",
    "HEALTHY_KAFKA_LAG": "it is an option of the health check: kafka-s3 serve --healthy-lag",
    "FLUSH_INTERVAL_MS": "it is for Zooz's own tests",
    "BUFFERS_LOCAL_DIR": "nothing is buffered on disk",
    "BUFFER_SIZE_BYTES": "open writers are bounded by themselves",
    "USE_CACHE": "nothing is buffered on disk",
    "NUMBER_OF_FLUSH_WORKERS": "set tasks.max instead",
    "FLUSH_TIMEOUT_SECONDS": "a run ends or fails",
    "MICROBATCH_INTERVAL_MS": "Kafka is read in ranges of offsets",
    "PROCESS_LOOP_TIMEOUT_SECS": "a run ends or fails",
    "SHUTDOWN_ABORT_TIMEOUT_SECS": "a run ends or fails",
    "max_poll_records": "Kafka is read in ranges of offsets",
    "S3_UPLOAD_THREADS_PER_FILE": "parts are uploaded one after the other",
    "S3_MULTIPART_THRESHOLD_MB": "set s3.part.size instead",
    "S3_EXTENSION": "Zooz's service reads it as S3_EXTENSTION; this one did nothing",
}
_START = "the archive begins at archive.start.hour; `kafka-s3 take-over` begins where the service's group stands"

# The codecs that the service itself has.
_CODECS = ("gzip", "bzip2")
REQUIRED = ("KAFKA_HOST", "SOURCE_KAFKA_TOPIC", "S3_BUCKET_NAME")


@dataclass(frozen=True)
class Converted:
    """The keys of a connector file, converted from variables. Secrets stay in the environment.

    `without_counterpart` are the variables that have no key, each with advice. `notes` are about variables whose keys
    do or need more than the service does.
    """

    keys: Mapping[str, str]
    without_counterpart: Mapping[str, str]
    notes: Mapping[str, str]


def convert_environment(env: Mapping[str, str]) -> Converted:
    """Return the keys of the connector equivalent to Zooz's service with these variables. Others are ignored.

    Raises:
        ValueError: a required variable is not set, or one has a value that cannot be converted.
    """
    if missing := [name for name in REQUIRED if not env.get(name)]:
        raise ValueError(f"{', '.join(missing)} must be set, as for the service itself")
    keys = {
        "name": parse_connector_name(env.get("APP_ID") or "s3-connector"),
        "connector.class": "kafka_s3_platform.S3Archive",
        "topics": env["SOURCE_KAFKA_TOPIC"],
        "kafka.endpoint": env["KAFKA_HOST"],
        "s3.bucket.name": env["S3_BUCKET_NAME"],
        "s3.region": env.get("S3_REGION") or "us-east-1",
        "topics.dir": env.get("S3_ROOT_PATH") or "/",
        "archive.key.layout": "zooz",
        "path.format": _convert_path_format(env.get("S3_PATTERN_PATH") or DEFAULT_PATH),
        "format.class": "ByteArrayFormat",
        "value.converter": "ByteArrayConverter",
        "rotate.schedule.interval.ms": str(60_000 * _convert_number(env, "FLUSH_INTERVAL_MINUTES", 15)),
        "s3.part.retries": str(_convert_number(env, "MAX_FLUSH_RETRIES", 5)),
        **_convert_extension(env),
        **_convert_optional(env),
    }
    letters = keys.get(DEAD_LETTER_TOPIC)
    return Converted(
        keys, dict(_list_left_out(env)), {"SKIP_CORRUPTED_MESSAGES": _convert_letters(letters)} if letters else {}
    )


def _convert_letters(topic: str) -> str:
    """Return the note on the dead letter topic that replaces the service's skipping of bad messages."""
    return (
        f"what cannot be written goes to the topic {topic}, with the reason as headers. It is created with 3 replicas"
        f" unless {DEAD_LETTER_TOPIC.removesuffix('name')}replication.factor says otherwise; the run needs the rights"
        f" for that. Without {DEAD_LETTER_TOPIC} such records are left out, and only counted"
    )


def _convert_number(env: Mapping[str, str], name: str, default: int) -> int:
    """Return the whole number in a variable, or the service's default if the variable is not set."""
    try:
        if env.get(name):
            return expect_integer(0, 2**31 - 1)(env[name].strip())
        return default
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from err


def _convert_path_format(pattern: str) -> str:
    """Convert a path. Zooz replaces its first `%s` by the date (its `YYYY-mm-dd`), and the second by the hour."""
    texts = pattern.split("%s")
    if len(texts) > 3:
        raise ValueError(
            f"S3_PATTERN_PATH: {pattern!r} holds more than a date and an hour; its service needs a class too"
        )
    parts = [f"{_quote_literal(text)}{field}" for text, field in zip(texts, ("YYYY-MM-dd", "HH", ""), strict=False)]
    return "".join(parts[: len(texts) - 1]) + _quote_literal(texts[-1])


def _quote_literal(text: str) -> str:
    """Put words into quotes, because letters without quotes are read as fields of a time."""
    return re.sub(r"[A-Za-z']+", lambda word: "'" + word[0].replace("'", "''") + "'", text)


def _convert_extension(env: Mapping[str, str]) -> dict[str, str]:
    """Convert codec and extension. Zooz appends the codec's extension to the file's."""
    codec, extension = (env.get("COMPRESSION_TYPE") or "").casefold(), env.get("S3_EXTENSTION") or "json"
    if not codec:
        return {"archive.key.extension": extension}
    if codec not in _CODECS:
        raise ValueError(f"COMPRESSION_TYPE: {codec!r} is none of {', '.join(_CODECS)}")
    return {"s3.compression.type": codec, "archive.key.extension": extension + CODECS[codec].suffix}


def _convert_optional(env: Mapping[str, str]) -> dict[str, str]:
    """Return the keys for the optional variables, if these are set."""
    entries = {}
    if env.get("S3_ACCESS_KEY") and env.get("S3_SECRET_KEY"):
        entries["aws.access.key.id"] = "${env:S3_ACCESS_KEY}"
        entries["aws.secret.access.key"] = "${env:S3_SECRET_KEY}"
    if env.get("S3_ENDPOINT"):
        # if it holds a password, the file refers to the variable, as for other secrets
        entries["store.url"] = "${env:S3_ENDPOINT}" if "@" in env["S3_ENDPOINT"] else env["S3_ENDPOINT"]
    if env.get("SKIP_CORRUPTED_MESSAGES", "").casefold() == "true":
        entries["errors.tolerance"] = "all"
        entries[DEAD_LETTER_TOPIC] = f"{env['SOURCE_KAFKA_TOPIC']}.dead-letters"
        entries["errors.deadletterqueue.context.headers.enable"] = "true"
    return entries


def _list_left_out(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables without a key, each with advice."""
    reasons = [(name, why) for name, why in _NO_COUNTERPART.items() if env.get(name)]
    if env.get("LOADING_MODULE", "").endswith(".DefaultLoader"):
        reasons = [(name, why) for name, why in reasons if name != "LOADING_MODULE"]
    if env.get("DEFAULT_KAFKA_STARTPOINT"):
        return [*reasons, ("DEFAULT_KAFKA_STARTPOINT", _START)]
    return reasons
