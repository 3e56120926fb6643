"""Reads the config of runs as plain values, with nothing from the environment of the process.

For a field of a `dagster.Config` class that is a str, int or bool, Dagster also accepts `{"env": NAME}`. So anybody who
may launch a run could read secrets of the process, for example as the name of a topic.
"""

from collections.abc import Container, Mapping
from typing import Any, TypeVar

import dagster as dg
from pydantic import ValidationError

from kafka_s3_platform.core.errors import ConfigError

C = TypeVar("C", bound=dg.Config)

_PLAIN: Mapping[str, Any] = {
    dg.StringSource.key: dg.String,
    dg.IntSource.key: dg.Int,
    dg.BoolSource.key: dg.Bool,
    "String": dg.String,
    "Float": dg.Float,
}
"""The plain type for each type of a config class. Check that a new type reads no environment before you add it."""


def make_plain_schema(config: type[dg.Config], shown_paths: Container[str] | None = None) -> dict[str, dg.Field]:
    """Make the fields of a config class, with plain values only. The op has to use `read_config`.

    The launchpad opens with every default in the schema. So only the fields in `shown_paths` get their default in the
    schema, while `read_config` adds the others. If `shown_paths` is None, all fields get it.
    """
    return _make_plain_fields(config.to_fields_dict(), shown_paths, "")


def read_config(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext, config: type[C]
) -> C:
    """Return the config of a step whose op has the `make_plain_schema`.

    Raises a ConfigError that names the path of each bad field.
    """
    try:
        return config(**context.op_execution_context.op_config)
    except ValidationError as err:
        problems = (f"{'.'.join(map(str, e['loc']))} {e['input']!r}: {e['msg']}" for e in err.errors())
        raise ConfigError("; ".join(problems)) from err


def _make_plain_fields(
    fields: Mapping[str, dg.Field], shown_paths: Container[str] | None, group: str
) -> dict[str, dg.Field]:
    """Make the plain fields of one group of a config. `group` is its path and a dot, such as `to.`, or empty."""
    return {name: _make_plain_field(field, shown_paths, f"{group}{name}") for name, field in fields.items()}


def _make_plain_field(field: dg.Field, shown_paths: Container[str] | None, path: str) -> dg.Field:
    if isinstance(field.config_type, dg.Shape):
        inner = _make_plain_fields(field.config_type.fields, shown_paths, f"{path}.")
        return dg.Field(inner, description=field.description)
    has_default = field.default_provided and (shown_paths is None or path in shown_paths)
    default = {"default_value": field.default_value} if has_default else {}
    return dg.Field(
        _make_plain_type(field.config_type), is_required=field.is_required, description=field.description, **default
    )


def _make_plain_type(kind: Any) -> Any:
    """Return the type of a field without Dagster's form {"env": NAME}, which reads the environment."""
    if isinstance(kind, dg.Noneable):
        return dg.Noneable(_make_plain_type(kind.inner_type))
    if isinstance(kind, dg.Array):
        return dg.Array(_make_plain_type(kind.inner_type))
    if isinstance(kind, dg.Map):
        return {str: _make_plain_type(kind.inner_type)}
    return _PLAIN[kind.key]
