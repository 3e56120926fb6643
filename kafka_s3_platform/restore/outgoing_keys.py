"""What becomes of records on their way out, in Connect's keys: those that a source connector has after its format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kafka_s3_platform.config.classes import CONVERTER_CLASS
from kafka_s3_platform.config.converter_options import converter_settings
from kafka_s3_platform.config.parse import property_lines, read_properties
from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.config.sheet import substitute
from kafka_s3_platform.config.table import nearest
from kafka_s3_platform.config.transform_catalogue import parse_transforms
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.restore.request import Outgoing

STEPS = ("transforms", "predicates")
CONVERTERS = ("key.converter", "value.converter")
REGISTRY = "schema.registry."


def read_outgoing_file(path: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The keys of a properties file, `${env:NAME}` replaced.

    Raises:
        ConfigError: it cannot be read, names a variable that is not set, or holds something else.
    """
    entries = read_properties(path)
    if unknown := [name for name in entries if not _is_key(name)]:
        # The file may be another than was meant: what is no key is a line of it.
        line = property_lines(path)[unknown[0]]
        raise ConfigError(f"{path}, line {line}: {_no_key(unknown[0])}")
    try:
        return {name: substitute(value.get_secret_value(), env).strip() for name, value in entries.items()}
    except ValueError as err:
        raise ConfigError(f"{path}: {err}") from err


def step_of(name: str) -> str | None:
    """The transform or predicate that a key belongs to, as `transforms.mask`; None of another key."""
    kind, _, rest = name.partition(".")
    return f"{kind}.{rest.partition('.')[0]}" if kind in STEPS and rest else None


def outgoing(
    entries: Mapping[str, str],
    *,
    partitioning: str = "source",
    provenance_headers: bool = False,
    map_schema_ids: bool = False,
) -> Outgoing:
    """What `transforms`, `predicates`, `key.converter`, `value.converter` and `schema.registry.*` say of the target.

    The registry is that of the target: converters take it where they name none of their own.

    Raises:
        ConfigError: a key is unknown, or its value cannot be used; names the key.
    """
    for name in entries:
        if not _is_key(name):
            raise ConfigError(f"{name}: {_no_key(name)}")
    try:
        steps = parse_transforms({name: value for name, value in entries.items() if name.startswith(STEPS)})
    except ValueError as err:
        raise ConfigError(str(err)) from err
    return Outgoing(
        partitioning=partitioning,
        provenance_headers=provenance_headers,
        transforms=steps,
        key=_converter(entries, "key"),
        value=_converter(entries, "value"),
        map_schema_ids=map_schema_ids,
        target_registry=_registry(entries),
    )


def _is_key(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in STEPS or name.startswith((*CONVERTERS, REGISTRY))


def _no_key(name: str) -> str:
    near = nearest(name, (*STEPS, *CONVERTERS, f"{REGISTRY}url"))
    return f"no key of what becomes of records{f'; did you mean {near}?' if near else ''}"


def _converter(entries: Mapping[str, str], side: Literal["key", "value"]) -> ConverterSettings | None:
    name, prefix = f"{side}.converter", f"{side}.converter."
    if name not in entries:
        return None
    own = {key.removeprefix(prefix): value for key, value in entries.items() if key.startswith(prefix)}
    try:
        return _settings(prefix, CONVERTER_CLASS(entries[name]), {**_shared(entries), **own})
    except ValueError as err:
        raise ConfigError(f"{name}: {err}") from err


def _registry(entries: Mapping[str, str]) -> RegistrySettings | None:
    shared = _shared(entries)
    return _settings("", "AVRO", shared).registry if shared else None


def _shared(entries: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in entries.items() if name.startswith(REGISTRY)}


def _settings(prefix: str, format_name: str, options: Mapping[str, str]) -> ConverterSettings:
    found, outcome = converter_settings(format_name, options, schemas_enable=True)
    if outcome.refused:
        raise ConfigError("; ".join(f"{prefix}{name}: {reason}" for name, reason in outcome.refused.items()))
    return found
