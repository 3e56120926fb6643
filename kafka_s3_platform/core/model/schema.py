"""The schemas of a Schema Registry in the index, with everything needed to register them in another one."""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_REFERENCES_DEEP = 100
"""The longest permitted chain of schemas that refer to each other. Real chains have a few schemas."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema's reference to another one. `name` is the name in its text, the rest is from the registry."""

    name: str
    subject: str
    version: int
    schema_id: int


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A schema's place in its registry. `compatibility` is the subject's mode, None if the registry reported none.

    `other_settings` is the JSON of its others.
    """

    subject: str
    version: int
    compatibility: str | None
    other_settings: str = "{}"


@dataclass(frozen=True, slots=True)
class ArchivedSchema:
    """One schema of the registry at `registry_url`, as it was registered.

    `schema_type` is AVRO, JSON or PROTOBUF. `schema_references` are in the registry's order. `other_fields` is the JSON
    of the registry's other fields: metadata, the rule set, and future ones. `schema_guid` is the GUID of its content,
    which headers of records may name, or None if it has none.
    """

    registry_url: str
    schema_id: int
    schema_type: str
    schema_text: str
    subjects: tuple[SubjectVersion, ...]
    schema_references: tuple[SchemaReference, ...] = ()
    other_fields: str = "{}"
    schema_guid: str | None = None


def find_references_flaw(outer: Sequence[object], schema: object) -> str | None:
    """Explain the flaw in a schema's references, or return None. `outer` are the schemas leading to it."""
    if schema in outer:
        return "refers to itself in the end"
    if len(outer) >= MAX_REFERENCES_DEEP:
        return f"refers to schemas that refer to others, more than {MAX_REFERENCES_DEEP} deep"
    return None
