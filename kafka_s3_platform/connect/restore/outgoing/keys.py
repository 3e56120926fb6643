"""Parses the changes of records before they are sent, from keys as in a source connector's file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kafka_s3_platform.connect.config.config_providers import replace_variables
from kafka_s3_platform.connect.config.keys.converters import is_registry_option, read_converter
from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.connect.config.keys.values import CONVERTER_CLASS
from kafka_s3_platform.core.config.parse import find_property_lines, read_properties
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.text import find_nearest

STEPS = ("transforms", "predicates")
CONVERTERS = ("key.converter", "value.converter")
REGISTRY = "schema.registry."
_REGISTERED = {"auto.register.schemas": "true", "use.latest.version": "false", "use.schema.id": "-1"}


def read_outgoing_file(path: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Read the keys of a properties file, and replace their variables.

    Raises:
        ConfigError: the file cannot be read, names a missing variable, or has another key.
    """
    entries = read_properties(path)
    if unknown := [name for name in entries if not _is_key(name)]:
        # It may be the wrong file, so the message names the line.
        line = find_property_lines(path)[unknown[0]]
        raise ConfigError(f"{path}, line {line}: {_explain_unknown(unknown[0])}")
    return replace_variables(path, entries, env)


def read_outgoing(file: Path | None, entries: Mapping[str, str], env: Mapping[str, str]) -> Outgoing:
    """Return the changes of records set by a properties file and by a run's `entries`. The latter take precedence.

    Raises:
        ConfigError: a key cannot be used, or only the file may set it.
    """
    entries_of_file = {} if file is None else read_outgoing_file(file, env)
    _refuse_trusted(entries, entries_of_file)
    return parse_outgoing({**entries_of_file, **entries})


def _refuse_trusted(entries_of_run: Mapping[str, str], entries: Mapping[str, str]) -> None:
    """Refuse keys that only the file may set, so a run cannot send the file's secrets to another place."""
    steps = {find_step(name) for name in entries} - {None}
    for name in entries_of_run:
        if name.endswith(".location"):
            raise ConfigError(
                f"values.outgoing {name} names a file of the machine: set it in a file for values.outgoing_file"
            )
    for name in entries_of_run:
        if is_registry_option(name):
            raise ConfigError(
                f"values.outgoing {name}: the config of a run cannot set a registry and its credentials. Set it in a "
                "file for values.outgoing_file"
            )
        if find_step(name) in steps:
            raise ConfigError(
                f"values.outgoing {name}: {find_step(name)} belongs to values.outgoing_file, which may give it "
                "secrets. Leave it as it is, or define one of your own"
            )


def find_step(name: str) -> str | None:
    """Return the transform or predicate that a key belongs to, such as `transforms.mask`, or None for other keys."""
    kind, _, rest = name.partition(".")
    if kind in STEPS and rest:
        return f"{kind}.{rest.partition('.')[0]}"
    return None


def parse_outgoing(entries: Mapping[str, str]) -> Outgoing:
    """Parse `transforms`, `predicates`, `key.converter`, `value.converter` and `schema.registry.*` for the target.

    The registry is the target's. Converters without a registry use it.

    Raises:
        ConfigError: a key is unknown, or its value cannot be used. The error names the key.
    """
    for name in entries:
        if not _is_key(name):
            raise ConfigError(f"{name}: {_explain_unknown(name)}")
    try:
        steps = parse_transforms({name: value for name, value in entries.items() if name.startswith(STEPS)})
    except ValueError as err:
        raise ConfigError(str(err)) from err
    return Outgoing(
        transforms=steps,
        key=_parse_converter(entries, "key"),
        value=_parse_converter(entries, "value"),
        target_registry=_parse_registry(entries),
    )


def _is_key(name: str) -> bool:
    """Return True if a key sets changes of records."""
    return name.split(".", maxsplit=1)[0] in STEPS or name.startswith((*CONVERTERS, REGISTRY))


def _explain_unknown(name: str) -> str:
    """Explain an unknown key, and suggest the nearest known one."""
    near = find_nearest(name, (*STEPS, *CONVERTERS, f"{REGISTRY}url"))
    return f"not a key for outgoing records{f'; did you mean {near}?' if near else ''}"


def _parse_converter(entries: Mapping[str, str], side: Literal["key", "value"]) -> ConverterSettings | None:
    """Parse the converter of keys or values for the target. Return None if no entry names one."""
    name = f"{side}.converter"
    prefix = f"{name}."
    if name not in entries:
        return None
    options = {key.removeprefix(prefix): value for key, value in entries.items() if key.startswith(prefix)}
    try:
        return _parse_settings(prefix, CONVERTER_CLASS(entries[name]), {**_select_registry_keys(entries), **options})
    except ValueError as err:
        raise ConfigError(f"{name}: {err}") from err


def _refuse_registering(prefix: str, options: Mapping[str, str]) -> None:
    """Refuse options that would prevent schemas from being registered, or register them under other subjects."""
    for name, value in options.items():
        usual = _REGISTERED.get(name.removeprefix(REGISTRY))
        usual = "topicnamestrategy" if name.endswith("subject.name.strategy") else usual
        if usual and value.rpartition(".")[2].casefold() not in {usual, ""}:
            raise ConfigError(
                f"{prefix}{name}: a restore registers the schemas of re-encoded keys and values itself, under "
                "`<topic>-key` and `<topic>-value`. Remove the key. Without a converter, bytes stay as they are"
            )


def _parse_registry(entries: Mapping[str, str]) -> RegistrySettings | None:
    """Parse the Schema Registry of the target. Return None if no entry names one."""
    shared = _select_registry_keys(entries)
    if shared:
        return _parse_settings("", "AVRO", shared).registry
    return None


def _select_registry_keys(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the entries about the target's Schema Registry."""
    return {name: value for name, value in entries.items() if name.startswith(REGISTRY)}


def _parse_settings(prefix: str, format_name: str, options: Mapping[str, str]) -> ConverterSettings:
    """Parse the options of a converter. Raise ConfigError with each unusable option and its `prefix`."""
    _refuse_registering(prefix, options)
    settings, outcome = read_converter(format_name, options, schemas_enable=True)
    if outcome.refused:
        raise ConfigError("; ".join(f"{prefix}{name}: {reason}" for name, reason in outcome.refused.items()))
    return settings
