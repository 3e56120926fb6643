"""Registers archived schemas in the target's registry, and maps their ids to the new ones."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from kafka_s3_platform.connect.converters.registry import (
    IncompatibleSchemaError,
    NewSchema,
    Registration,
    Registry,
    open_registry,
)
from kafka_s3_platform.connect.converters.registry_contents import find_context, qualify_subject
from kafka_s3_platform.core.config.settings import RecordSettings, RegistrySettings
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion, find_references_flaw
from kafka_s3_platform.core.restore.outgoing.sent import SchemaMapping

ANY_SCHEMA = "NONE"
"""The compatibility mode that checks nothing."""


@dataclass(frozen=True, slots=True)
class MappedVersion:
    """One version of a subject in the target's registry."""

    subject: str
    version: int
    schema_id: int


def map_schemas(
    target: RegistrySettings,
    archived: Sequence[ArchivedSchema],
    source: RecordSettings,
    topic: str,
    to_topic: str,
) -> SchemaMapping:
    """Register archived schemas in the target's registry as they were in the source's registry.

    Subjects named after the topic get the new topic's name, others keep theirs. References and earlier versions are
    registered first. Registered schemas stay as they are, so this may be done again. A subject gets the mode it had at
    the source. If it has versions of the target's own, it keeps its mode, and a note says so.

    Args:
        target: the registry to register in.
        archived: the index's schemas.
        source: the converters of the archived records, whose registries assigned the ids.
        topic: the archived topic.
        to_topic: the topic to restore the records to.

    Raises:
        PreflightError: a subject of the target does not allow an archived schema, or a schema refers to one of another
            context.
        IntegrityError: a schema refers to one that was not archived.
        RegistryUnavailableError, AuthorizationError: the registry does not answer, or refuses.
    """
    registry = open_registry(target)
    sides: list[dict[int, int] | None] = []
    registrars: dict[str, SchemaRegistrar] = {}
    for settings in (source.key.registry, source.value.registry):
        if settings is None:
            sides.append(None)
            continue
        url = open_registry(settings).url
        if url not in registrars:
            registrars[url] = SchemaRegistrar(registry, _index_schemas(archived, url), topic, to_topic)
            registrars[url].register()
        sides.append(registrars[url].ids)
    notes = (note for registrar in registrars.values() for note in registrar.notes)
    guids = dict(chain.from_iterable(registrar.guids.items() for registrar in registrars.values()))
    return SchemaMapping(sides[0], sides[1], tuple(notes), guids)


def _index_schemas(archived: Sequence[ArchivedSchema], url: str) -> dict[int, ArchivedSchema]:
    """Index schemas by id. Those of the registry at `url` win. Others count too, since a registry may move."""
    others = {s.schema_id: s for s in archived if s.registry_url != url}
    schemas = others | {s.schema_id: s for s in archived if s.registry_url == url}
    return {schema_id: _strip_context(schema) for schema_id, schema in schemas.items()}


def _strip_context(schema: ArchivedSchema) -> ArchivedSchema:
    """Return the schema with its subjects' names inside of their context, which the URL of its registry has named.

    The URL of the target's registry names the context there, if any.

    Raises:
        PreflightError: it refers to a schema of another context. The archive has none of these, as each context has ids
            of its own.
    """
    referrer = schema.subjects[0].subject if schema.subjects else ""
    context = find_context(referrer)
    prefix = f":{context}:"
    references: list[SchemaReference] = []
    for reference in schema.schema_references:
        subject = qualify_subject(reference.subject, referrer)
        if find_context(subject) != context:
            raise PreflightError(
                f"schema {schema.schema_id} of {schema.registry_url} refers to {reference.name} (version "
                f"{reference.version} of {subject}), which belongs to another context of that registry. "
                f"The archive of a topic has the schemas of one context only: restore without mapping schema ids"
            )
        references.append(replace(reference, subject=subject.removeprefix(prefix)))
    subjects = tuple(replace(place, subject=place.subject.removeprefix(prefix)) for place in schema.subjects)
    return replace(schema, subjects=subjects, schema_references=tuple(references))


@dataclass
class SchemaRegistrar:
    """Registers the schemas of one source registry. If there is a `topic`, its subjects get the name of `to_topic`."""

    registry: Registry
    schemas: Mapping[int, ArchivedSchema]
    topic: str = ""
    to_topic: str = ""
    ids: dict[int, int] = field(default_factory=dict)
    guids: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.versions: dict[tuple[str, int], MappedVersion] = {}
        self._under_way: list[tuple[str, int]] = []
        self._places: dict[str, dict[int, ArchivedSchema]] = defaultdict(dict)

    def register(self) -> None:
        """Register the schemas, with their references."""
        roots = list(self.schemas.values())
        for schema in roots:
            for place in self._choose_subjects(schema):
                self._places[place.subject][place.version] = schema
        self._add_references(roots)
        for subject in sorted(self._places):
            for version in sorted(self._places[subject]):
                self._register_version(subject, version)
        for subject in sorted(self._places):
            self._restore_settings(subject)

    def _choose_subjects(self, schema: ArchivedSchema) -> Sequence[SubjectVersion]:
        """Return the schema's subjects of this topic, or else all its subjects. Many topics may share a schema."""
        subjects = schema.subjects or (SubjectVersion(f"{self.topic}-value", 1, None),)
        return [s for s in subjects if _is_of_topic(s.subject, self.topic)] or subjects

    def _add_references(self, schemas: Iterable[ArchivedSchema]) -> None:
        """Add the schemas these refer to, directly or indirectly, to the ones to be registered."""
        pending = list(schemas)
        while pending:
            schema = pending.pop()
            for reference in schema.schema_references:
                other = self._find_reference(schema, reference)
                if reference.version not in self._places[reference.subject]:
                    self._places[reference.subject][reference.version] = other
                    pending.append(other)

    def _find_reference(self, schema: ArchivedSchema, reference: SchemaReference) -> ArchivedSchema:
        """Return the archived schema of a reference. Raise IntegrityError if it was not archived."""
        if reference.schema_id not in self.schemas:
            raise IntegrityError(
                f"schema {schema.schema_id} of {schema.registry_url} refers to {reference.name} (version "
                f"{reference.version} of {reference.subject}), which is not in the index: archive again while that "
                "registry answers, or restore without mapping schema ids"
            )
        return self.schemas[reference.schema_id]

    def _register_version(self, subject: str, version: int) -> MappedVersion:
        """Register one version of a subject, after earlier versions and after its references."""
        if (subject, version) in self.versions:
            return self.versions[subject, version]
        # A registry numbers the versions of a subject in the order of their registration.
        for earlier in sorted(v for v in self._places[subject] if v < version):
            self._register_version(subject, earlier)
        schema = self._places[subject][version]
        references = self._register_references(subject, version, schema)
        new = NewSchema(schema.schema_type, schema.schema_text, references, schema.other_fields)
        target = self._name_target_subject(subject)
        registration = self.registry.find(target, new)
        if registration is None or registration.differing:
            registration = self._register_schema(subject, target, new)
        if registration.differing:
            self.notes.append(
                f"schema {registration.schema_id} (version {registration.version} of {target}) in the target's "
                f"registry differs from schema {schema.schema_id} of {schema.registry_url} in "
                f"{' and '.join(registration.differing)}: that registry did not take them as they were archived, and "
                f"who reads by them, such as rules that decrypt, cannot"
            )
        done = self.versions[subject, version] = MappedVersion(target, registration.version, registration.schema_id)
        self.ids.setdefault(schema.schema_id, registration.schema_id)
        if schema.schema_guid and registration.guid:
            self.guids.setdefault(schema.schema_guid, registration.guid)
        return done

    def _register_references(self, subject: str, version: int, schema: ArchivedSchema) -> tuple[SchemaReference, ...]:
        """Register the schemas a schema refers to, and return the references to them at the target."""
        if flaw := find_references_flaw(self._under_way, (subject, version)):
            raise IntegrityError(
                f"schema {schema.schema_id} of {schema.registry_url} (version {version} of {subject}) {flaw}: no "
                "registry accepts that, so somebody wrote to the index. Restore without mapping schema ids"
            )
        self._under_way.append((subject, version))
        references = []
        for reference in schema.schema_references:
            done = self._register_version(reference.subject, reference.version)
            references.append(SchemaReference(reference.name, done.subject, done.version, done.schema_id))
        self._under_way.pop()
        return tuple(references)

    def _register_schema(self, subject: str, target: str, new: NewSchema) -> Registration:
        """Register a schema. If the subject's compatibility mode refuses it, switch the mode off.

        The source accepted the schema, so the subject must have had another mode then, or none.
        """
        try:
            return self.registry.register(target, new)
        except IncompatibleSchemaError as err:
            if not self._holds_archive_alone(subject):
                raise PreflightError(
                    f"subject {target} of the target's registry has schemas of its own, and does not allow an "
                    f"archived schema beside them: {err}. Restore to a topic of another name, or to a registry "
                    "without that subject"
                ) from err
        # `_restore_settings` gives the subject its own mode again, once all of its versions are registered.
        self.registry.write_settings(target, ANY_SCHEMA)
        return self.registry.register(target, new)

    def _holds_archive_alone(self, subject: str) -> bool:
        """Return True if the subject at the target holds only schemas of this archive."""
        target = self._name_target_subject(subject)
        mine = {s.version for s in self.versions.values() if s.subject == target}
        return set(self.registry.list_versions(target)) <= mine

    def _restore_settings(self, subject: str) -> None:
        """Give the subject the settings it had when its latest archived version was archived."""
        target = self._name_target_subject(subject)
        latest = self._places[subject][max(self._places[subject])]
        was = next((s for s in latest.subjects if s.subject == subject), None)
        if was is None or was.compatibility is None or (target, latest.registry_url) == (subject, self.registry.url):
            return
        settings = replace(was, subject=target, version=0)
        if self.registry.read_settings(target) == settings:
            return
        if self._holds_archive_alone(subject):
            self.registry.write_settings(target, was.compatibility, was.other_settings)
        if (now := self.registry.read_settings(target)) != settings:
            self.notes.append(
                f"subject {target} keeps its compatibility mode {now.compatibility} and other settings "
                f"{now.other_settings}, since it has schemas of its own, or its registry took no others; {subject} had "
                f"{was.compatibility} and {was.other_settings} where it was archived"
            )

    def _name_target_subject(self, subject: str) -> str:
        """Return the name of a subject at the target, with the new topic's name in place of the old one."""
        if _is_of_topic(subject, self.topic):
            return self.to_topic + subject[len(self.topic) :]
        return subject


def _is_of_topic(subject: str, topic: str) -> bool:
    """Return True if TopicNameStrategy or TopicRecordNameStrategy made the subject for the topic (never for "").

    `a-b-value` belongs to the topic `a-b`, never to `a`. `a-Order` belongs to `a`, since `Order` is the name of a
    record.
    """
    rest = subject.removeprefix(f"{topic}-")
    return bool(topic) and rest != subject and (rest in {"key", "value"} or not rest.endswith(("-key", "-value")))
