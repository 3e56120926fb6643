"""The names of the platform's environment variables, and how some are read. `bench/variables.py` describes them all."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

from kafka_s3_platform.core.errors import ConfigError

CONNECTORS = "KAFKA_S3_CONNECTORS"
AUTOSTART = "KAFKA_S3_AUTOSTART"
PLUGINS = "KAFKA_S3_PLUGINS"
SPARK_CONF = "KAFKA_S3_SPARK_CONF"
WARM_SPARK = "KAFKA_S3_WARM_SPARK"
RUN_RETENTION_DAYS = "KAFKA_S3_RUN_RETENTION_DAYS"
DAGSTER_URL = "KAFKA_S3_DAGSTER_URL"
EVIDENCE_KEY = "KAFKA_S3_EVIDENCE_KEY"
SERVE_PREFIX = "KAFKA_S3_SERVE"
ALERT_PREFIX = "KAFKA_S3_ALERT_"
ALERT_WEBHOOK_URL = f"{ALERT_PREFIX}WEBHOOK_URL"
ALERT_EMAIL_TO = f"{ALERT_PREFIX}EMAIL_TO"
ALERT_EMAIL_FROM = f"{ALERT_PREFIX}EMAIL_FROM"
ALERT_SMTP_HOST = f"{ALERT_PREFIX}SMTP_HOST"
ALERT_SMTP_SECURITY = f"{ALERT_PREFIX}SMTP_SECURITY"
ALERT_SMTP_USER = f"{ALERT_PREFIX}SMTP_USER"
ALERT_SMTP_PASSWORD = f"{ALERT_PREFIX}SMTP_PASSWORD"
LOCAL_PREFIX = "KAFKA_S3_LOCAL_"
LOCAL_DEFAULTS = {
    f"{LOCAL_PREFIX}KAFKA_PORT": "29092",
    f"{LOCAL_PREFIX}S3_PORT": "28333",
    f"{LOCAL_PREFIX}REGISTRY_PORT": "28341",
    f"{LOCAL_PREFIX}AWS_ACCESS_KEY_ID": "kafka-s3",
    f"{LOCAL_PREFIX}BUCKET": "kafka-archive",
}
"""The place of the embedded stack unless another one is set. Connector files may name these variables, set or not."""

LOCAL_SECRET = f"{LOCAL_PREFIX}AWS_SECRET_ACCESS_KEY"


def find_stack_folder() -> Path:
    """Return the shared folder of this user's embedded stacks. It may not exist."""
    return Path.home() / ".cache" / "kafka-s3-stack"


def read_stack_secret() -> str:
    """Return the secret of this user's embedded stores, made at first use. Raise ConfigError if it cannot be kept."""
    path = find_stack_folder() / "secret"
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent) as new_file:
                new_file.write(token_hex())
                new_file.flush()
                # Of two processes, both use what the first one made.
                with suppress(FileExistsError):
                    os.link(new_file.name, path)
        return path.read_text()
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}; set {LOCAL_SECRET} where no home can be written") from err


def find_local_default(name: str) -> str | None:
    """Return the default of a variable of the embedded stack, or None for any other variable."""
    return read_stack_secret() if name == LOCAL_SECRET else LOCAL_DEFAULTS.get(name)


def check_url(text: str) -> str:
    """Return the URL of a place on the web. Raise ValueError, without quoting it, as it may be a secret."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0 and "@" not in url.netloc
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is no URL that begins with https:// or http:// and the name of a host, without a user")
    return text


def read_dagster_url() -> str | None:
    """Return the address of Dagster's UI without a final slash, or None if unset. Raise ConfigError if it is no URL."""
    text = os.environ.get(DAGSTER_URL)
    if not text:
        return None
    try:
        url = check_url(text)
    except ValueError as err:
        raise ConfigError(f"{DAGSTER_URL}: {text!r} {err}") from None
    if "?" in url or "#" in url:
        raise ConfigError(f"{DAGSTER_URL}: {text!r} cannot begin a link: it has a query or a fragment; leave them out")
    return url.rstrip("/")
