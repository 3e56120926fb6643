"""Whether two readings of a value say the same. `check_*` raise AssertionError with the place where they do not.

The first reading is that of the reference decoder, with the branch of each union. The second one is what another tool
reads in the archive: Avro data, JSON, or columns.
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from kafka_s3_platform_tests.meaning.avro_reference import Branch, Types

PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_EXACT = Context(prec=1_000)
_TIMES = {
    ("int", "date"): ("date32", None, None),
    ("int", "time-millis"): ("time32", "ms", None),
    ("long", "time-micros"): ("time64", "us", None),
    **{
        ("long", f"{kind}-{name}"): ("timestamp", unit, zone)
        for kind, zone in (("timestamp", "UTC"), ("local-timestamp", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
"""What a column of a logical type is called, and its unit and zone."""


class AvroAgreement:
    """Compares values of one schema with those of another, by Avro's rules of schema resolution.

    `inserted`: a field that the found root has besides. `renews_decimals`: decimals are numbers on the way, which are
    written in as few bytes as they need.
    """

    def __init__(
        self, given: Types, found: Types, *, inserted: str | None = None, renews_decimals: bool = False
    ) -> None:
        self._given, self._found = given, found
        self._inserted, self._renews = inserted, renews_decimals

    def check(self, value: Any, other: Any) -> None:
        root = self._found.root
        if self._inserted is not None:
            record = other.value if isinstance(root, list) else other
            root = self._remove_inserted(root[other.index] if isinstance(root, list) else root, record)
            other = record
        self._check(value, self._given.root, other, root, "")

    def _remove_inserted(self, node: Any, record: Any) -> Any:
        """The type of the root without the field that was inserted, which the record has to have."""
        *fields, last = self._found.at(node)["fields"]
        assert (last["name"], record[self._inserted]) == (self._inserted, Branch(1, "x"))
        return {**self._found.at(node), "fields": fields}

    def _check(self, value: Any, node: Any, other: Any, target: Any, where: str) -> None:
        node, target = self._given.at(node), self._found.at(target)
        if isinstance(node, list):
            self._check(value.value, node[value.index], other, target, where)
        elif isinstance(target, list):
            branch = self._found.at(target[other.index])
            self._check_branch(node, branch, [self._found.at(each) for each in target], where)
            self._check(value, node, other.value, branch, where)
        elif node["type"] == target["type"] == "record":
            self._check_record(value, node, other, target, where)
        elif node["type"] == target["type"]:
            self._check_same(value, node, other, target, where)
        else:
            assert target["type"] in PROMOTED.get(node["type"], ()), f"{where}: {node['type']} became {target['type']}"
            plain = [each.encode() if isinstance(each, str) else each for each in (value, other)]
            assert _is_same(*plain), f"{where}: {value!r} became {other!r}"

    @staticmethod
    def _check_branch(node: Any, branch: Any, others: Sequence[Any], where: str) -> None:
        """Of several types that a value may become, the one of its own name or type is meant."""
        mine = (node["type"], node.get("name"))
        if mine in [(each["type"], each.get("name")) for each in others]:
            assert (branch["type"], branch.get("name")) == mine, f"{where}: {mine} became {branch}"

    def _check_record(self, value: Any, node: Any, other: Any, target: Any, where: str) -> None:
        check_name(node, target, where)
        fields = {field["name"]: field for field in node["fields"]}
        for field in target["fields"]:
            inside = f"{where}.{field['name']}"
            name = next((n for n in (field["name"], *field.get("aliases", ())) if n in fields), None)
            if name is None:
                assert "default" in field, f"{inside}: it is nowhere from"
                default = read_default(self._found, field["type"], field["default"])
                assert other[field["name"]] == default, f"{inside}: {default!r} became {other[field['name']]!r}"
            else:
                self._check(value[name], fields[name]["type"], other[field["name"]], field["type"], inside)

    def _check_same(self, value: Any, node: Any, other: Any, target: Any, where: str) -> None:
        match node["type"]:
            case "array":
                assert len(value) == len(other), f"{where}: {value!r} became {other!r}"
                for at, (each, one) in enumerate(zip(value, other, strict=True)):
                    self._check(each, node["items"], one, target["items"], f"{where}[{at}]")
            case "map":
                assert value.keys() == other.keys(), f"{where}: {value!r} became {other!r}"
                for key, each in value.items():
                    self._check(each, node["values"], other[key], target["values"], f"{where}[{key!r}]")
            case "enum":
                check_name(node, target, where)
                wanted = value if value in target["symbols"] else target.get("default")
                assert other == wanted, f"{where}: {value!r} became {other!r}"
            case _ if self._renews and isinstance(value, bytes) and node.get("logicalType") == "decimal":
                wanted, read = (int.from_bytes(each, "big", signed=True) for each in (value, other))
                assert wanted == read, f"{where}: {value!r} became {other!r}"
            case _:
                check_name(node, target, where)
                assert _is_same(value, other), f"{where}: {value!r} became {other!r}"


def check_name(node: Any, target: Any, where: str) -> None:
    """Check that a named type is the one it was: by its name, or an alias. Avro compares names without namespaces."""
    if "name" in node:
        names = {each.rpartition(".")[2] for each in (target["name"], *target["aliases"])}
        assert node["name"].rpartition(".")[2] in names, f"{where}: {node['name']} became {target['name']}"


def read_default(types: Types, node: Any, default: Any) -> Any:
    """Read the default of a field, which is JSON: that of a union is of its first branch."""
    node = types.at(node)
    if isinstance(node, list):
        return Branch(0, read_default(types, node[0], default))
    match node["type"]:
        case "array":
            return [read_default(types, node["items"], each) for each in default]
        case "map":
            return {key: read_default(types, node["values"], each) for key, each in default.items()}
        case "record":
            named = {f["name"]: default[f["name"]] if f["name"] in default else f["default"] for f in node["fields"]}
            return {f["name"]: read_default(types, f["type"], named[f["name"]]) for f in node["fields"]}
        case "bytes" | "fixed":
            return default.encode("latin-1")
    return default


def check_json(types: Types, node: Any, value: Any, found: Any, where: str = "") -> None:
    """Compare a value with JSON as Connect's JsonConverter writes it, where a union has a member for each type."""
    node = types.at(node)
    if isinstance(node, list):
        _check_json_union(types, node, value, found, where)
        return
    match node["type"]:
        case "array":
            assert isinstance(found, list), f"{where}: {value!r} became {found!r}"
            assert len(found) == len(value), f"{where}: {value!r} became {found!r}"
            for at, (each, one) in enumerate(zip(value, found, strict=True)):
                check_json(types, node["items"], each, one, f"{where}[{at}]")
        case "map":
            assert isinstance(found, dict), f"{where}: {value!r} became {found!r}"
            assert found.keys() == value.keys(), f"{where}: {value!r} became {found!r}"
            for key, each in value.items():
                check_json(types, node["values"], each, found[key], f"{where}[{key!r}]")
        case "record":
            names = [f["name"] for f in node["fields"]]
            assert isinstance(found, dict), f"{where}: {names} became {found!r}"
            assert list(found) == names, f"{where}: {names} became {found!r}"
            for field in node["fields"]:
                check_json(types, field["type"], value[field["name"]], found[field["name"]], f"{where}.{field['name']}")
        case _:
            assert _is_same_json(value, found, node["type"]), f"{where}: {value!r} became {found!r}"


def _check_json_union(types: Types, union: Sequence[Any], value: Branch, found: Any, where: str) -> None:
    branch = types.at(union[value.index])
    others = [each for each in map(types.at, union) if each != {"type": "null"}]
    if branch == {"type": "null"}:
        assert found is None, f"{where}: null became {found!r}"
    elif len(others) == 1:
        check_json(types, branch, value.value, found, where)
    else:
        assert isinstance(found, dict), f"{where}: {found!r} is no union of {others}"
        assert len(found) == len(others), f"{where}: {found!r} is no union of {others}"
        name, held = find_member({name: v for name, v in found.items() if v is not None}, where)
        of = branch.get("name", branch["type"])
        # A null where the type is null alone cannot be told from the others, which are null too.
        assert f".{of}".endswith(f".{name}"), f"{where}: {of} became {name}"
        same = [each for each in others if f".{each.get('name', each['type'])}".endswith(f".{name}")]
        assert len(same) == 1 or name == of, f"{where}: {name} may be any of {same}"
        check_json(types, branch, value.value, held, f"{where}<{name}>")


def find_member(members: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """Find the only member of a union that is not null."""
    assert len(members) == 1, f"{where}: of a union, {len(members)} members are there: {members}"
    return next(iter(members.items()))


def _is_same_json(value: Any, found: Any, kind: str) -> bool:
    if kind in ("bytes", "fixed"):
        return isinstance(found, str) and bool(base64.b64decode(found, validate=True) == value)
    if kind in ("float", "double"):
        if not math.isfinite(value):
            return bool(found == {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN"))
        if type(found) not in (int, float):
            return False
        return _is_same(value, float(found) if kind == "double" else _round(found))
    return type(value) is type(found) and bool(value == found)


def check_column(types: Types, node: Any, value: Any, found: pa.Scalar, where: str = "") -> None:
    """Compare a value with a value of a column, as pyarrow reads it."""
    node = types.at(node)
    if isinstance(node, list):
        _check_column_union(types, node, value, found, where)
        return
    assert found.is_valid or value is None, f"{where}: {value!r} became null"
    match node["type"]:
        case "array":
            assert len(found.values) == len(value), f"{where}: {value!r} became {found!r}"
            for at, each in enumerate(value):
                check_column(types, node["items"], each, found.values[at], f"{where}[{at}]")
        case "map":
            entries = {entry["key"].as_py(): entry["value"] for entry in found.values}
            assert entries.keys() == value.keys(), f"{where}: {value!r} became {found!r}"
            for key, each in value.items():
                check_column(types, node["values"], each, entries[key], f"{where}[{key!r}]")
        case "record":
            # A field that is always null has no column.
            names = [f["name"] for f in node["fields"]]
            assert [f.name for f in found.type] == names, f"{where}: {names} became {found.type}"
            for field in node["fields"]:
                check_column(
                    types, field["type"], value[field["name"]], found[field["name"]], f"{where}.{field['name']}"
                )
        case _:
            _check_scalar(node, value, found, where)


def _check_column_union(types: Types, union: Sequence[Any], value: Branch, found: pa.Scalar, where: str) -> None:
    others = [at for at, each in enumerate(union) if types.at(each) != {"type": "null"}]
    if value.index not in others:
        assert not found.is_valid, f"{where}: null became {found!r}"
    elif len(others) == 1:
        check_column(types, union[value.index], value.value, found, where)
    else:
        assert found.is_valid, f"{where}: {value!r} became null"
        members = {field.name: found[field.name] for field in found.type if found[field.name].is_valid}
        name, held = find_member(members, where)
        assert name == f"member{others.index(value.index)}", f"{where}: {value!r} became {name}"
        check_column(types, union[value.index], value.value, held, f"{where}<{name}>")


def _check_scalar(node: Mapping[str, Any], value: Any, found: pa.Scalar, where: str) -> None:
    kind, arrow = node["type"], found.type
    if pa.types.is_decimal(arrow):
        assert (node.get("logicalType"), arrow.scale) == ("decimal", node.get("scale", 0)), f"{where}: {arrow}"
        wanted = _EXACT.scaleb(Decimal(int.from_bytes(value, "big", signed=True)), -arrow.scale)
        assert found.as_py() == wanted, f"{where}: {wanted} became {found!r}"
        return
    if pa.types.is_temporal(arrow):
        name = str(arrow).partition("[")[0]
        unit = None if name == "date32" else arrow.unit
        meant = _TIMES.get((kind, str(node.get("logicalType"))))
        assert (name, unit, getattr(arrow, "tz", None)) == meant, f"{where}: {node} became {arrow}"
        assert found.value == value, f"{where}: {value!r} became {found.value!r}"
        return
    assert (kind, node.get("logicalType")) not in _TIMES, f"{where}: {node} became {arrow}"
    assert _is_same(value, found.as_py()), f"{where}: {value!r} became {found!r}"


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values are the same, bit for bit, where numbers may be promoted."""
    if isinstance(value, float) or isinstance(other, float):
        if type(value) not in (int, float) or type(other) not in (int, float):
            return False
        if isinstance(value, float) and math.isnan(value):
            return isinstance(other, float) and math.isnan(other)
        return value == other and math.copysign(1, value) == math.copysign(1, other)
    return type(value) is type(other) and bool(value == other)


def _round(number: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found
