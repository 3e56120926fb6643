"""Reads the whole contents of a Schema Registry."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from kafka_s3_platform.connect.converters.registry import Registry
from kafka_s3_platform.connect.converters.registry_contents import (
    DEFAULT_CONTEXT,
    RegistryContents,
    ScopeSettings,
    find_context,
    qualify_subject,
)
from kafka_s3_platform.core.errors import RegistryUnavailableError
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion

THREADS = 8
ATTEMPTS = 3

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class _Scope:
    """A subject with its versions and its own settings. `live` are the versions without the deleted ones.

    A context, and the whole registry, are scopes without versions.
    """

    name: str
    versions: tuple[int, ...]
    live: tuple[int, ...]
    settings: ScopeSettings

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(self.name, version) for version in self.versions]

    @property
    def deleted(self) -> list[tuple[str, int]]:
        return [(self.name, version) for version in self.versions if version not in self.live]


def read_contents(registry: Registry) -> RegistryContents:
    """Read all subjects, versions and settings. Lists from before and after the schemas are read have to be equal.

    Raises:
        RegistryUnavailableError: the registry does not answer, or has changed each time while it was read.
        AuthorizationError, ConfigError: the registry refuses, or is no registry.
    """
    for _ in range(ATTEMPTS):
        scopes = _list_scopes(registry)
        places = [*chain.from_iterable(scope.places for scope in scopes)]
        answers = dict(zip(places, _map_all(lambda place: registry.read_version(*place), places), strict=True))
        if _list_scopes(registry) == scopes:
            settings = [scope.settings for scope in scopes]
            return RegistryContents(
                registry.url,
                _join_versions(registry, answers, {scope.name: scope.settings for scope in scopes}),
                tuple(chain.from_iterable(scope.deleted for scope in scopes)),
                tuple(scope for scope in settings if scope != ScopeSettings(scope.subject, None, None)),
                tuple(place for place, schema in answers.items() if schema is None),
            )
    raise RegistryUnavailableError(
        f"the Schema Registry at {registry.url} has changed each time while it was read, {ATTEMPTS} times: run again"
    )


def _list_scopes(registry: Registry) -> list[_Scope]:
    """Read the settings of the whole registry and its contexts, and the versions and settings of each subject."""
    subjects = sorted(registry.list_subjects())
    contexts = {find_context(name) for name in subjects} - {DEFAULT_CONTEXT}
    wider = ["", *(f":{context}:" for context in sorted(contexts))]
    return [
        *(_Scope(name, (), (), registry.read_scope(name)) for name in wider),
        *_map_all(lambda name: _read_subject(registry, name), subjects),
    ]


def _read_subject(registry: Registry, name: str) -> _Scope:
    """Read the versions and the settings of a subject."""
    versions = tuple(sorted(registry.list_versions(name, deleted=True)))
    live = tuple(sorted(registry.list_versions(name)))
    return _Scope(name, versions, live, registry.read_scope(name))


def _join_versions(
    registry: Registry,
    answers: Mapping[tuple[str, int], ArchivedSchema | None],
    settings: Mapping[str, ScopeSettings],
) -> tuple[ArchivedSchema, ...]:
    """Combine the versions with the same schema. Contexts stay apart, because each of them has its own ids."""
    schemas: dict[ArchivedSchema, list[SubjectVersion]] = defaultdict(list)
    for (subject, version), schema in answers.items():
        if schema is not None:
            context = find_context(subject)
            # The registry's URL may name the context already.
            suffix = "" if context == DEFAULT_CONTEXT else f"/contexts/{context}"
            url = f"{registry.url.removesuffix(suffix)}{suffix}"
            references = tuple(_find_id(reference, subject, answers) for reference in schema.schema_references)
            scope = settings[subject]
            place = SubjectVersion(subject, version, scope.compatibility, scope.others)
            schemas[replace(schema, registry_url=url, schema_references=references)].append(place)
    order = attrgetter("subject", "version")
    whole_schemas = (replace(schema, subjects=tuple(sorted(places, key=order))) for schema, places in schemas.items())
    return tuple(sorted(whole_schemas, key=lambda schema: (schema.registry_url, schema.schema_id)))


def _find_id(
    reference: SchemaReference, referrer: str, answers: Mapping[tuple[str, int], ArchivedSchema | None]
) -> SchemaReference:
    """Return a reference in a schema of `referrer` with its schema's id, or 0 if the registry does not give it."""
    schema = answers.get((qualify_subject(reference.subject, referrer), reference.version))
    return replace(reference, schema_id=schema.schema_id if schema else 0)


def _map_all(read_item: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call `read_item` for all items in a few threads. Return the results in the order of the items."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(read_item, items))
