"""The config of runs as plain values: nothing of it is looked up in the environment of the process.

Wherever a class of `dagster.Config` says str, int or bool, Dagster also takes `{"env": NAME}`: whoever may launch a run
would read the process's secrets, as the name of a topic, say.
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
"""Of each type that a config class has, by its key. Another has to be looked at before a run may have it."""


def plain_schema(config: type[dg.Config]) -> dict[str, dg.Field]:
    """The fields of a config class, each of plain values only. To be given to an op beside `config_of`."""
    return {name: _plain_field(field) for name, field in config.to_fields_dict().items()}


def config_of(context: dg.AssetExecutionContext, config: type[C]) -> C:
    """The config of a step whose op has the `plain_schema` of that class."""
    return config(**context.op_execution_context.op_config)


def _plain_field(field: dg.Field) -> dg.Field:
    default = {"default_value": field.default_value} if field.default_provided else {}
    return dg.Field(_plain(field.config_type), is_required=field.is_required, description=field.description, **default)


def _plain(kind: Any) -> Any:
    if isinstance(kind, dg.Noneable):
        return dg.Noneable(_plain(kind.inner_type))
    if isinstance(kind, dg.Array):
        return dg.Array(_plain(kind.inner_type))
    if isinstance(kind, dg.Map):
        return {str: _plain(kind.inner_type)}
    return _PLAIN[kind.key]
