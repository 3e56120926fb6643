"""Reads connector files into keys and values: JSON (in three forms), Java properties, and resources of Kubernetes."""

import json
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import javaproperties
from pydantic import SecretStr

from kafka_s3_platform.core.errors import ConfigError

ENVELOPE = frozenset({"name", "config", "tasks", "type"})
"""The top-level keys of the documents that Connect's REST interface accepts and returns."""

_CONFIG_OF_KIND = {"KafkaConnector": "config", "Connector": "configs"}
"""The kinds of Kubernetes resources (Strimzi's and Confluent's), each with the place of the connector's keys."""

_OF_SPEC = {"class": "connector.class", "tasksMax": "tasks.max", "taskMax": "tasks.max", "name": "name"}

_PEM = "-----"
"""The start of the first and the last line of a PEM text."""


MAX_BYTES = 1_048_576
"""The size of the largest file that is read, since every process reads all files of the folder."""


@dataclass(frozen=True)
class ConnectorFile:
    """A connector file before its keys are judged. Values are as written, with `${env:NAME}` in them."""

    path: Path
    name: str
    entries: Mapping[str, SecretStr]


def read_connector_file(path: Path) -> ConnectorFile:
    """Read a `.json`, `.yaml`, `.yml` or `.properties` connector file.

    Raises ConfigError if it cannot be read or parsed (with line and column), declares no name or two, or holds a key
    twice or a value other than a string, number or boolean.
    """
    outer = None
    if path.suffix == ".properties":
        entries = read_properties(path)
    else:
        entries, outer = _read_document(path, _parse_json(path) if path.suffix == ".json" else _parse_yaml(path))
    return ConnectorFile(path, _find_name(path, outer, entries.get("name")), entries)


def read_properties(path: Path) -> dict[str, SecretStr]:
    """Read a file by the rules of `java.util.Properties`, as UTF-8 or, if it is not UTF-8, as ISO 8859-1.

    Raises ConfigError if it cannot be read, or holds a malformed Unicode escape, a key twice, or a PEM text over
    several lines.
    """
    return {key: SecretStr(value) for key, (_, value) in _parse_properties(path).items()}


def find_property_lines(path: Path) -> dict[str, int]:
    """Return the line number of each key in a properties file. Raises as `read_properties` does."""
    return {key: line for key, (line, _) in _parse_properties(path).items()}


def _parse_properties(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line and the value of each key in a Java properties file. Raises as `read_properties` does."""
    properties: dict[str, tuple[int, str]] = {}
    line = 1
    try:
        for element in javaproperties.parse(_decode_text(read_regular_file(path))):
            if isinstance(element, javaproperties.KeyValue):
                if element.key.startswith(_PEM):
                    # Before any of its lines becomes a key, which messages would show.
                    raise ConfigError(
                        f"{path}, line {line}: a PEM text over several lines, each of which would be a key. Write it "
                        f"on one line, with \\n where its lines end, or into a file that a key names"
                    )
                if element.key in properties:
                    # The path may lead to a wrong file, whose lines may be secret: the message shows none of them.
                    first, _ = properties[element.key]
                    raise ConfigError(f"{path}, line {line}: the key of line {first} again; keep one")
                properties[element.key] = (line, element.value)
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError:
        raise ConfigError(f"{path}, line {line}: a malformed \\u escape; it takes four hexadecimal digits") from None
    return properties


def _read_document(path: Path, document: Any) -> tuple[dict[str, SecretStr], str | None]:
    """Return the connector's keys of a JSON or YAML document, and the name that stands beside them, if any."""
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a connector file is an object with keys, this one is {type(document).__name__}")
    if "connectorConfiguration" in document:
        # The document that creates a connector of MSK Connect. All else in it concerns the workers there.
        document = {"name": document.get("connectorName"), "config": document["connectorConfiguration"]}
    elif path.suffix != ".json":
        document = _unwrap_resource(path, document)
    config = document.get("config")
    if not isinstance(config, dict):
        return _read_texts(path, document), None
    if unknown := sorted(document.keys() - ENVELOPE):
        raise ConfigError(f"{path}: {', '.join(unknown)} beside `config` has no meaning; move it into `config`")
    outer = document.get("name")
    return _read_texts(path, config), None if outer is None else str(outer)


def _unwrap_resource(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the keys of a Kubernetes resource in the form Connect's REST interface takes.

    All else in it concerns the workers there, except the setting that says if it runs.
    """
    kind = document.get("kind")
    spec = document.get("spec")
    if kind not in _CONFIG_OF_KIND or not isinstance(spec, dict):
        raise ConfigError(f"{path}: no resource of a connector, of kind {' or '.join(_CONFIG_OF_KIND)} with a spec")
    config = spec.get(_CONFIG_OF_KIND[kind])
    if spec.get("state", "running") != "running" or str(spec.get("pause", "false")).casefold() != "false":
        raise ConfigError(f"{path}: its spec says that it does not run; take the file out of this folder, or say so")
    pairs = [*(config if isinstance(config, dict) else {}).items()]
    pairs += [(key, spec[name]) for name, key in _OF_SPEC.items() if name in spec]
    name = document.get("metadata", {}).get("name") if "name" not in spec else None
    return {"name": name, "config": _refuse_twice(path, pairs)}


def _parse_yaml(path: Path) -> Any:
    """Parse a YAML file with all its values as texts. A ConfigError does not quote the fault, which may be secret."""
    import yaml  # connector files of this form are rare

    @cache
    def build(node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return _refuse_twice(path, [(str(key.value), build(value)) for key, value in node.value])
        return node.value if isinstance(node, yaml.ScalarNode) else [build(value) for value in node.value]

    try:
        # Texts as they stand in the file: Connect, too, passes them on as text.
        return build(yaml.compose(_decode_text(read_regular_file(path)), Loader=yaml.BaseLoader))
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # Not what is wrong there: it may be a part of a secret.
        raise ConfigError(f"{path}{where}: invalid YAML") from None
    except (RecursionError, AttributeError):
        raise ConfigError(f"{path}: invalid YAML: empty, or nested too deep for any connector file") from None


def _parse_json(path: Path) -> Any:
    """Parse a JSON file with its numbers as texts. A ConfigError has line and column."""

    def refuse_constant(name: str) -> Any:
        raise ConfigError(f"{path}: {name} is no JSON value")

    try:
        # Numbers keep the digits that the file has: Connect, too, passes them on as text.
        return json.loads(
            _decode_text(read_regular_file(path)),
            object_pairs_hook=partial(_refuse_twice, path),
            parse_int=str,
            parse_float=str,
            parse_constant=refuse_constant,
        )
    except json.JSONDecodeError as err:
        # Not chained: the error of the decoder holds the whole document, with its secrets.
        where = f"{path}, line {err.lineno}, column {err.colno}"
        raise ConfigError(f"{where}: invalid JSON: {err.msg}") from None
    except RecursionError:
        raise ConfigError(f"{path}: invalid JSON: nested too deep for any connector file") from None


def _read_texts(path: Path, config: Mapping[str, Any]) -> dict[str, SecretStr]:
    """Return the values of a connector's keys as texts. Raise ConfigError for a list, an object or null."""
    texts = {}
    for key, value in config.items():
        if not isinstance(value, bool | str):
            raise ConfigError(
                f"{path}: the value of {key} is no string, number or boolean; leave the key out to unset it"
            )
        texts[key] = SecretStr(value if isinstance(value, str) else str(value).lower())
    return texts


def _refuse_twice(path: Path, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raise ConfigError if two have the same key."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ConfigError(f"{path}: the key {key} is set twice; keep one")
        entries[key] = value
    return entries


def _find_name(path: Path, outer: str | None, inner: SecretStr | None) -> str:
    """Return the connector's name: `outer` is beside its keys, `inner` among them. Raise ConfigError if it has none."""
    names = {name.strip() for name in (outer, inner.get_secret_value() if inner else None) if name}
    if not names:
        raise ConfigError(f"{path}: the connector has no name; set `name`")
    if len(names) == 2:
        raise ConfigError(
            f"{path}: two names, {' and '.join(sorted(names))}; `name` and `config.name` must be the same"
        )
    return names.pop()


def _decode_text(content: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark, or else ISO 8859-1, as old properties files have it."""
    try:
        # Some editors begin a file with a byte order mark.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file of `MAX_BYTES` at most. Raise ConfigError if it cannot be read."""
    try:
        status = path.stat()
        # reading a pipe would wait for a writer, and with it all connectors
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: cannot be read: it is no regular file; put one there, or take it away")
        if status.st_size > MAX_BYTES:
            raise ConfigError(f"{path}: has {status.st_size:,} bytes; {MAX_BYTES:,} at most are read")
        return path.read_bytes()
    except OSError as err:
        advice = "let this user read it" if isinstance(err, PermissionError) else "put it there, or take its link away"
        raise ConfigError(f"{path}: cannot be read: {err.strerror}; {advice}") from err
