"""What the index keeps of a Schema Registry: enough to register the same schemas in another one."""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_REFERENCES_DEEP = 100
"""How many schemas may refer to each other in a row. Real ones are a few deep."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """Another schema that one names: `name` is what its text calls it, the rest is the registry's."""

    name: str
    subject: str
    version: int
    schema_id: int


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """Where a schema stands in its registry. `compatibility` is the mode that held for the subject, if one was told."""

    subject: str
    version: int
    compatibility: str | None


@dataclass(frozen=True, slots=True)
class ArchivedSchema:
    """One schema of the registry at `registry_url`, as it was registered.

    `schema_type` is AVRO, JSON or PROTOBUF. `schema_references` keep the order that the registry gave them.
    """

    registry_url: str
    schema_id: int
    schema_type: str
    schema_text: str
    subjects: tuple[SubjectVersion, ...]
    schema_references: tuple[SchemaReference, ...] = ()


def references_flaw(outer: Sequence[object], schema: object) -> str | None:
    """Why the references of `schema` are not followed, which those of the `outer` ones led to; None where they are."""
    if schema in outer:
        return "refers to itself in the end"
    if len(outer) >= MAX_REFERENCES_DEEP:
        return f"refers to schemas that refer to others, more than {MAX_REFERENCES_DEEP} deep"
    return None
