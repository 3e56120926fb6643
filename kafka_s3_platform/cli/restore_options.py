"""The options of `kafka-s3 restore`, made from the fields of a run's config."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import click
from annotated_types import Ge
from pydantic.fields import FieldInfo

from kafka_s3_platform.cli.windows import parse_numbers, parse_offsets
from kafka_s3_platform.config.keys.values import parse_rate
from kafka_s3_platform.defs.restore.config import ForeignRestoreConfig
from kafka_s3_platform.defs.restore.option import RestoreOption, find_options, list_fields

C = TypeVar("C", bound=Callable[..., Any])

_OPTIONS = find_options(ForeignRestoreConfig)
_FIELDS = list_fields(ForeignRestoreConfig)
_NAMES = {path: option.name or f"--{path.rpartition('.')[2].replace('_', '-')}" for path, option in _OPTIONS.items()}


def add_restore_options(command: C) -> C:
    """Add the option of each field to a command, in the order of the fields."""
    for path in reversed(_OPTIONS):
        option = _OPTIONS[path]
        field = _FIELDS[path]
        command = click.option(
            _NAMES[path],
            _name_parameter(path),
            metavar=option.metavar,
            help=option.help or _format_help(field.description or ""),
            default=field.default if field.default_factory is None else None,
            show_default=isinstance(field.default, str),
            nargs=1 if option.second is None else 2,
            **_choose_attributes(field, option),
        )(command)
    return command


def read_terms(values: Mapping[str, Any], topics: Sequence[str]) -> ForeignRestoreConfig:
    """Make a config of the values of the options. Without times and offsets, it selects everything."""
    terms: dict[str, Any] = {"what": {"topics": list(topics)}, "to": {}, "values": {}, "how": {}}
    for path, option in _OPTIONS.items():
        value = values[_name_parameter(path)]
        if option.second is not None:
            value, second = value or (None, None)
            _put(terms, option.second, second)
        _put(terms, path, value)
    config = ForeignRestoreConfig(**terms)
    what = config.what
    is_open = not (what.has_times or what.from_offset or what.to_offset)
    return config.model_copy(update={"what": what.model_copy(update={"everything": is_open})})


def _put(terms: dict[str, Any], path: str, value: Any) -> None:
    group, _, name = path.partition(".")
    terms[group][name] = value


def _name_parameter(path: str) -> str:
    return path.replace(".", "__")


def _format_help(description: str) -> str:
    """Return a field's description with names of options instead of fields."""
    return re.sub("`(.*?)`", lambda match: _NAMES.get(match[1], match[1]), description)


def _choose_attributes(field: FieldInfo, option: RestoreOption) -> Mapping[str, Any]:
    """Return the attributes of a click option for the field's type."""
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


def _make_list(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:  # noqa: ARG001 - click's signature
    return list(values)


def _parse_pairs(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001 - click's signature
    pairs = [text.partition("=") for text in texts]
    if not all(source and equals and target for source, equals, target in pairs):
        raise click.UsageError(f"{param.opts[0]} {' '.join(texts)}: not T=T2, such as orders=copy_of_orders")
    return {source: target for source, _, target in pairs}


_BY_TYPE: Mapping[Any, Mapping[str, Any]] = {
    str: {},
    bool: {"is_flag": True},
    list[str]: {"multiple": True, "callback": _make_list},
    list[int]: {"callback": parse_numbers},
    Mapping[str, int]: {"multiple": True, "callback": parse_offsets},
    Mapping[str, str]: {"multiple": True, "callback": _parse_pairs},
}
