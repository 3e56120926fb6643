"""The Schema Registry: schemas by id, with what they refer to, each asked for once in a process."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import Schema as ClientSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the one of two that the client uses
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from kafka_s3_platform.config.settings import RegistrySettings
from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.errors import AuthorizationError, ConfigError, PlatformError, RegistryUnavailableError

TIMEOUT_SECONDS = "30"
NOT_FOUND = 404
NOT_FOUND_CODES = frozenset({40401, 40402, 40403})
"""Of a registry about a subject, a version and a schema. Another 404 comes from something that is no registry."""

NUMBERS = frozenset(
    {"timeout", "cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms"}
)

T = TypeVar("T")


@dataclass(frozen=True)
class RegistrySchema:
    """A schema as it was registered. `references` are those it names, and theirs, the innermost first, by name."""

    schema_id: int
    subject: str | None
    version: int | None
    type: str
    text: str
    references: dict[str, str]


class Registry:
    """One registry, through confluent-kafka's client."""

    def __init__(self, url: str, properties: dict[str, str]) -> None:
        self._where = f"Schema Registry at {_without_user(url)}"
        given = {"timeout": TIMEOUT_SECONDS, **properties}
        conf: dict[str, Any] = {key: float(value) if key in NUMBERS else value for key, value in given.items()}
        try:
            self._client = SchemaRegistryClient({"url": url, **conf})
        except (ValueError, TypeError, OSError) as err:
            raise ConfigError(f"{self._where}: its settings cannot be used: {err}") from err
        self._made: dict[Any, Any] = {}

    def made(self, schema_id: int, subject: str, make: Callable[[RegistrySchema], T]) -> T:
        """What `make` makes of the schema with this id, once.

        Raises:
            BadRecordError: there is no such schema, or `make` can make nothing of it.
        """
        key = (schema_id, subject, make)
        if key not in self._made:
            self._made[key] = make(self._schema(schema_id, subject))
        made: T = self._made[key]
        return made

    def _schema(self, schema_id: int, subject: str) -> RegistrySchema:
        with self._told(f"schema {schema_id}"):
            schema = self._client.get_schema(schema_id, subject, "serialized")
            found, version = self._version(schema_id, subject)
            references: dict[str, str] = {}
            self._refer(schema, references)
        return RegistrySchema(
            schema_id, found, version, schema.schema_type or "AVRO", schema.schema_str or "", references
        )

    def _version(self, schema_id: int, subject: str) -> tuple[Any, Any]:
        """The subject and the version of an id: the given subject's, else those of the first one that has it."""
        pairs = [(p.subject, p.version) for p in self._client.get_schema_versions(schema_id, deleted=True)]
        of_subject = [pair for pair in pairs if pair[0] == subject]
        return max(of_subject) if of_subject else min(pairs, default=(None, None))

    def _refer(self, schema: ClientSchema, found: dict[str, str]) -> None:
        for reference in schema.references or []:
            name, subject, version = str(reference.name), str(reference.subject), int(reference.version or 1)
            if name not in found:
                other = self._client.get_version(subject, version, deleted=True, fmt="serialized").schema
                self._refer(other, found)
                found[name] = other.schema_str or ""

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """The client's errors as the platform's."""
        try:
            yield
        except SchemaRegistryError as err:
            raise self._answered(err, what) from err
        except OAuthTokenError as err:
            kind = AuthorizationError if err.status_code else RegistryUnavailableError
            raise kind(f"{self._where}: no token to ask for {what} with: {err.message}") from err
        except httpx.TransportError as err:
            raise self._unreached(err, what) from err
        except (ValueError, KeyError, TypeError) as err:
            raise ConfigError(f"{self._where} answers for {what} what no registry does: check its URL: {err}") from err

    def _answered(self, err: SchemaRegistryError, what: str) -> Exception:
        said = f"{self._where} answers for {what}: {err.error_message} (HTTP status {err.http_status_code})"
        if err.error_code in NOT_FOUND_CODES:
            return BadRecordError(f"has a schema that the registry does not know. {said}")
        if err.http_status_code in (401, 403):
            return AuthorizationError(f"{said}: check basic.auth.user.info, or the rights of that user")
        if err.http_status_code == NOT_FOUND:
            return ConfigError(f"{said}: check schema.registry.url")
        if err.http_status_code in (408, 429) or err.http_status_code >= 500:
            return RegistryUnavailableError(said)
        return ConfigError(said)

    def _unreached(self, err: Exception, what: str) -> PlatformError:
        said = f"{self._where} was asked for {what} and does not answer: {err}"
        cause: BaseException | None = err
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return ConfigError(f"{said}: check schema.registry.ssl.ca.location")
            cause = cause.__cause__ or cause.__context__
        return RegistryUnavailableError(said)


def registry_of(settings: RegistrySettings) -> Registry:
    """The registry of these settings: one in a process, so that each schema is asked for once."""
    secrets = sorted((key, value.get_secret_value()) for key, value in settings.properties.items())
    return _registry(settings.url, tuple(secrets))


@lru_cache
def _registry(url: str, properties: tuple[tuple[str, str], ...]) -> Registry:
    return Registry(url, dict(properties))


def _without_user(url: str) -> str:
    """The addresses in `url`, which may name a user and a password, and several registries."""
    parts = [urlsplit(each.strip()) for each in url.split(",")]
    return ",".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" for p in parts)
