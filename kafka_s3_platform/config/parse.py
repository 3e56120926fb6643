"""Connect-format files as flat keys and values: JSON (two forms) and Java properties."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import javaproperties
from pydantic import SecretStr

from kafka_s3_platform.errors import ConfigError

ENVELOPE = frozenset({"name", "config", "tasks", "type"})
"""Top-level keys of what Connect's REST interface takes and gives."""

_PEM = "-----"
"""How the first and the last line of a PEM text begin."""


@dataclass(frozen=True)
class ConnectorFile:
    """One connector file before any key of it is judged. Values are as written, `${env:NAME}` included."""

    path: Path
    name: str
    entries: Mapping[str, SecretStr]


def read_connector_file(path: Path) -> ConnectorFile:
    """Reads a `.json` or `.properties` connector file.

    Raises:
        ConfigError: the file cannot be read or parsed (JSON: with line and column), holds a key twice, holds a value
            that is no string, number or boolean, or declares no name or two.
    """
    if path.suffix == ".properties":
        entries, outer = read_properties(path), None
    else:
        entries, outer = _read_json(path)
    return ConnectorFile(path, _name(path, outer, entries.get("name")), entries)


def read_properties(path: Path) -> dict[str, SecretStr]:
    """Reads a file by the rules of `java.util.Properties`, as UTF-8 or, where it is not, as ISO 8859-1.

    Raises:
        ConfigError: the file cannot be read, holds a malformed Unicode escape, a key twice, or lines of a PEM text.
    """
    return {key: SecretStr(value) for key, (_, value) in _properties(path).items()}


def property_lines(path: Path) -> dict[str, int]:
    """The line that each key of a properties file is on. Raises as `read_properties`."""
    return {key: line for key, (line, _) in _properties(path).items()}


def _properties(path: Path) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    line = 1
    try:
        for element in javaproperties.parse(_decode(_read(path))):
            if isinstance(element, javaproperties.KeyValue):
                if element.key.startswith(_PEM):
                    # Before any line of it is taken for a key, and told.
                    raise ConfigError(
                        f"{path}, line {line}: a PEM text over several lines, each of which would be a key. Write it "
                        f"on one line, with \\n where its lines end, or into a file that a key names"
                    )
                if element.key in found:
                    # The file may be another than was meant: of what it holds nothing is told.
                    raise ConfigError(f"{path}, line {line}: the key of line {found[element.key][0]} again; keep one")
                found[element.key] = (line, element.value)
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError:
        raise ConfigError(f"{path}, line {line}: a malformed \\u escape; it takes four hexadecimal digits") from None
    return found


def _read_json(path: Path) -> tuple[dict[str, SecretStr], str | None]:
    document = _parse_json(path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a connector file is a JSON object, this one is {type(document).__name__}")
    config = document.get("config")
    if not isinstance(config, dict):
        return _texts(path, document), None
    if unknown := sorted(document.keys() - ENVELOPE):
        raise ConfigError(f"{path}: {', '.join(unknown)} beside `config` has no meaning; move it into `config`")
    outer = document.get("name")
    return _texts(path, config), None if outer is None else str(outer)


def _parse_json(path: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return _unique(pairs, f"{path}")

    def no_constant(name: str) -> Any:
        raise ConfigError(f"{path}: {name} is no JSON value")

    try:
        # Numbers keep the digits they were written with: Connect, too, hands them on as text.
        return json.loads(
            _decode(_read(path)),
            object_pairs_hook=unique,
            parse_int=str,
            parse_float=str,
            parse_constant=no_constant,
        )
    except json.JSONDecodeError as err:
        # Not chained: the decoder's error carries the whole document, secrets included.
        where = f"{path}, line {err.lineno}, column {err.colno}"
        raise ConfigError(f"{where}: invalid JSON: {err.msg}") from None
    except RecursionError:
        raise ConfigError(f"{path}: invalid JSON: nested too deep for any connector file") from None


def _texts(path: Path, config: Mapping[str, Any]) -> dict[str, SecretStr]:
    return {key: _text(path, key, value) for key, value in config.items()}


def _text(path: Path, key: str, value: Any) -> SecretStr:
    if isinstance(value, bool):
        return SecretStr("true" if value else "false")
    if isinstance(value, str):
        return SecretStr(value)
    raise ConfigError(f"{path}: the value of {key} is no string, number or boolean; leave the key out to unset it")


def _unique(pairs: Iterable[tuple[str, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"{where}: the key {key} is set twice; keep one")
        found[key] = value
    return found


def _name(path: Path, outer: str | None, inner: SecretStr | None) -> str:
    names = {name.strip() for name in (outer, inner.get_secret_value() if inner else None) if name}
    if not names:
        raise ConfigError(f"{path}: the connector has no name; set `name`")
    if len(names) == 2:
        raise ConfigError(
            f"{path}: two names, {' and '.join(sorted(names))}; `name` and `config.name` must be the same"
        )
    return names.pop()


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err
