"""Collects what is said of keys without meaning: in the tables of keys, and where the code judges a key by others."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_s3_platform.connect.config
from kafka_s3_platform.connect.config.keys.clients import WITHOUT_MEANING_PROPERTIES
from kafka_s3_platform.connect.config.keys.converters import OPTION_KEYS
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.mapping import ALL_KEYS
from kafka_s3_platform.connect.config.worker import WORKER_WITHOUT_MEANING_KEYS

TABLES = (*ALL_KEYS, *OPTION_KEYS, *WITHOUT_MEANING_PROPERTIES, *WORKER_WITHOUT_MEANING_KEYS)
_ROOT = Path(kafka_s3_platform.connect.config.__file__).parent
_REASONS = {"ignore_if_set": 1, "ignore": 1, "_ignore_converter": 2}
"""The functions that say why a key has no meaning, and the argument that says it."""


def list_sentences() -> set[str]:
    """Every sentence. `{}` is what depends on the file."""
    written = {key.doc for key in TABLES if key.support is Support.WITHOUT_MEANING}
    return written | {sentence for path in _ROOT.rglob("*.py") for sentence in _judgements(path)}


def _judgements(path: Path) -> Iterator[str]:
    module = importlib.import_module(".".join(path.relative_to(_ROOT.parents[2]).with_suffix("").parts))
    for node in ast.walk(ast.parse(path.read_text())):
        said = _reason(node)
        if said is not None:
            yield from _sentences(said, vars(module))


def _reason(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args):
            at = _REASONS.get(name, len(args))
            return args[at] if at < len(args) else None
    return None


def _sentences(said: ast.expr, names: dict[str, Any]) -> Iterator[str]:
    """What an expression says. Nothing: it hands on what another place says."""
    match said:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if isinstance(names.get(name), str):
            yield names[name]
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _sentences(body, names)
            yield from _sentences(orelse, names)
