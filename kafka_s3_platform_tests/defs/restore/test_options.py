"""One declaration a restore option: the command line, a run's config and the request have the same ones."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import click

from kafka_s3_platform.cli import main
from kafka_s3_platform.defs.restore.config import (
    ForeignRestoreConfig,
    RestoreConfig,
    RestoreOption,
    find_options,
    list_fields,
)
from kafka_s3_platform.defs.restore.request import READ_HERE
from kafka_s3_platform.restore.request import Offsets, Outgoing, RecordFilter, RestoreRequest, Thaw

PARTS = {"": RestoreRequest, "records": RecordFilter, "outgoing": Outgoing, "thaw": Thaw}
OPTIONS = find_options(ForeignRestoreConfig)
FIELDS = list_fields(ForeignRestoreConfig)

BY_THE_RUN = {"config", "topic", "to_topic", "restore_id", "run_id", "target", "from_time", "to_time", "windows"}
BY_THE_RUN |= {"connectors", "records", "outgoing", "thaw"}
BY_OUTGOING_KEYS = {f"outgoing.{name}" for name in ("transforms", "key", "value", "target_registry")}
WITHOUT_OPTION = {"what.everything", "values.outgoing", "to.rename_replacement", "what.topics"}
"""All, where no time is given; `--outgoing` names a file; the second value of `--rename`; `--topic` picks the asset."""


def request_types() -> Iterator[tuple[str, Any]]:
    """The path and the type of every field of a request."""
    for part, kind in PARTS.items():
        types = get_type_hints(kind)
        for field in fields(kind):
            yield f"{part}.{field.name}".lstrip("."), types[field.name]


def without_none(kind: Any) -> set[Any]:
    """`str | None` and `Literal["a"] | None` as what they hold."""
    parts = {part for part in get_args(kind) or (kind,) if part is not type(None)}
    return {value for part in parts for value in (get_args(part) or (part,))}


def filled_by(path: str, option: RestoreOption) -> str:
    return option.into or path.rpartition(".")[2]


def given_type(name: str, option: RestoreOption) -> Any:
    if option.read is not None:
        return get_type_hints(option.read, localns={"Offsets": Offsets})["return"]
    return FIELDS[name].annotation


def test_every_field_of_a_request_comes_from_one_option_or_from_the_run() -> None:
    filled = [filled_by(path, option) for path, option in OPTIONS.items() if path not in READ_HERE]
    assert len(filled) == len(set(filled))
    assert set(filled) | BY_THE_RUN | BY_OUTGOING_KEYS == {path for path, _ in request_types()}
    assert not set(filled) & (BY_THE_RUN | BY_OUTGOING_KEYS)


def test_an_option_gives_values_of_the_type_that_the_request_has() -> None:
    wanted = dict(request_types())
    for name, option in OPTIONS.items():
        if name in READ_HERE:
            continue
        kind = wanted[filled_by(name, option)]
        if option.choices:
            assert without_none(kind) == set(option.choices), name
        else:
            assert given_type(name, option) == kind, name


def test_the_command_line_has_every_option() -> None:
    assert set(FIELDS) - set(OPTIONS) == WITHOUT_OPTION
    native = list_fields(RestoreConfig)
    of_sources_only = {"what.topics", "what.after", "to.rename_regex", "to.rename_replacement", "to.topic_map"}
    assert set(FIELDS) - set(native) == of_sources_only
    command = main.get_command(click.Context(main), "restore")
    assert command is not None
    of_command = {parameter.name for parameter in command.params}
    of_options = {path.replace(".", "__") for path in OPTIONS}
    assert of_command - of_options == {"connector", "topics", "as_json", "quiet", "verbose"}
    assert of_options <= of_command
