"""`kafka-s3 describe`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from kafka_s3_platform.cli.messages import json_option, print_result, strip_links
from kafka_s3_platform.connect.config.describe import DescribedKey, Description
from kafka_s3_platform.connect.config.describe import describe_class as described
from kafka_s3_platform.connect.config.dialects import DIALECTS


def _complete_class(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of connector classes that contain the text, for shells."""
    return [dialect.class_name for dialect in DIALECTS if incomplete.lower() in dialect.class_name.lower()]


@click.command
@click.argument("connector_class", metavar="[CLASS]", required=False, shell_complete=_complete_class)
@json_option
def describe(connector_class: str | None, as_json: bool) -> None:
    """List the keys of a connector CLASS, with their defaults.

    Required keys come first. CLASS is a full or short name, such as S3_SINK. Without CLASS, lists the classes.
    """
    if connector_class is None:
        classes = [{"class": dialect.class_name, "title": dialect.title} for dialect in DIALECTS]
        print_result({"classes": classes}, as_json, _format_classes())
        return
    try:
        description = described(connector_class)
    except ValueError as err:
        raise click.UsageError("\n".join([f"CLASS: {err}. The classes are:", *_format_classes()])) from err
    print_result(asdict(description), as_json, list(_format_description(description)))


def _format_classes() -> list[str]:
    """Return a line for each class."""
    return [f"  {dialect.class_name}: {dialect.title}" for dialect in DIALECTS]


def _format_description(description: Description) -> Iterator[str]:
    """Yield the lines that describe a class, with the required keys first."""
    yield f"{description.class_name}: {description.title}"
    yield from _format_group("required:", description.required)
    yield from _format_group("required there, optional here:", description.required_there)
    yield from _format_group("optional:", description.optional)


def _format_group(title: str, keys: Sequence[DescribedKey]) -> Iterator[str]:
    """Yield a title and the keys below it, or nothing if there are no keys."""
    if keys:
        yield title
    for key in keys:
        default = f" (default: {key.default})" if key.default and not key.default.startswith("required") else ""
        yield f"  {key.key}{default}: {strip_links(key.doc)}"
