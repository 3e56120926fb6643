"""Values of one schema made into values of another, by Avro's rules of schema resolution.

Apache Avro specification, "Schema Resolution". Unlike it, the branch of a union is found by the value, since decoded
values do not tell their types. `reader` there is `target` here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.converters.avro_schema import definitions, full_name, name_of, space_of
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


def project(objects: Sequence[Any], source: Schema, target: Schema) -> list[Any]:
    """`objects`, which have the schema `source`, as values of `target`. Nulls stay.

    Raises:
        ProjectionError: naming the field.
    """
    convert = _projection(source.text, target.text)
    return [None if value is None else convert(value) for value in objects]


@lru_cache
def _projection(source: str, target: str) -> Project:
    from_, to = Schema(source), Schema(target)
    return _Projections(from_.avro, to.avro).between(_Place(from_.avro, ""), _Place(to.avro, ""), "")


class _Place:
    """A schema where it stands: names without a dot are of `around`."""

    def __init__(self, schema: Any, around: str) -> None:
        self.schema, self.around = schema, around

    def inner(self, schema: Any) -> "_Place":
        return _Place(schema, self.around)


class _Projections:
    """Makes projections between the types of two schemas, each pair of named types once."""

    def __init__(self, source: Any, target: Any) -> None:
        self._known = definitions(source), definitions(target)
        self._records: dict[tuple[str, str], Project] = {}

    def between(self, source: _Place, target: _Place, where: str) -> Project:
        source, target = self._resolved(source, 0), self._resolved(target, 1)
        if isinstance(source.schema, list):
            return self._from_union(source, target, where)
        if isinstance(target.schema, list):
            return self._to_union(source, target, where)
        kind, wanted = _kind(source.schema), _kind(target.schema)
        if kind != wanted:
            return _promotion(kind, wanted, where)
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
        """A name's definition, and what is inside of {"type": ...}."""
        schema = place.schema
        if isinstance(schema, str):
            known = self._known[side]
            schema = known.get(full_name(schema, place.around), known.get(schema, schema))
        if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
            return self._resolved(place.inner(schema["type"]), side)
        is_named = isinstance(schema, Mapping) and "name" in schema
        return _Place(schema, space_of(name_of(schema, place.around)) if is_named else place.around)

    def _named(self, source: _Place, target: _Place, kind: str, where: str) -> Project:
        """Enums and fixed; what has no name stays as it is."""
        if kind == "fixed" and source.schema["size"] != target.schema["size"]:
            raise _impossible(where, f"fixed of {source.schema['size']} bytes", f"of {target.schema['size']}")
        return _enum(source.schema, target.schema, where) if kind == "enum" else _same

    def _record(self, source: _Place, target: _Place, where: str) -> Project:
        if not _same_name(source.schema, target.schema):
            raise _impossible(where, f"record {source.schema['name']}", f"record {target.schema['name']}")
        key = name_of(source.schema, source.around), name_of(target.schema, target.around)
        if key in self._records:
            return self._records[key]
        parts: list[tuple[str, Project]] = []

        def record(value: Any) -> Any:
            return {name: part(value) for name, part in parts}

        self._records[key] = record
        given = {field["name"]: field for field in source.schema["fields"]}
        parts += [
            (
                field["name"],
                self._field(given, source, target.inner(field["type"]), field, _inside(where, field["name"])),
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
        """A default of the target schema as a value."""
        place = self._resolved(place, 1)
        schema = place.schema
        if isinstance(schema, list):
            fitting = (b for b in map(place.inner, schema) if self._fits(b, 1)(self._plain(default, b)))
            return self._default(default, next(fitting, place.inner(schema[0])))
        kind = _kind(schema)
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
        kind = _kind(self._resolved(place, 1).schema)
        return default.encode("latin-1") if kind in ("bytes", "fixed") and isinstance(default, str) else default

    def _to_union(self, source: _Place, target: _Place, where: str) -> Project:
        """The branch of the same type, else the first that it can be made into."""
        branches = [target.inner(branch) for branch in target.schema]
        kind = _kind(source.schema)
        for branch in sorted(branches, key=lambda b: _kind(self._resolved(b, 1).schema) != kind):
            try:
                return self.between(source, branch, where)
            except ProjectionError:
                continue
        raise _impossible(where, kind, "any type of the union there")

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
        """A branch that cannot be projected matters only where a value is of it."""
        try:
            return self.between(source, target, where)
        except ProjectionError as err:
            said = str(err)

        def refuse(_: Any) -> Any:
            raise ProjectionError(said)

        return refuse

    def _fits(self, place: _Place, side: int) -> Fits:
        """Whether a value may be of this type."""
        place = self._resolved(place, side)
        schema, kind = place.schema, _kind(place.schema)
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


def _kind(schema: Any) -> str:
    kind: str = schema if isinstance(schema, str) else "union" if isinstance(schema, list) else schema["type"]
    return kind


def _promotion(kind: str, wanted: str, where: str) -> Project:
    if wanted not in PROMOTIONS.get(kind, ()):
        raise _impossible(where, kind, wanted)
    if wanted in ("float", "double"):
        return float
    if wanted == "bytes":
        return str.encode
    return _text(where) if wanted == "string" else _same


def _text(where: str) -> Project:
    def decode(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ProjectionError(
                f"field {where or '(the whole)'} is a string there, and not UTF-8 here: {err}"
            ) from err

    return decode


def _enum(source: Mapping[str, Any], target: Mapping[str, Any], where: str) -> Project:
    if not _same_name(source, target):
        raise _impossible(where, f"enum {source['name']}", f"enum {target['name']}")
    symbols = {symbol: symbol for symbol in target["symbols"]}

    def convert(value: str) -> str:
        symbol: str | None = symbols.get(value, target.get("default"))
        if symbol is None:
            raise ProjectionError(
                f"field {where or '(the whole)'} holds {value!r}, no symbol of enum {target['name']} there"
            )
        return symbol

    return convert


def _same_name(source: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Without namespaces, as the specification has it, or by an alias of the target."""
    names = {name.rpartition(".")[2] for name in (target["name"], *target.get("aliases", ()))}
    return source["name"].rpartition(".")[2] in names


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _impossible(where: str, source: str, target: str) -> ProjectionError:
    return ProjectionError(f"field {where or '(the whole)'} is {source} and cannot be made into {target}")


def _same(value: Any) -> Any:
    return value
