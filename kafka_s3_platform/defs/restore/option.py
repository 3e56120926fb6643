"""The parts of a restore option's declaration besides its name, type, default and description."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic.fields import FieldInfo

from kafka_s3_platform.errors import ConfigError


@dataclass(frozen=True)
class RestoreOption:
    """The option that sets a field on the command line, and the field of the request that the value fills.

    `name` is the option's name, by default `--` and the field's name without its group. `help` is the option's text, by
    default the field's description. An option with a `second` field takes two values.

    `into` is the place in the `RestoreRequest`, by default the field's name. `read` makes the request's value from the
    field's path and value. `choices` are all values that a text may have.
    """

    name: str | None = None
    metavar: str | None = None
    help: str | None = None
    second: str | None = None
    is_file: bool = False
    choices: tuple[str, ...] = ()
    into: str | None = None
    read: Callable[[str, Any], Any] | None = None

    def request_value(self, path: str, value: Any) -> Any:
        """Return what the request has for the value of field `path`. ConfigError if the value cannot be used."""
        if self.choices and value is not None and value not in self.choices:
            raise ConfigError(f"{path} {value!r} is none of {', '.join(self.choices)}")
        return self.read(path, value) if self.read else value


def list_fields(config: type[dg.Config]) -> dict[str, FieldInfo]:
    """Return the fields of a config and of the groups in it by their paths, such as `to.topic`. Groups are left out."""
    fields: dict[str, FieldInfo] = {}
    for name, field in config.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, dg.Config):
            fields |= {f"{name}.{path}": inner for path, inner in list_fields(group).items()}
        else:
            fields[name] = field
    return fields


def find_options(config: type[dg.Config]) -> dict[str, RestoreOption]:
    """Return the option of each field that has one, by the field's path."""
    return {
        path: entry
        for path, field in list_fields(config).items()
        for entry in field.metadata
        if isinstance(entry, RestoreOption)
    }
