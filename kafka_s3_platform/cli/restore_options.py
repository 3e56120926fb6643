"""The options of `kafka-s3 restore`, made from the fields of a run's config that declare one."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import click
from annotated_types import Ge
from pydantic.fields import FieldInfo

from kafka_s3_platform.cli.windows import parse_numbers, parse_offsets
from kafka_s3_platform.config.keys.values import parse_rate
from kafka_s3_platform.defs.restore.config import ForeignRestoreConfig
from kafka_s3_platform.defs.restore.option import RestoreOption, find_options

C = TypeVar("C", bound=Callable[..., Any])

_OPTIONS = find_options(ForeignRestoreConfig)
_FIELDS = ForeignRestoreConfig.model_fields
_NAMES = {field: option.name or f"--{field.replace('_', '-')}" for field, option in _OPTIONS.items()}


def add_restore_options(command: C) -> C:
    """Give a command the option of each field, in the order of the fields."""
    for name in reversed(_OPTIONS):
        option = _OPTIONS[name]
        field = _FIELDS[name]
        command = click.option(
            _NAMES[name],
            name,
            metavar=option.metavar,
            help=option.help or _format_help(field.description or ""),
            default=field.default if field.default_factory is None else None,
            show_default=isinstance(field.default, str),
            nargs=1 if option.second is None else 2,
            **_choose_attributes(field, option),
        )(command)
    return command


def split_pairs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by field. An option of two fields gives both values as one pair; split it."""
    values = dict(given)
    for name, option in _OPTIONS.items():
        if option.second is not None:
            values[name], values[option.second] = given[name] or (None, None)
    return values


def _format_help(description: str) -> str:
    """Return the description of a field for the command line: with names of options instead of names of fields."""
    return re.sub("`(.*?)`", lambda found: _NAMES.get(found[1], found[1]), description)


def _choose_attributes(field: FieldInfo, option: RestoreOption) -> Mapping[str, Any]:
    """Return the attributes of a click option whose values have the field's type."""
    if option.choices:
        return {"type": click.Choice(option.choices)}
    if option.is_file:
        return {"type": click.Path(exists=True, dir_okay=False, path_type=Path), "callback": _make_absolute}
    kind = _strip_none(field.annotation)
    least: Any = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
    if kind is int:
        return {"type": click.IntRange(min=least)}
    if kind is float:
        return {"type": parse_rate if least is None else click.FloatRange(min=least)}
    return _BY_TYPE[kind]


def _strip_none(annotation: Any) -> Any:
    """Return `str` for `str | None`, and any other type as it is."""
    parts = get_args(annotation)
    return parts[0] if NoneType in parts else annotation


def _make_absolute(ctx: click.Context, param: click.Parameter, path: Path | None) -> str | None:  # noqa: ARG001 - click's signature
    """Return the absolute path, since the run may be executed again from another folder."""
    return None if path is None else str(path.absolute())


def _make_list(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[str]:  # noqa: ARG001 - click's signature
    return list(given)


def _parse_pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001 - click's signature
    pairs = [text.partition("=") for text in given]
    if not all(source and equals and target for source, equals, target in pairs):
        raise click.UsageError(f"{param.opts[0]} {' '.join(given)}: not T=T2, such as orders=copy_of_orders")
    return {source: target for source, _, target in pairs}


_BY_TYPE: Mapping[Any, Mapping[str, Any]] = {
    str: {},
    bool: {"is_flag": True},
    list[str]: {"multiple": True, "callback": _make_list},
    list[int]: {"callback": parse_numbers},
    Mapping[str, int]: {"multiple": True, "callback": parse_offsets},
    Mapping[str, str]: {"multiple": True, "callback": _parse_pairs},
}
