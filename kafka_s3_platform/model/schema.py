"""What the index keeps of a Schema Registry: enough to register the same schemas in another one."""

from dataclasses import dataclass


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
