"""The client of the Schema Registry. It requests each schema, with its references, once in a process."""

import json
import ssl
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from kafka_s3_platform.connect.converters.base import BadRecordError, explain_bad_record
from kafka_s3_platform.connect.converters.registry_contents import ScopeSettings
from kafka_s3_platform.core.config.certificates import explain_certificate
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ConfigError,
    ErrorCode,
    PlatformError,
    RegistryUnavailableError,
)
from kafka_s3_platform.core.keystores import PEM_PROPERTIES, load_pem
from kafka_s3_platform.core.model.connect import cut_reason
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion, find_references_flaw
from kafka_s3_platform.core.text import strip_users
from kafka_s3_platform.core.waits import waiting_for

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as ClientSchema
    from confluent_kafka.schema_registry import SchemaReference as ClientReference
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

# A text, like all properties of the client.
TIMEOUT_SECONDS = "30"
NOT_FOUND = 404
NOT_ALLOWED = 405
MOST_IDS = 1 << 32
NOT_FOUND_CODES = (40401, 40402, 40403, 40408, 40409)
"""The registry's codes for an unknown subject, version, schema or mode. Any other 404 does not come from a registry."""

CONFLICT = 409

MOST_REFERENCES = 1_000
MOST_SUBJECTS = 10_000
MOST_CHARACTERS = 8 << 20
"""Limits of one schema's references, subjects and characters, because all its references are in memory together."""

NUMBERS = frozenset(
    {"timeout", "cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms"}
)

TYPED_FIELDS = frozenset({"schema", "schemaType", "references"})
PLACE_FIELDS = frozenset({"id", "guid", "subject", "version", "maxId", "ts", "deleted"})
"""Fields of a registry's answer that tell the place of a schema, which differs from registry to registry."""

T = TypeVar("T")


@dataclass(frozen=True)
class RegistrySchema:
    """A registered schema. `references` maps the name of each schema it needs to its text, the innermost first."""

    schema_id: int
    subject: str | None
    version: int | None
    type: str
    text: str
    references: dict[str, str]


class IncompatibleSchemaError(ConfigError):
    """The registry refuses a schema because the compatibility mode of its subject does not allow it."""

    code = ErrorCode.REGISTRY_SCHEMA


@dataclass(frozen=True)
class NewSchema:
    """A schema to register. Its references belong to the registry it is registered in."""

    schema_type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    other_fields: str = "{}"

    @property
    def as_request(self) -> Mapping[str, Any]:
        """The body of a request. confluent-kafka's own classes have no place for fields they do not know."""
        references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in self.references]
        typed_fields = {"schema": self.text, "schemaType": self.schema_type, "references": references}
        return {**json.loads(self.other_fields), **typed_fields}


@dataclass(frozen=True)
class Registration:
    """A schema's place in a registry. `differing` names the fields that the registry holds differently than sent.

    `guid` is None if the registry has no GUIDs.
    """

    subject: str
    version: int
    schema_id: int
    differing: tuple[str, ...] = ()
    guid: str | None = None


def _make_client(url: str, properties: Mapping[str, str]) -> "SchemaRegistryClient":
    """Make confluent-kafka's client. Certificates and keys given as PEM text are loaded into its TLS context."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    options = {"timeout": TIMEOUT_SECONDS, **properties}
    pem = {name: options.pop(name) for name in PEM_PROPERTIES if name in options}
    # Loading the well-known authorities takes 50 ms, longer than all else here. They are not needed without TLS (the
    # client does not follow redirects), nor if authorities are given.
    needs_authorities = "https:" in url.lower() and "ssl.ca.pem" not in pem
    unverified = {} if needs_authorities else {"ssl.ca.location": False}
    numbers = {key: float(value) for key, value in options.items() if key in NUMBERS}
    client = SchemaRegistryClient({"url": url, **unverified, **options, **numbers})
    load_pem(client._rest_client.verify, pem)  # noqa: SLF001 - nothing public leads there
    return client


def _limit_sessions(rest: Any) -> Iterator[Any]:
    """Limit the answers in a client's sessions, and yield the sessions: its own, and the one with a token server."""
    from kafka_s3_platform.connect.converters.registry_http import limit_session

    token_client = getattr(rest.bearer_field_provider, "client", None)
    for session in filter(None, (rest.session, token_client)):
        limit_session(session, rest.timeout)
        yield session


class Registry:
    """One registry, accessed with confluent-kafka's client, which is imported late since most tasks need no registry.

    A schema from an archive (`archived`) is not requested. The client's errors become the platform's.
    """

    def __init__(self, url: str, properties: dict[str, str], archived: Iterable[ArchivedSchema] = ()) -> None:
        self.url = strip_users(url)
        self._where = f"Schema Registry at {self.url}"
        try:
            self._client = _make_client(url, properties)
        except (ValueError, TypeError, OSError) as err:
            raise ConfigError(f"{self._where}: its settings cannot be used: {err}") from err
        # Nothing public of the client leads to its session.
        self._rest: Any = self._client._rest_client  # noqa: SLF001
        for session in _limit_sessions(self._rest):
            # In time a process uses many registries, and the client leaves its connections open.
            weakref.finalize(self, session.close).atexit = False
        self._compiled: dict[Any, Any] = {}
        self._unusable: dict[Any, str] = {}
        # Registries number schemas independently. For an id of several schemas, the one archived from this registry
        # wins.
        self._archived = {s.schema_id: s for s in sorted(archived, key=lambda s: s.registry_url == self.url)}
        self._registered: dict[tuple[str, NewSchema], Registration] = {}
        self._ids = {s.schema_guid: s.schema_id for s in self._archived.values() if s.schema_guid}

    def compile_once(self, schema_id: int, subject: str, make: Callable[[RegistrySchema], T]) -> T:
        """Return the result of `make` for the schema with this id. Call `make` only once for each schema.

        Raises BadRecordError if there is no such schema, or if `make` fails for it.
        """
        key = (schema_id, subject, make)
        if key in self._unusable:
            raise BadRecordError(self._unusable[key])
        if key not in self._compiled:
            schema = self._fetch_schema(schema_id, subject)
            try:
                self._compiled[key] = make(schema)
            except Exception as err:
                # Remembered, because otherwise each record would take as long again, a minute if protoc does not end.
                reason = explain_bad_record(err)
                self._unusable[key] = (
                    reason if isinstance(err, BadRecordError) else f"has schema {schema_id}, which {reason}"
                )
                raise BadRecordError(self._unusable[key]) from err
        compiled: T = self._compiled[key]
        return compiled

    def find_id(self, guid: str) -> int:
        """Find the id of the schema with this GUID. Raise BadRecordError if the registry has no such GUID or id."""
        if guid not in self._ids:
            try:
                self._ids[guid] = self._ask_id(guid)
            except ConfigError as err:
                # Older registries and other vendors' have no such path. Then only the records that use GUIDs fail.
                if err.code is not ErrorCode.REGISTRY_URL:
                    raise
                raise BadRecordError(f"names its schema by a GUID, which its registry does not know: {err}") from err
        return self._ids[guid]

    def _ask_id(self, guid: str) -> int:
        """Ask for the id of a GUID's schema in the registry's default context."""
        with self._translate_errors(f"the schema of GUID {guid}"):
            answer = dict(self._rest.get(f"schemas/guids/{guid}"))
            own_ids = [{"context": ".", "id": answer["id"]}] if "id" in answer else None
            for place in own_ids or self._rest.get(f"schemas/guids/{guid}/ids"):
                # A context is a registry within a registry, and has ids of its own.
                schema_id = int(place["id"]) if place["context"] == "." else -1
                archived = self._archived.get(schema_id)
                if 0 <= schema_id < MOST_IDS and (archived is None or archived.schema_text == answer["schema"]):
                    return schema_id
        raise BadRecordError("has a schema without an id in its registry, or with the id of another archived schema")

    def archived(self, schema_id: int) -> ArchivedSchema | None:
        """Fetch a schema with its subjects and references, to register it later. Return None if it is unknown."""
        try:
            with self._translate_errors(f"schema {schema_id}"):
                answer = self._get_answer(schema_id)
                schema = _parse_schema(answer)
                places = self._client.get_schema_versions(schema_id, deleted=True)
                pairs = [(str(p.subject), int(p.version or 0)) for p in places]
                _check_number("subjects", len(pairs), MOST_SUBJECTS)
                _check_number("references", len(schema.references or []), MOST_REFERENCES)
                references = tuple(map(self._fetch_reference, schema.references or []))
                others = _encode_others(answer, TYPED_FIELDS | PLACE_FIELDS)
        except BadRecordError:
            return None
        subjects = tuple(replace(self.read_settings(s), version=v) for s, v in sorted(pairs))
        return ArchivedSchema(
            self.url,
            schema_id,
            schema.schema_type or "AVRO",
            schema.schema_str or "",
            subjects,
            references,
            others,
            # Some registries return a GUID only on request.
            _read_guid(answer) or next((guid for guid, number in self._ids.items() if number == schema_id), None),
        )

    def _get_answer(self, schema_id: int, **query: str) -> dict[str, Any]:
        """Return the whole answer for a schema. The client's classes would keep only the fields they know."""
        return dict(self._rest.get(f"schemas/ids/{schema_id}", query))

    def _fetch_reference(self, reference: "ClientReference") -> SchemaReference:
        """Return a schema's reference together with the id of the schema it refers to."""
        name = str(reference.name)
        subject = str(reference.subject)
        version = int(reference.version or 1)
        registered = self._client.get_version(_check_subject(subject), version, deleted=True)
        return SchemaReference(name, subject, version, int(registered.schema_id or 0))

    def read_settings(self, subject: str) -> SubjectVersion:
        """Return the settings of a subject: its own, or else the registry's. The mode is None if the registry has none.

        The settings hold for each version, so the version in the result means nothing.
        """
        for scope in (subject, None):
            try:
                with self._translate_errors(f"the compatibility mode of {scope or 'all subjects'}"):
                    path = "config" if scope is None else f"config/{_quote(scope)}"
                    answer = dict(self._rest.get(path))
                    mode = str(answer["compatibilityLevel"])
                    return SubjectVersion(subject, 0, mode, _encode_others(answer, {"compatibilityLevel"}))
            except BadRecordError:
                continue
        return SubjectVersion(subject, 0, None)

    def write_settings(self, subject: str, mode: str | None, other_settings: str = "{}") -> None:
        """Set compatibility mode and other settings of a subject, or of the whole registry if `subject` is empty."""
        settings = json.loads(other_settings) | ({"compatibility": mode} if mode else {})
        if not settings:
            return
        path = f"config/{_quote(subject)}" if subject else "config"
        with self._translate_errors(f"the compatibility mode of {subject or 'all subjects'} to be {mode}"):
            self._rest.put(path, body=settings)

    def remove_settings(self, subject: str) -> None:
        """Remove a subject's own compatibility mode and other settings, if it has any."""
        with suppress(BadRecordError), self._translate_errors(f"the settings of {subject} to be removed"):
            self._rest.delete(f"config/{_quote(subject)}")

    def list_subjects(self) -> list[str]:
        """Return the subjects of all contexts, including the soft-deleted ones.

        Confluent's registry lists at most 20,000 at a time. Registries without pages list all each time.
        """
        names: dict[str, None] = {}
        size = 0
        with self._translate_errors("its subjects"):
            while True:
                query = {"deleted": True, "subjectPrefix": ":*:", "offset": len(names)}
                page = dict.fromkeys(map(str, self._rest.get("subjects", query)))
                size = size or len(page)
                is_last = len(page) < size or page.keys() <= names.keys()
                names |= page
                if is_last:
                    return list(names)

    def list_versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, with the soft-deleted ones if `deleted`, or none if it does not exist."""
        try:
            with self._translate_errors(f"the versions of {subject}"):
                return [int(v) for v in self._rest.get(f"subjects/{_quote(subject)}/versions", {"deleted": deleted})]
        except BadRecordError:
            return []

    def read_version(self, subject: str, version: int) -> ArchivedSchema | None:
        """Return the schema of a version, even of a soft-deleted one, without subjects and the ids of its references.

        Returns None if the registry does not give it. Apicurio's lists a deleted subject's versions, but gives none of
        them.
        """
        try:
            with self._translate_errors(f"version {version} of {subject}"):
                path = f"subjects/{_quote(subject)}/versions/{version}"
                answer = dict(self._rest.get(path, {"deleted": True}))
                schema = _parse_schema(answer)
                references = schema.references or []
                return ArchivedSchema(
                    self.url,
                    int(answer["id"]),
                    schema.schema_type or "AVRO",
                    schema.schema_str or "",
                    (),
                    tuple(SchemaReference(str(r.name), str(r.subject), int(r.version or 1), 0) for r in references),
                    _encode_others(answer, TYPED_FIELDS | PLACE_FIELDS),
                    _read_guid(answer),
                )
        except BadRecordError:
            return None

    def read_scope(self, subject: str) -> ScopeSettings:
        """Return the settings a subject has of its own, or the whole registry's if `subject` is empty."""
        config = self._read_own("config", subject) or {}
        mode = self._read_own("mode", subject) or {}
        compatibility = config.get("compatibilityLevel")
        others = _encode_others(config, {"compatibilityLevel"})
        return ScopeSettings(subject, mode.get("mode"), compatibility, others)

    def _read_own(self, kind: str, subject: str) -> dict[str, Any] | None:
        """Return the config or the mode of a scope, or None if it has none of its own."""
        path = f"{kind}/{_quote(subject)}" if subject else kind
        try:
            with self._translate_errors(f"the {kind} of {subject or 'all subjects'}"):
                return dict(self._rest.get(path, {"defaultToGlobal": False} if subject else None) or {})
        except BadRecordError:
            return None
        except ConfigError as err:
            # Other vendors' registries have no modes.
            if err.code is not ErrorCode.REGISTRY_URL or kind != "mode":
                raise
            return None

    def write_mode(self, subject: str, mode: str | None) -> None:
        """Set the mode of a subject, or of the whole registry. If `mode` is None, remove the subject's own mode."""
        path = f"mode/{_quote(subject)}" if subject else "mode"
        with self._translate_errors(f"the mode of {subject or 'all subjects'} to be {mode}"):
            if mode is None:
                self._rest.delete(path)
            else:
                self._rest.put(f"{path}?force=true", body={"mode": mode})

    def import_version(self, subject: str, version: int, schema_id: int, schema: NewSchema) -> None:
        """Register a schema with its version and id. The mode of the subject has to be IMPORT."""
        body = {**schema.as_request, "version": version, "id": schema_id}
        with self._translate_errors(f"version {version} of {subject}, with id {schema_id}"):
            self._rest.post(f"subjects/{_quote(subject)}/versions?normalize=False", body=body)

    def delete_version(self, subject: str, version: int) -> None:
        """Soft-delete a version."""
        with self._translate_errors(f"version {version} of {subject} to be deleted"):
            self._rest.delete(f"subjects/{_quote(subject)}/versions/{version}")

    def find(self, subject: str, schema: NewSchema) -> Registration | None:
        """Look a schema up in a subject. Return None if the subject does not have it.

        Registries compare differently, and some compare only the text. So the fields in the registry are compared too.
        """
        try:
            with self._translate_errors(f"a schema of {subject}"):
                path = f"subjects/{_quote(subject)}?normalize=False"
                registered = dict(self._rest.post(path, body=schema.as_request))
                schema_id = int(registered["id"])
                answer = self._get_answer(schema_id)
                registered_fields = json.loads(_encode_others(answer, TYPED_FIELDS | PLACE_FIELDS))
        except BadRecordError:
            return None
        sent_fields = json.loads(schema.other_fields)
        differing = tuple(
            name
            for name in sorted({*sent_fields, *registered_fields})
            if sent_fields.get(name) != registered_fields.get(name)
        )
        return Registration(subject, int(registered["version"]), schema_id, differing, _read_guid(answer, registered))

    def register(self, subject: str, schema: NewSchema) -> Registration:
        """Register a schema, once in a process. If the subject already has it, leave it as it is.

        Raises:
            IncompatibleSchemaError: the subject's compatibility mode does not allow it.
            ConfigError: a request cannot contain a subject with this name.
        """
        if _is_path_step(subject):
            raise ConfigError(f"{self._where}: {_explain_path_step(subject)}: nothing is registered in it")
        key = (subject, schema)
        if key not in self._registered:
            registration = self.find(subject, schema)
            if registration is None or registration.differing:
                with self._translate_errors(f"a new schema of {subject}"):
                    self._rest.post(f"subjects/{_quote(subject)}/versions?normalize=False", body=schema.as_request)
                # The answer to a registration has no version.
                registration = self.find(subject, schema)
            if registration is None:
                raise ConfigError(f"{self._where} took a schema of {subject} and does not know it afterwards")
            self._registered[key] = registration
        return self._registered[key]

    def _fetch_schema(self, schema_id: int, subject: str) -> RegistrySchema:
        """Return the schema with this id and its references, from the archive or from the registry."""
        references: dict[str, str] = {}
        if archived := self._archived.get(schema_id):
            pairs: list[tuple[Any, Any]] = [(s.subject, s.version) for s in archived.subjects]
            self._collect_archived_references(archived, references)
            registered_as = _choose_version(pairs, subject)
            return RegistrySchema(schema_id, *registered_as, archived.schema_type, archived.schema_text, references)
        with self._translate_errors(f"schema {schema_id}"):
            # With this format, Confluent's registry returns Protobuf schemas as descriptors, which need no protoc.
            schema = _parse_schema(self._get_answer(schema_id, subject=subject, format="serialized"))
            # Records may name a schema whose version has been deleted since.
            pairs = [(p.subject, p.version) for p in self._client.get_schema_versions(schema_id, deleted=True)]
            self._collect_references(schema, references)
        registered_as = _choose_version(pairs, subject)
        return RegistrySchema(
            schema_id, *registered_as, schema.schema_type or "AVRO", schema.schema_str or "", references
        )

    def _collect_archived_references(
        self, schema: ArchivedSchema, texts: dict[str, str], referrers: tuple[int, ...] = ()
    ) -> None:
        """Add the archived schemas this one needs, directly or through others, to `texts`, the innermost first."""
        _check_references(referrers, schema.schema_id)
        for reference in schema.schema_references:
            referenced = self._archived.get(reference.schema_id)
            if referenced is None:
                raise BadRecordError(
                    f"has schema {schema.schema_id}, which refers to {reference.name}, and that was not archived"
                )
            if reference.name not in texts:
                self._collect_archived_references(referenced, texts, (*referrers, schema.schema_id))
                texts[reference.name] = referenced.schema_text

    def _collect_references(
        self, schema: "ClientSchema", texts: dict[str, str], referrers: tuple[str | None, ...] = ()
    ) -> None:
        """Fetch the schemas this one needs, directly or through others, into `texts`, the innermost first."""
        _check_references(referrers, schema.schema_str)
        for reference in schema.references or []:
            name = str(reference.name)
            subject = str(reference.subject)
            version = int(reference.version or 1)
            if name not in texts:
                _check_number("references", len(texts) + 1, MOST_REFERENCES)
                checked = _check_subject(subject)
                referenced = self._client.get_version(checked, version, deleted=True, fmt="serialized").schema
                self._collect_references(referenced, texts, (*referrers, schema.schema_str))
                texts[name] = referenced.schema_str or ""
                if sum(map(len, texts.values())) > MOST_CHARACTERS:
                    raise BadRecordError(f"has a schema whose references have more than {MOST_CHARACTERS:,} characters")

    @contextmanager
    def _translate_errors(self, subject: str) -> Iterator[None]:
        """Translate the client's errors to the platform's. In their messages, `subject` names the thing asked for."""
        from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the one of two that the client uses
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            with waiting_for(self._where):
                yield
        except SchemaRegistryError as err:
            raise self._explain_answer(err, subject) from err
        except OAuthTokenError as err:
            kind = AuthorizationError if err.status_code else RegistryUnavailableError
            code = ErrorCode.REGISTRY_LOGIN if err.status_code else ErrorCode.REGISTRY_DOWN
            message = f"{self._where}: no token to ask for {subject} with: {cut_reason(err.message)}"
            raise kind(message, code=code) from err
        except httpx.TransportError as err:
            raise self._explain_silence(err, subject) from err
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
            message = (
                f"{self._where} answers for {subject} what no registry does: check its URL: {cut_reason(str(err))}"
            )
            raise ConfigError(message, code=ErrorCode.REGISTRY_URL) from err

    def _explain_answer(self, err: "SchemaRegistryError", subject: str) -> Exception:
        """Return the error for an unsuccessful answer of the registry, according to its code."""
        message = cut_reason(str(err.error_message))
        summary = f"{self._where} answers for {subject}: {message} (HTTP status {err.http_status_code})"
        # Checked before the status: an unknown schema is the fault of the record that names it, not of the registry.
        if err.error_code in NOT_FOUND_CODES:
            return BadRecordError(
                f"has a schema that the registry does not know. {summary}. Check that schema.registry.url is the "
                f"registry of its producer, and whether the schema was deleted there"
            )
        if err.http_status_code == CONFLICT:
            return IncompatibleSchemaError(f"{summary}: its compatibility mode does not allow the schema")
        if err.http_status_code in (401, 403):
            return AuthorizationError(
                f"{summary}: check schema.registry.url, basic.auth.user.info, or the rights of that user",
                code=ErrorCode.REGISTRY_LOGIN,
            )
        if err.http_status_code in (NOT_FOUND, NOT_ALLOWED):
            return ConfigError(f"{summary}: check schema.registry.url", code=ErrorCode.REGISTRY_URL)
        # These errors pass by themselves. Any other answer needs somebody to act.
        if err.http_status_code in (408, 429) or err.http_status_code >= 500:
            return RegistryUnavailableError(f"{summary}: run again when it answers")
        return ConfigError(summary, code=ErrorCode.REGISTRY_SCHEMA)

    def _explain_silence(self, err: Exception, subject: str) -> PlatformError:
        """Return the error for a request without an answer: a ConfigError if a wrong TLS setting is the cause."""
        summary = f"{self._where} was asked for {subject} and does not answer: {err}"
        # The HTTP client wraps the TLS error: look for it among the causes.
        cause: BaseException | None = err
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                advice = explain_certificate(str(cause), "schema.registry.url", _UNTRUSTED)
                return ConfigError(f"{summary}. {advice}", code=ErrorCode.REGISTRY_CERT)
            if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
                return ConfigError(f"{summary}. {_NO_TLS}", code=ErrorCode.REGISTRY_TLS)
            cause = cause.__cause__ or cause.__context__
        is_closed = type(err).__name__ in {"ReadError", "RemoteProtocolError"}
        advice = _MAYBE_TLS if is_closed and self.url.startswith("http:") else _UNREACHED
        return RegistryUnavailableError(f"{summary}. {advice}")


_UNTRUSTED = "Have schema.registry.ssl.ca.location name the authority that the registry's certificate is of"
_NO_TLS = "The server does not speak TLS at that port: correct the port in schema.registry.url, or write http:// there"
_UNREACHED = "Check that it runs and that schema.registry.url is right; run again when it answers"
_MAYBE_TLS = (
    "Check that it runs and that schema.registry.url is right: its port, and https:// in place of http:// if that port "
    "speaks TLS"
)


def _is_path_step(subject: str) -> bool:
    """Return True if a subject would lead to another path when it is part of a URL's path."""
    return subject in {".", ".."}


def _explain_path_step(subject: str) -> str:
    return f"a subject named {subject!r} leads to another place of its API"


def _check_subject(subject: str) -> str:
    """Return the subject. Raise BadRecordError if it leads to another path though the client percent-encodes it."""
    if _is_path_step(subject):
        raise BadRecordError(f"has a schema that cannot be asked for: {_explain_path_step(subject)}")
    return subject


def _parse_schema(answer: Mapping[str, Any]) -> "ClientSchema":
    """Return the client's schema object for a registry's answer, without the fields this object does not know."""
    from confluent_kafka.schema_registry import Schema as ClientSchema

    return ClientSchema.from_dict({name: value for name, value in answer.items() if name in TYPED_FIELDS})


def _quote(subject: str) -> str:
    """Return a subject as part of a URL's path. Raise BadRecordError if it would lead to another path."""
    return quote(_check_subject(subject), safe="")


def _read_guid(*answers: Mapping[str, Any]) -> str | None:
    """Return the first GUID of a schema in these answers, or None if none has one."""
    for answer in answers:
        with suppress(LookupError, ValueError, TypeError, AttributeError):
            return str(UUID(answer["guid"]))
    return None


def _encode_others(answer: Mapping[str, Any], without: Collection[str]) -> str:
    """Encode the other fields of an answer as JSON. A null means the same as an absent field."""
    other_fields = {name: value for name, value in answer.items() if name not in without and value is not None}
    return json.dumps(other_fields, sort_keys=True)


def _check_references(outer: Sequence[object], schema: object) -> None:
    """Raise BadRecordError if a schema's references lead back to it or are too deep. `outer` are those before it."""
    if flaw := find_references_flaw(outer, schema):
        raise BadRecordError(f"has a schema that {flaw}")


def _check_number(noun: str, number: int, limit: int) -> None:
    """Raise BadRecordError if a schema leads to more requests than `limit`. `noun` names what is counted."""
    if number > limit:
        raise BadRecordError(f"has a schema with more than {limit:,} {noun}, and each needs a request")


def _choose_version(pairs: Sequence[tuple[Any, Any]], subject: str) -> tuple[Any, Any]:
    """Return the subject and version that name a schema: in `subject`, else in one of its topic, else the first."""
    subject_pairs = [pair for pair in pairs if pair[0] == subject]
    if subject_pairs:
        return max(subject_pairs)
    # An event type has the subject `<topic>-<type>` (TopicRecordNameStrategy), and may have subjects of other topics.
    topic_pairs = [pair for pair in pairs if str(pair[0]).startswith(subject.rpartition("-")[0] + "-")]
    return min(topic_pairs or pairs, default=(None, None))


def open_registry(settings: RegistrySettings) -> Registry:
    """Return the registry of these settings. A process has only one, so each schema is requested once."""
    secrets = sorted((key, value.get_secret_value()) for key, value in settings.properties.items())
    return _open_known_registry(settings.url, tuple(secrets), settings.archived)


@lru_cache
def _open_known_registry(
    url: str, properties: tuple[tuple[str, str], ...], archived: tuple[ArchivedSchema, ...]
) -> Registry:
    """Return the one Registry of a process for these settings."""
    return Registry(url, dict(properties), archived)
