"""Reads the config of runs as plain values, and none of them from the environment of the process.

If a field of a `dagster.Config` class is a str, int or bool, Dagster also accepts `{"env": NAME}`. Anybody who may
launch a run could then read secrets of the process, for example as the name of a topic.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import dagster as dg

C = TypeVar("C", bound=dg.Config)

_PLAIN: Mapping[str, Any] = {
    dg.StringSource.key: dg.String,
    dg.IntSource.key: dg.Int,
    dg.BoolSource.key: dg.Bool,
    "String": dg.String,
    "Float": dg.Float,
}
"""The plain type for each type of a config class. Check that a new type reads no environment before you add it."""


def make_plain_schema(config: type[dg.Config]) -> dict[str, dg.Field]:
    """Make the fields of a config class, with plain values only. Its op has to use `read_config`."""
    return {name: _make_plain_field(field) for name, field in config.to_fields_dict().items()}


def read_config(context: dg.AssetExecutionContext, config: type[C]) -> C:
    """Read the config of a step whose op has the `make_plain_schema` of that class."""
    return config(**context.op_execution_context.op_config)


def _make_plain_field(field: dg.Field) -> dg.Field:
    default = {"default_value": field.default_value} if field.default_provided else {}
    return dg.Field(
        _make_plain_type(field.config_type), is_required=field.is_required, description=field.description, **default
    )


def _make_plain_type(kind: Any) -> Any:
    if isinstance(kind, dg.Noneable):
        return dg.Noneable(_make_plain_type(kind.inner_type))
    if isinstance(kind, dg.Array):
        return dg.Array(_make_plain_type(kind.inner_type))
    if isinstance(kind, dg.Map):
        return {str: _make_plain_type(kind.inner_type)}
    return _PLAIN[kind.key]
