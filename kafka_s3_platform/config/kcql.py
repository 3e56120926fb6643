"""Parses KCQL, the language of Lenses' connector files for their topics and objects.

Source: Lenses' stream-reactor, `kafka-connect-query-language` (ConnectorLexer.g4, ConnectorParser.g4).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_PIECE = re.compile(r"`[^`]+`|'[^'\r\n]*'|[=,();]|[^\s=,();`']+|\S")
_QUOTED = re.compile(r"`([^`]+)`|'([^']*)'", re.DOTALL)
_CLAUSES = ("PARTITIONBY", "NOPARTITION", "STOREAS", "PROPERTIES", "BATCH", "LIMIT")
_FORM = (
    "INSERT INTO <target> SELECT * FROM <source> [BATCH = n] [PARTITIONBY ... | NOPARTITION] [STOREAS format]"
    " [LIMIT n] [PROPERTIES('name'=value, ...)]"
)


@dataclass(frozen=True)
class Statement:
    """`INSERT INTO target SELECT * FROM source`. `partition_by` None: the default folders. Empty: no folders."""

    target: str
    source: str
    format: str = "JSON"
    partition_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def parse_statements(text: str) -> list[Statement]:
    """Return the statements of a text. Semicolons separate them.

    Raises:
        ValueError: the text holds no statement, or an unknown one.
    """
    pieces = _PIECE.findall(text)
    ends = [at for at, piece in enumerate(pieces) if piece == ";"]
    parts = [pieces[start:end] for start, end in zip([0, *(at + 1 for at in ends)], [*ends, len(pieces)], strict=True)]
    statements = [_parse_statement(part) for part in parts if part]
    if not statements:
        raise ValueError(f"holds no statement; write {_FORM}")
    return statements


def _parse_statement(pieces: Sequence[str]) -> Statement:
    words = [piece.upper() for piece in pieces]
    if words[:2] != ["INSERT", "INTO"] or "SELECT" not in words or "FROM" not in words[words.index("SELECT") :]:
        raise ValueError(f"{' '.join(pieces)!r} is not understood; write {_FORM}")
    select = words.index("SELECT")
    start = words.index("FROM", select) + 1
    if words[select + 1 : start - 1] != ["*"]:
        raise ValueError(f"only SELECT * is understood, not {' '.join(pieces[select : start - 1])!r}")
    end = next((at for at in range(start, len(words)) if words[at] in _CLAUSES), len(words))
    target, source = _join_name(pieces[2:select]), _join_name(pieces[start:end])
    return Statement(target, source, **_parse_clauses(pieces[end:]))


def _join_name(pieces: Sequence[str]) -> str:
    """Return a bucket and prefix, or a topic. Any part of it may be in backticks or quotes."""
    name = "".join(_strip_quotes(piece) for piece in pieces)
    if not name or re.search(r"[\s=,();`']", name):
        raise ValueError(f"{' '.join(pieces)!r} is no name: {_FORM}")
    return name


def _strip_quotes(piece: str) -> str:
    return _QUOTED.sub(lambda match: match[1] or match[2] or "", piece)


def _parse_clauses(pieces: Sequence[str]) -> dict[str, Any]:
    clauses: dict[str, Any] = {}
    starts = [at for at, piece in enumerate(pieces) if piece.upper() in _CLAUSES]
    for start, end in pairwise([*starts, len(pieces)]):
        rest = pieces[start + 1 : end]
        match pieces[start].upper():
            case "STOREAS":
                clauses["format"] = _take_one(rest, "STOREAS").upper()
            case "NOPARTITION":
                clauses["partition_by"] = ()
            case "PARTITIONBY":
                clauses["partition_by"] = tuple(_strip_quotes(name) for name in "".join(rest).split(","))
            case "PROPERTIES":
                clauses["properties"] = _parse_properties(rest)
    return clauses


def _take_one(pieces: Sequence[str], clause: str) -> str:
    if len(pieces) != 1:
        raise ValueError(f"{clause} {' '.join(pieces)!r} is not understood; write {_FORM}")
    return _strip_quotes(pieces[0])


def _parse_properties(pieces: Sequence[str]) -> dict[str, str]:
    if not pieces or pieces[0] != "(" or pieces[-1] != ")":
        raise ValueError(f"PROPERTIES {' '.join(pieces)!r} is not understood; write PROPERTIES('name'=value, ...)")
    inner = list(pieces[1:-1])
    properties: dict[str, str] = {}
    while inner:
        name, sign, value, comma = [*inner, ","][:4] if len(inner) >= 3 else (*inner, "", "", "")[:4]
        if sign != "=" or comma != ",":
            raise ValueError(f"PROPERTIES {' '.join(pieces)!r} is not understood; write PROPERTIES('name'=value, ...)")
        properties[_strip_quotes(name).casefold()] = _strip_quotes(value)
        inner = inner[4:]
    return properties
