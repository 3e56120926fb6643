"""The whole contents of a Schema Registry at one moment, including schemas no archived record uses."""

import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from kafka_s3_platform.core.model.schema import ArchivedSchema

DEFAULT_CONTEXT = "."


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """The settings a subject has of its own, or the whole registry's settings if `subject` is empty.

    `mode` and `compatibility` are None if the scope has none of its own. `others` are the other settings, as JSON.
    """

    subject: str
    mode: str | None
    compatibility: str | None
    others: str = "{}"


@dataclass(frozen=True)
class RegistryContents:
    """The schemas and settings of the registry at `url`.

    `schemas` has each schema once, with all its subjects and versions, including the soft-deleted ones. Each context
    has ids of its own, so the `registry_url` of its schemas names the context. `deleted` are the soft-deleted versions
    of subjects. `settings` has each scope with settings of its own. `unreadable` are the versions the registry lists
    but does not return.
    """

    url: str
    schemas: tuple[ArchivedSchema, ...] = ()
    deleted: tuple[tuple[str, int], ...] = ()
    settings: tuple[ScopeSettings, ...] = ()
    unreadable: tuple[tuple[str, int], ...] = ()

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """The subjects, ascending."""
        return tuple(sorted({subject for subject, _ in self.versions}))

    @cached_property
    def versions(self) -> dict[tuple[str, int], ArchivedSchema]:
        """The schema of each (subject, version)."""
        versions = {}
        for schema in self.schemas:
            versions.update(dict.fromkeys(((place.subject, place.version) for place in schema.subjects), schema))
        return versions


def name_registry(url: str) -> str:
    """Return the name of the registry at `url` in the keys of objects and assets: its host and path."""
    parts = urlsplit(url.partition(",")[0])
    return re.sub("[^A-Za-z0-9.-]+", "_", f"{parts.netloc.rpartition('@')[2]}{parts.path}").strip("_")


def qualify_subject(subject: str, referrer: str) -> str:
    """Return the full name of a subject to which a schema of the subject `referrer` refers.

    A name without a context belongs to the referrer's, so no schema of another context can refer to the default one.
    Source: `qualifySubjectWithParent` of Confluent's registry.
    """
    context = find_context(referrer)
    if context == DEFAULT_CONTEXT:
        return subject.removeprefix(f":{DEFAULT_CONTEXT}:")
    return subject if find_context(subject) != DEFAULT_CONTEXT else f":{context}:{subject}"


def find_context(subject: str) -> str:
    """Return the context of a subject: `:.fleet:orders-value` is in `.fleet`."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT
    return subject[1:].partition(":")[0]
