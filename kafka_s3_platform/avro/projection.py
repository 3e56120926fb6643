"""Converts values of one schema to values of another, by Avro's rules of schema resolution.

Source: Apache Avro specification, "Schema Resolution". One difference: the branch of a union is found by the value,
because decoded values do not tell their branch. `target` is the specification's reader's schema.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.avro.schema import collect_definitions, qualify_name, read_full_name, read_namespace
from kafka_s3_platform.errors import ProjectionError
from kafka_s3_platform.model.connect import Schema

Project = Callable[[Any], Any]
Fits = Callable[[Any], bool]

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def project_values(objects: Sequence[Any], source: Schema, target: Schema) -> list[Any]:
    """Convert `objects` of the schema `source` to values of `target`. Nulls stay.

    Raises:
        ProjectionError: naming the field.
    """
    convert = _compile_projection(source.text, target.text)
    return [None if value is None else convert(value) for value in objects]


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

    def between(self, source: _Place, target: _Place, where: str) -> Project:
        source = self._resolved(source, 0)
        target = self._resolved(target, 1)
        if isinstance(source.schema, list):
            return self._from_union(source, target, where)
        if isinstance(target.schema, list):
            return self._to_union(source, target, where)
        kind = _get_type_name(source.schema)
        wanted = _get_type_name(target.schema)
        if kind != wanted:
            return _compile_promotion(kind, wanted, where)
        if kind == "record":
            return self._record(source, target, where)
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
        if kind == "fixed" and source.schema["size"] != target.schema["size"]:
            raise _make_mismatch_error(where, f"fixed of {source.schema['size']} bytes", f"of {target.schema['size']}")
        if kind == "enum":
            return _compile_enum(source.schema, target.schema, where)
        return _keep_value

    def _record(self, source: _Place, target: _Place, where: str) -> Project:
        if not _has_same_name(source.schema, target.schema):
            raise _make_mismatch_error(where, f"record {source.schema['name']}", f"record {target.schema['name']}")
        key = read_full_name(source.schema, source.around), read_full_name(target.schema, target.around)
        if key in self._records:
            return self._records[key]
        parts: list[tuple[str, Project]] = []

        def record(value: Any) -> Any:
            return {name: part(value) for name, part in parts}

        # Known before its fields are compiled: a record may contain itself.
        self._records[key] = record
        given = {field["name"]: field for field in source.schema["fields"]}
        parts += [
            (
                field["name"],
                self._field(given, source, target.inner(field["type"]), field, _join_path(where, field["name"])),
            )
            for field in target.schema["fields"]
        ]
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

    def _to_union(self, source: _Place, target: _Place, where: str) -> Project:
        """Choose the branch of the same type, else the first branch that values can be converted to."""
        branches = [target.inner(branch) for branch in target.schema]
        kind = _get_type_name(source.schema)
        for branch in sorted(branches, key=lambda b: _get_type_name(self._resolved(b, 1).schema) != kind):
            try:
                return self.between(source, branch, where)
            except ProjectionError:
                continue
        raise _make_mismatch_error(where, kind, "any type of the union there")

    def _from_union(self, source: _Place, target: _Place, where: str) -> Project:
        tried = [
            (self._fits(branch, 0), self._or_refusal(branch, target, where))
            for branch in map(source.inner, source.schema)
        ]

        def choose(value: Any) -> Any:
            for fits, convert in tried:
                if fits(value):
                    return convert(value)
            raise ProjectionError(f"field {where or '(the whole)'} holds {type(value).__name__}, no type of its union")

        return choose

    def _or_refusal(self, source: _Place, target: _Place, where: str) -> Project:
        """Return a projection. If the branch cannot be projected, it fails for each value of this branch."""
        try:
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


def _compile_promotion(kind: str, wanted: str, where: str) -> Project:
    if wanted not in PROMOTIONS.get(kind, ()):
        raise _make_mismatch_error(where, kind, wanted)
    if wanted in ("float", "double"):
        return float
    if wanted == "bytes":
        return str.encode
    if wanted == "string":
        return _compile_decoding(where)
    return _keep_value


def _compile_decoding(where: str) -> Project:
    def decode(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ProjectionError(
                f"field {where or '(the whole)'} is a string there, and not UTF-8 here: {err}"
            ) from err

    return decode


def _compile_enum(source: Mapping[str, Any], target: Mapping[str, Any], where: str) -> Project:
    if not _has_same_name(source, target):
        raise _make_mismatch_error(where, f"enum {source['name']}", f"enum {target['name']}")
    symbols = {symbol: symbol for symbol in target["symbols"]}

    def convert(value: str) -> str:
        symbol: str | None = symbols.get(value, target.get("default"))
        if symbol is None:
            raise ProjectionError(
                f"field {where or '(the whole)'} holds {value!r}, no symbol of enum {target['name']} there"
            )
        return symbol

    return convert


def _has_same_name(source: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Whether the source has a name or an alias of the target. Namespaces do not count, by the specification."""
    names = {name.rpartition(".")[2] for name in (target["name"], *target.get("aliases", ()))}
    return source["name"].rpartition(".")[2] in names


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _make_mismatch_error(where: str, source: str, target: str) -> ProjectionError:
    return ProjectionError(f"field {where or '(the whole)'} is {source} and cannot be made into {target}")


def _keep_value(value: Any) -> Any:
    return value
