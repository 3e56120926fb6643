"""One Avro schema with every kind of type that a registry's other formats can hold, and values of it."""

import json
from typing import Any

from hypothesis import strategies as st

from kafka_s3_platform.core.model.connect import Schema

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "What was bought.",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int", "default": 7},
        {"name": "total", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "discount", "type": ["long", "null"], "default": 5},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "stock", "type": {"type": "map", "values": "long"}},
        {
            "name": "line",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "next", "type": ["null", "Line"], "default": None},
                    ],
                },
            ],
            "default": None,
        },
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "by_name", "type": {"type": "map", "values": "Line"}},
    ],
}
ORDER_SCHEMA = Schema(json.dumps(ORDER))

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_DAY_MS = 86_400_000
_LINES = st.recursive(st.none(), lambda inner: st.fixed_dictionaries({"sku": _TEXT, "next": inner}), max_leaves=3)
_LINE = _LINES.filter(bool)
_LONG = st.integers(-(2**63), 2**63 - 1)
_TIMES = st.integers(-62_135_596_800_000, 253_402_300_799_999)


def _unscaled(number: int) -> bytes:
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


AN_ORDER: dict[str, Any] = {
    "id": "x",
    "count": -1,
    "total": 2**62,
    "paid": True,
    "weight": 0.1,
    "raw": b"\x00\xff",
    "price": b"\xff",
    "day": -1,
    "hour": 3_600_001,
    "at": -1,
    "state": "DONE",
    "note": "",
    "discount": None,
    "seen": 1,
    "tags": ["", "a"],
    "stock": {"a": -5},
    "line": {"sku": "s", "next": {"sku": "t", "next": None}},
    "lines": [{"sku": "u", "next": None}],
    "by_name": {"v": {"sku": "v", "next": None}},
}

ORDERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "id": _TEXT,
        "count": st.integers(-(2**31), 2**31 - 1),
        "total": _LONG,
        "paid": st.booleans(),
        "weight": st.floats(allow_nan=False, allow_infinity=False),
        "raw": st.binary(max_size=5),
        "price": st.integers(-(10**19), 10**19).map(_unscaled),
        "day": st.integers(-719_162, 2_932_896),
        "hour": st.integers(0, _DAY_MS - 1),
        "at": _TIMES,
        "state": st.sampled_from(["NEW", "DONE"]),
        "note": st.none() | _TEXT,
        "discount": st.none() | _LONG,
        "seen": st.none() | _TIMES,
        "tags": st.lists(_TEXT, max_size=3),
        "stock": st.dictionaries(_TEXT, _LONG, max_size=3),
        "line": st.none() | _LINE,
        "lines": st.lists(_LINE, max_size=2),
        "by_name": st.dictionaries(_TEXT, _LINE, max_size=2),
    }
)
