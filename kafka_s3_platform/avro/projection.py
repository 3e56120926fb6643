"""Converts values of one schema to values of another, by Avro's rules of schema resolution.

Source: Apache Avro specification, "Schema Resolution". `target` is the specification's reader's schema. Differences:

- The branch of a union is found by the value, because decoded values do not tell their branch.
- What a value means never changes. As in Connect's SchemaProjector, a type and the one that it is made into have the
  same logical type with the same parameters, and the same name and parameters in Connect. A number that would lose
  digits is refused.
- A name that a converter made up, because Connect's schema has none or has it twice, is no name: such records are
  matched by their place, in a union by their fields.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.avro.connect_schema import is_made_up_name
from kafka_s3_platform.avro.schema import collect_definitions, qualify_name, read_full_name, read_namespace
from kafka_s3_platform.model.connect import Schema

Project = Callable[[Any], Any]
Fits = Callable[[Any], bool]

_CONNECT_LOGICAL = frozenset({"decimal", "date", "time-millis", "timestamp-millis"})
"""The logical types that Connect has itself: what its own attributes say of them beside, Avro's say too."""

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class ProjectionError(Exception):
    """A value of one schema cannot be made into one of another. Its text names the field."""


def project_values(objects: Sequence[Any], source: Schema, target: Schema) -> Iterator[Any]:
    """Convert `objects` of the schema `source` to values of `target`. Nulls stay.

    For a value that cannot be converted, yield the ProjectionError that says why.
    """
    try:
        convert = _compile_projection(source.text, target.text)
    except ProjectionError as err:
        yield from (None if value is None else err for value in objects)
        return
    for value in objects:
        try:
            yield None if value is None else convert(value)
        except ProjectionError as err:
            yield err


@lru_cache
def _compile_projection(source: str, target: str) -> Project:
    from_ = Schema(source)
    to = Schema(target)
    return _Projections(from_.avro, to.avro).between(_Place(from_.avro, ""), _Place(to.avro, ""), "")


class _Place:
    """A schema in its context: names without a dot belong to the namespace `around`."""

    def __init__(self, schema: Any, around: str) -> None:
        self.schema = schema
        self.around = around

    def inner(self, schema: Any) -> "_Place":
        return _Place(schema, self.around)


class _Projections:
    """Makes projections between the types of two schemas, each pair of named types once."""

    def __init__(self, source: Any, target: Any) -> None:
        self._known = collect_definitions(source), collect_definitions(target)
        self._records: dict[tuple[str, str], Project] = {}
        self._refused: dict[tuple[str, str], ProjectionError] = {}

    def between(self, source: _Place, target: _Place, where: str) -> Project:
        source = self._resolved(source, 0)
        target = self._resolved(target, 1)
        if isinstance(source.schema, list):
            return self._from_union(source, target, where)
        if isinstance(target.schema, list):
            return self._to_union(source, target, where)
        kind = _get_type_name(source.schema)
        wanted = _get_type_name(target.schema)
        if kind == wanted == "record":
            return self._record(source, target, where)
        _check_meaning(source.schema, target.schema, where)
        if kind != wanted:
            return _compile_promotion(kind, wanted, where)
        if kind in ("array", "map"):
            return self._items(kind, source, target, where)
        return self._named(source, target, kind, where)

    def _items(self, kind: str, source: _Place, target: _Place, where: str) -> Project:
        part = "items" if kind == "array" else "values"
        each = self.between(source.inner(source.schema[part]), target.inner(target.schema[part]), f"{where}[]")
        if kind == "array":
            return lambda values: list(map(each, values))
        return lambda values: {key: each(value) for key, value in values.items()}

    def _resolved(self, place: _Place, side: int) -> _Place:
        """Replace a name by its definition, and {"type": ...} by the type inside."""
        schema = place.schema
        if isinstance(schema, str):
            known = self._known[side]
            schema = known.get(qualify_name(schema, place.around), known.get(schema, schema))
        if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
            return self._resolved(place.inner(schema["type"]), side)
        is_named = isinstance(schema, Mapping) and "name" in schema
        return _Place(schema, read_namespace(read_full_name(schema, place.around)) if is_named else place.around)

    def _named(self, source: _Place, target: _Place, kind: str, where: str) -> Project:
        """Project enums and fixed. Values of types without a name stay as they are."""
        if kind == "fixed":
            _check_name(source, target, where)
            if source.schema["size"] != target.schema["size"]:
                raise _make_mismatch_error(where, f"fixed of {source.schema['size']} bytes", target.schema["size"])
        if kind == "enum":
            _check_name(source, target, where)
            return _compile_enum(target.schema, where)
        return _keep_value

    def _record(self, source: _Place, target: _Place, where: str) -> Project:
        _check_name(source, target, where)
        key = read_full_name(source.schema, source.around), read_full_name(target.schema, target.around)
        if key in self._refused:
            raise self._refused[key]
        if key in self._records:
            return self._records[key]
        parts: list[tuple[str, Project]] = []

        def record(value: Any) -> Any:
            # Records that were compiled before this one was refused may hold it.
            if key in self._refused:
                raise self._refused[key]
            return {name: part(value) for name, part in parts}

        # Known before its fields are compiled: a record may contain itself.
        self._records[key] = record
        given = {field["name"]: field for field in source.schema["fields"]}
        try:
            parts += [
                (
                    field["name"],
                    self._field(given, source, target.inner(field["type"]), field, _join_path(where, field["name"])),
                )
                for field in target.schema["fields"]
            ]
        except ProjectionError as err:
            self._refused[key] = err
            raise
        return record

    def _field(
        self, given: Mapping[str, Any], source: _Place, target: _Place, field: Mapping[str, Any], where: str
    ) -> Project:
        for name in (field["name"], *field.get("aliases", ())):
            if name in given:
                convert = self.between(source.inner(given[name]["type"]), target, where)
                return lambda value: convert(value[name])
        if "default" not in field:
            raise ProjectionError(f"field {where} is in the target schema alone, where it has no default")
        default = self._default(field["default"], target)
        return lambda _: default

    def _default(self, default: Any, place: _Place) -> Any:
        """Decode a default of the target schema."""
        place = self._resolved(place, 1)
        schema = place.schema
        if isinstance(schema, list):
            fitting = (b for b in map(place.inner, schema) if self._fits(b, 1)(self._plain(default, b)))
            return self._default(default, next(fitting, place.inner(schema[0])))
        kind = _get_type_name(schema)
        if kind == "record":
            inner = place.inner
            return {
                f["name"]: self._default(default.get(f["name"], f.get("default")), inner(f["type"]))
                for f in schema["fields"]
            }
        if kind == "array":
            return [self._default(each, place.inner(schema["items"])) for each in default]
        if kind == "map":
            return {key: self._default(each, place.inner(schema["values"])) for key, each in default.items()}
        return self._plain(default, place)

    def _plain(self, default: Any, place: _Place) -> Any:
        kind = _get_type_name(self._resolved(place, 1).schema)
        if kind in ("bytes", "fixed") and isinstance(default, str):
            return default.encode("latin-1")
        return default

    def _to_union(self, source: _Place, target: _Place, where: str, *, has_namesakes: bool = False) -> Project:
        """Choose the branch of the same type, else the first branch that values can be converted to.

        `has_namesakes`: the source is a record of a union with others that have the same name, or none either.
        """
        branches = [self._resolved(target.inner(branch), 1) for branch in _list_branches(target.schema)]
        kind = _get_type_name(source.schema)
        if kind == "record":
            branches = self._choose_records(source, branches, has_namesakes=has_namesakes)
        for branch in sorted(branches, key=lambda b: _get_type_name(b.schema) != kind):
            try:
                return self.between(source, branch, where)
            except ProjectionError:
                if len(branches) == 1:
                    raise
        raise _make_mismatch_error(where, _describe_type(source), "any type of the union there")

    def _choose_records(self, source: _Place, branches: Sequence[_Place], *, has_namesakes: bool) -> list[_Place]:
        """Choose the records that the source may be. Of several with its name, only its fields tell which it is."""
        named = [b for b in branches if _get_type_name(b.schema) == "record" and _has_same_name(source, b)]
        if len(named) < 2 and not has_namesakes:
            return named
        fields = _list_field_names(source)
        alike = [b for b in named if _list_field_names(b) == fields]
        grown = [b for b in named if _list_field_names(b) >= fields or _list_field_names(b) <= fields]
        found = alike or grown
        return found if len(found) == 1 else []

    def _from_union(self, source: _Place, target: _Place, where: str) -> Project:
        branches = [self._resolved(source.inner(branch), 0) for branch in source.schema]
        records = [branch for branch in branches if _get_type_name(branch.schema) == "record"]
        tried: list[tuple[Fits, Project]] = []
        for branch in branches:
            has_namesakes = branch in records and sum(_has_same_name(branch, other) for other in records) > 1
            tried.append((self._fits(branch, 0), self._or_refusal(branch, target, where, has_namesakes=has_namesakes)))

        def choose(value: Any) -> Any:
            # A value may be of several types of its union: then it has to come to the same by each of them.
            found = [convert(value) for fits, convert in tried if fits(value)]
            if not found:
                raise ProjectionError(f"{_name_field(where)} holds {type(value).__name__}, no type of its union")
            if any(type(each) is not type(found[0]) or each != found[0] for each in found[1:]):
                raise ProjectionError(f"{_name_field(where)} may be of several types of its union, which differ there")
            return found[0]

        return choose

    def _or_refusal(self, source: _Place, target: _Place, where: str, *, has_namesakes: bool) -> Project:
        """Return a projection. If the branch cannot be projected, it fails for each value of this branch."""
        try:
            if has_namesakes:
                return self._to_union(source, self._resolved(target, 1), where, has_namesakes=True)
            return self.between(source, target, where)
        except ProjectionError as err:
            said = str(err)

        def refuse(_: Any) -> Any:
            raise ProjectionError(said)

        return refuse

    def _fits(self, place: _Place, side: int) -> Fits:
        """Return a function that tests whether a value may be of this type."""
        place = self._resolved(place, side)
        schema = place.schema
        kind = _get_type_name(place.schema)
        if kind == "record":
            names = {field["name"] for field in schema["fields"]}
            return lambda value: isinstance(value, Mapping) and value.keys() == names
        if kind == "enum":
            return lambda value: value in schema["symbols"]
        if kind == "fixed":
            return lambda value: isinstance(value, bytes) and len(value) == schema["size"]
        return _FITS[kind]


_FITS: dict[str, Fits] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and -(1 << 31) <= value < 1 << 31,
    "long": lambda value: type(value) is int,
    "float": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "double": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "bytes": lambda value: isinstance(value, bytes),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "map": lambda value: isinstance(value, Mapping),
}


def _get_type_name(schema: Any) -> str:
    kind: str = schema if isinstance(schema, str) else "union" if isinstance(schema, list) else schema["type"]
    return kind


def _list_branches(schema: Any) -> Sequence[Any]:
    return schema if isinstance(schema, list) else [schema]


def _list_field_names(place: _Place) -> set[str]:
    return {field["name"] for field in place.schema["fields"]}


def _describe_type(place: _Place) -> str:
    kind = _get_type_name(place.schema)
    return f"{kind} {place.schema['name']}" if kind in ("record", "enum", "fixed") else kind


def _check_meaning(source: Any, target: Any, where: str) -> None:
    """Check that a value of one type stands for the same thing in the other one."""
    here, there = _read_meaning(source), _read_meaning(target)
    if here != there:
        raise _make_mismatch_error(where, *(_describe_meaning(*each) for each in ((source, here), (target, there))))


def _read_meaning(schema: Any) -> dict[str, Any]:
    """Read what a type says of the meaning of its values, beside Avro's own type."""
    if not isinstance(schema, Mapping):
        return {}
    names = ["logicalType"]
    if schema.get("logicalType") == "decimal":
        names += ["precision", "scale"]
    if schema.get("logicalType") not in _CONNECT_LOGICAL and schema["type"] != "enum":
        names += ["connect.name", "connect.parameters"]
    return {name: schema[name] for name in names if schema.get(name)}


def _describe_meaning(schema: Any, meaning: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {value}" for name, value in meaning.items())
    return f"{_get_type_name(schema)} ({said})" if said else _get_type_name(schema)


def _compile_promotion(kind: str, wanted: str, where: str) -> Project:
    if wanted not in PROMOTIONS.get(kind, ()):
        raise _make_mismatch_error(where, kind, wanted)
    if wanted in ("float", "double"):
        return _compile_exact_float(kind, wanted, where)
    if wanted == "bytes":
        return str.encode
    if wanted == "string":
        return _compile_decoding(where)
    return _keep_value


def _compile_exact_float(kind: str, wanted: str, where: str) -> Project:
    layout = struct.Struct("f" if wanted == "float" else "d")

    def convert(value: Any) -> float:
        number = float(value)
        if kind != "float" and layout.unpack(layout.pack(number))[0] != value:
            raise ProjectionError(f"{_name_field(where)} holds {value}, which a {wanted} cannot hold exactly")
        return number

    return convert


def _compile_decoding(where: str) -> Project:
    def decode(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ProjectionError(f"{_name_field(where)} is a string there, and not UTF-8 here: {err}") from err

    return decode


def _compile_enum(target: Mapping[str, Any], where: str) -> Project:
    symbols = {symbol: symbol for symbol in target["symbols"]}

    def convert(value: str) -> str:
        symbol: str | None = symbols.get(value, target.get("default"))
        if symbol is None:
            raise ProjectionError(f"{_name_field(where)} holds {value!r}, no symbol of enum {target['name']} there")
        return symbol

    return convert


def _check_name(source: _Place, target: _Place, where: str) -> None:
    if not _has_same_name(source, target):
        raise _make_mismatch_error(where, _describe_type(source), _describe_type(target))


def _has_same_name(source: _Place, target: _Place) -> bool:
    """Whether the source has a name or an alias of the target. Namespaces do not count, by the specification."""
    aliases = (alias.rpartition(".")[2] for alias in target.schema.get("aliases", ()))
    return _read_given_name(source) in {_read_given_name(target), *aliases}


def _read_given_name(place: _Place) -> str | None:
    """Return the name that somebody gave to a type, None if a converter made it up."""
    schema = place.schema
    if is_made_up_name(read_full_name(schema, place.around)):
        return None
    # A converter numbers a name that another type has taken, and says what the name was.
    name: str = schema.get("connect.name") or schema["name"]
    return name.rpartition(".")[2]


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _make_mismatch_error(where: str, source: str, target: str) -> ProjectionError:
    return ProjectionError(f"{_name_field(where)} is {source} and cannot be made into {target}")


def _name_field(where: str) -> str:
    return f"field {where or '(the whole)'}"


def _keep_value(value: Any) -> Any:
    return value
