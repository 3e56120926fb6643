"""Converts values of one schema to values of another, by Avro's rules of schema resolution.

Source: Apache Avro specification, "Schema Resolution". `target` is the specification's "reader's schema". Differences:

- The meaning of a value never changes. As in Connect's SchemaProjector, a type and the type it is converted to must
  have the same full name, the same logical type with the same parameters, and the same name and parameters in Connect.
  A number is refused if it would lose digits. A symbol is refused if the target's enum lacks it, even if this has a
  default.
- If a Connect schema has no name, or a repeated one, a converter makes a name up. Such a name does not count: these
  records are matched by their place, and in a union by their fields.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.connect.avro.connect_schema import is_made_up_name
from kafka_s3_platform.connect.avro.schema import get_branch_name, qualify_name
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.core.model.connect import Schema

Project = Callable[[Any], Any]
Definition = Mapping[str, Any]

_CONNECT_LOGICAL = frozenset({"decimal", "date", "time-millis", "timestamp-millis"})
"""The logical types Connect has too. For them, Connect's attributes tell nothing more than Avro's."""

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class ProjectionError(Exception):
    """A value of one schema cannot be converted to another schema. The error's text names the field."""


def project_values(objects: Sequence[Any], source: Schema, target: Schema) -> Iterator[Any]:
    """Yield `objects` of the schema `source` as values of `target`, or their ProjectionErrors. Nulls stay null."""
    try:
        convert, _ = _compile_projection(source.text, target.text)
    except ProjectionError as err:
        yield from (None if value is None else err for value in objects)
        return
    for value in objects:
        try:
            yield None if value is None else convert(value)
        except ProjectionError as err:
            yield err


def list_lacking_fields(source: Schema, target: Schema) -> Sequence[str]:
    """List the paths of the fields that `source` has and `target` lacks. Raise ProjectionError if no value fits."""
    return _compile_projection(source.text, target.text)[1]


@lru_cache
def _compile_projection(source: str, target: str) -> tuple[Project, Sequence[str]]:
    """Return the projection between two schemas, given as texts, and the fields the target lacks."""
    projections = _Projections(AvroSchema(Schema(source).avro), AvroSchema(Schema(target).avro))
    return projections.compile(projections.source.root, projections.target.root, ""), projections.lacking


class _Projections:
    """Makes projections (functions from a value of `source` to one of `target`) between the types of two schemas.

    Each pair of named types is compiled once. A type is a result of `AvroSchema.resolve`: its definition, or the list
    of a union's branches. `where` is the path of fields to the type, for errors. `lacking` collects the fields `target`
    lacks.
    """

    def __init__(self, source: AvroSchema, target: AvroSchema) -> None:
        self.source = source
        self.target = target
        self.lacking: list[str] = []
        self._records: dict[tuple[str, str], Project] = {}
        self._refused: dict[tuple[str, str], ProjectionError] = {}

    def compile(self, source_node: Any, target_node: Any, where: str) -> Project:
        """Return the projection between two types. Raise ProjectionError if no value of the first fits the second."""
        source = self.source.resolve(source_node)
        target = self.target.resolve(target_node)
        if isinstance(source, list):
            return self._compile_from_union(source, target, where)
        if isinstance(target, list):
            return self._compile_to_union(source, target, where, is_among_nameless=False)
        if source["type"] == target["type"] == "record":
            return self._compile_record(source, target, where)
        _check_meaning(source, target, where)
        if source["type"] != target["type"]:
            return _compile_promotion(source["type"], target["type"], where)
        return self._compile_same_type(source, target, where)

    def _compile_same_type(self, source: Definition, target: Definition, where: str) -> Project:
        """Return the projection between two types of the same Avro type, except records and unions."""
        match source["type"]:
            case "array":
                item = self.compile(source["items"], target["items"], f"{where}[]")
                return lambda values: list(map(item, values))
            case "map":
                convert = self.compile(source["values"], target["values"], f"{where}[]")
                return lambda values: {key: convert(value) for key, value in values.items()}
            case "fixed" | "enum":
                return _compile_named(source, target, where)
        return _keep_value

    def _compile_record(self, source: Definition, target: Definition, where: str) -> Project:
        """Compile the projection of a record to the fields of `target`. Raise ProjectionError if one does not fit."""
        _check_name(source, target, where)
        key = source["name"], target["name"]
        if key in self._refused:
            raise self._refused[key]
        if key in self._records:
            return self._records[key]
        field_projections: list[tuple[str, Project]] = []

        def record(value: Any) -> Any:
            # Records that were compiled before this one was refused may contain it.
            if key in self._refused:
                raise self._refused[key]
            return {name: part(value) for name, part in field_projections}

        # Stored before its fields are compiled, because a record may contain itself.
        self._records[key] = record
        fields = {field["name"]: field for field in source["fields"]}
        try:
            field_projections += [
                (f["name"], self._compile_field(fields, f, _join_path(where, f["name"]))) for f in target["fields"]
            ]
        except ProjectionError as err:
            self._refused[key] = err
            raise
        target_names = {name for field in target["fields"] for name in _list_names(field)}
        self.lacking += [_join_path(where, name) for name in fields if name not in target_names]
        return record

    def _compile_field(self, fields: Definition, target: Definition, where: str) -> Project:
        """Return the projection of a record to a field of the target, by the field's name, an alias, or its default."""
        for name in _list_names(target):
            if name in fields:
                convert = self.compile(fields[name]["type"], target["type"], where)
                return lambda value: convert(value[name])
        if "default" not in target:
            raise ProjectionError(f"field {where} is in the target schema alone, where it has no default")
        default = self.target.decode_default_of(target["type"], target["default"])
        return lambda _: default

    def _compile_to_union(
        self, source: Definition, target: Sequence[Any], where: str, *, is_among_nameless: bool
    ) -> Project:
        """Choose the branch of the same type, else the first branch with a conversion.

        `is_among_nameless` is True if the source is a record without a name, in a union with other nameless records.
        """
        branches = [self.target.resolve(branch) for branch in target]
        is_choice = sum(branch["type"] != "null" for branch in branches) > 1
        if source["type"] == "record":
            branches = _choose_records(source, branches, is_among_nameless=is_among_nameless)
        for branch in sorted(branches, key=lambda b: bool(b["type"] != source["type"])):
            try:
                convert = self.compile(source, branch, where)
            except ProjectionError:
                if len(branches) == 1:
                    raise
                continue
            return _compile_branch(get_branch_name(branch), convert) if is_choice else convert
        raise _make_mismatch_error(where, _describe_type(source), "any type of the union there")

    def _compile_from_union(self, source: Sequence[Any], target: Any, where: str) -> Project:
        """Compile the projection of a union. A value gets its branch's projection, or is refused if the branch is."""
        branches = [self.source.resolve(branch) for branch in source]
        nameless = [b for b in branches if b["type"] == "record" and _read_given_name(b) is None]
        projects: dict[str, Project] = {}
        for branch in branches:
            try:
                if len(nameless) > 1 and branch in nameless:
                    others = target if isinstance(target, list) else [target]
                    project = self._compile_to_union(branch, others, where, is_among_nameless=True)
                else:
                    project = self.compile(branch, target, where)
            except ProjectionError as err:
                project = _compile_refusal(err)
            projects[get_branch_name(branch)] = project
        null = projects.pop("null", _compile_refusal(ProjectionError(f"{_name_field(where)} is null")))
        if len(projects) == 1:
            (project_only,) = projects.values()
            return lambda value: null(value) if value is None else project_only(value)

        def convert(value: Any) -> Any:
            if value is None:
                return null(value)
            if type(value) is not tuple or value[0] not in projects:
                raise ProjectionError(f"{_name_field(where)} names none of {', '.join(projects)}")
            return projects[value[0]](value[1])

        return convert


def _compile_branch(name: str, convert: Project) -> Project:
    """Return `convert` for the branch `name` of a union. The values name their branch, unless they are null."""
    if name == "null":
        return convert
    return lambda value: (name, convert(value))


def _compile_refusal(err: ProjectionError) -> Project:
    """Return a projection that fails for each value."""
    reason = str(err)

    def refuse(_: Any) -> Any:
        raise ProjectionError(reason)

    return refuse


def _choose_records(source: Definition, branches: Sequence[Any], *, is_among_nameless: bool) -> list[Any]:
    """Return the branches of a union that a record may belong to. If several have no name, the fields decide."""
    candidates = [b for b in branches if b["type"] == "record" and _has_same_name(source, b)]
    if _read_given_name(source) is not None or (len(candidates) < 2 and not is_among_nameless):
        return candidates
    fields = _list_field_names(source)
    same_fields = [b for b in candidates if _list_field_names(b) == fields]
    extended = [b for b in candidates if _list_field_names(b) >= fields or _list_field_names(b) <= fields]
    chosen = same_fields or extended
    return chosen if len(chosen) == 1 else []


def _compile_named(source: Definition, target: Definition, where: str) -> Project:
    """Return a projection between enums or fixed types."""
    _check_name(source, target, where)
    if source["type"] == "enum":
        return _compile_enum(target, where)
    if source["size"] != target["size"]:
        raise _make_mismatch_error(where, f"fixed of {source['size']} bytes", target["size"])
    return _keep_value


def _list_names(field: Definition) -> Sequence[str]:
    return field["name"], *field.get("aliases", ())


def _list_field_names(record: Definition) -> set[str]:
    return {field["name"] for field in record["fields"]}


def _describe_type(definition: Definition) -> str:
    """Describe a type in an error, with its name if it has one."""
    return " ".join([definition["type"], *([definition["name"]] if "name" in definition else [])])


def _check_meaning(source: Definition, target: Definition, where: str) -> None:
    """Raise ProjectionError if values of the two types differ in meaning, such as a date and a plain number."""
    source_meaning, target_meaning = _read_meaning(source), _read_meaning(target)
    if source_meaning != target_meaning:
        raise _make_mismatch_error(
            where, *(_describe_meaning(*side) for side in ((source, source_meaning), (target, target_meaning)))
        )


def _read_meaning(schema: Definition) -> dict[str, Any]:
    """Return the properties that give a type's values a meaning, such as a logical type or a name in Connect."""
    names = ["logicalType"]
    if schema.get("logicalType") == "decimal":
        names += ["precision", "scale"]
    if schema.get("logicalType") not in _CONNECT_LOGICAL and schema["type"] != "enum":
        names += ["connect.name", "connect.parameters"]
    return {name: schema[name] for name in names if schema.get(name)}


def _describe_meaning(schema: Definition, meaning: Mapping[str, Any]) -> str:
    """Describe a type in an error, with the properties of its meaning."""
    properties = ", ".join(f"{name} {value}" for name, value in meaning.items())
    return f"{schema['type']} ({properties})" if properties else str(schema["type"])


def _compile_promotion(kind: str, target_kind: str, where: str) -> Project:
    """Compile a conversion to another primitive type, if Avro's schema resolution promotes the first to the second."""
    if target_kind not in PROMOTIONS.get(kind, ()):
        raise _make_mismatch_error(where, kind, target_kind)
    if target_kind in ("float", "double"):
        return _compile_exact_float(kind, target_kind, where)
    if target_kind == "bytes":
        return str.encode
    if target_kind == "string":
        return _compile_decoding(where)
    return _keep_value


def _compile_exact_float(kind: str, target_kind: str, where: str) -> Project:
    """Return a projection to float or double, which refuses a number if it would lose digits."""
    layout = struct.Struct("f" if target_kind == "float" else "d")

    def convert(value: Any) -> float:
        number = float(value)
        if kind != "float" and layout.unpack(layout.pack(number))[0] != value:
            raise ProjectionError(f"{_name_field(where)} holds {value}, which a {target_kind} cannot hold exactly")
        return number

    return convert


def _compile_decoding(where: str) -> Project:
    """Return a projection of bytes to a string, which refuses bytes that are not UTF-8."""

    def decode(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ProjectionError(f"{_name_field(where)} is a string there, and not UTF-8 here: {err}") from err

    return decode


def _compile_enum(target: Mapping[str, Any], where: str) -> Project:
    """Return a projection of symbols to an enum, which refuses symbols the enum lacks."""
    symbols = frozenset(target["symbols"])

    def convert(value: str) -> str:
        # Avro would take the enum's default, but that is another value.
        if value not in symbols:
            raise ProjectionError(f"{_name_field(where)} holds {value!r}, no symbol of enum {target['name']} there")
        return value

    return convert


def _check_name(source: Definition, target: Definition, where: str) -> None:
    """Raise ProjectionError if a named type is to be converted to a type of another name."""
    if not _has_same_name(source, target):
        raise _make_mismatch_error(where, _describe_type(source), _describe_type(target))


def _has_same_name(source: Definition, target: Definition) -> bool:
    """Return True if the source has the target's full name or an alias of it, or if neither has a name."""
    space = target["name"].rpartition(".")[0]
    return _read_given_name(source) in {
        _read_given_name(target),
        *(qualify_name(a, space) for a in target.get("aliases", ())),
    }


def _read_given_name(definition: Definition) -> str | None:
    """Return the full name of a type in Connect, or None if a converter made its name up."""
    # If another type has the name, a converter adds a number to it, and notes the original name.
    name: str = definition.get("connect.name") or definition["name"]
    return None if is_made_up_name(definition["name"]) else name


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _make_mismatch_error(where: str, source: str, target: str) -> ProjectionError:
    return ProjectionError(f"{_name_field(where)} is {source} and cannot be made into {target}")


def _name_field(where: str) -> str:
    return f"field {where or '(the whole)'}"


def _keep_value(value: Any) -> Any:
    return value
