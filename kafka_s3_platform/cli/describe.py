"""`kafka-s3 describe`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from kafka_s3_platform.cli.output import json_option, show, without_links
from kafka_s3_platform.config.describe import DescribedKey, Description
from kafka_s3_platform.config.describe import describe as described
from kafka_s3_platform.config.dialects import DIALECTS


@click.command
@click.argument("connector_class", metavar="[CLASS]", required=False)
@json_option
def describe(connector_class: str | None, as_json: bool) -> None:
    """Tell the required keys of a connector's CLASS, such as S3_SINK, and the others with their defaults.

    Without CLASS, tell which classes there are.
    """
    if connector_class is None:
        classes = [{"class": dialect.class_name, "title": dialect.title} for dialect in DIALECTS]
        show({"classes": classes}, as_json, _classes())
        return
    try:
        found = described(connector_class)
    except ValueError as err:
        raise click.UsageError("\n".join([f"CLASS: {err}. The classes are:", *_classes()])) from err
    show(asdict(found), as_json, list(_lines(found)))


def _classes() -> list[str]:
    return [f"  {dialect.class_name}: {dialect.title}" for dialect in DIALECTS]


def _lines(found: Description) -> Iterator[str]:
    yield f"{found.class_name}: {found.title}"
    yield from _group("required:", found.required)
    yield from _group("required there, optional here:", found.required_there)
    yield from _group("optional:", found.optional)


def _group(title: str, keys: Sequence[DescribedKey]) -> Iterator[str]:
    if keys:
        yield title
    for key in keys:
        default = f" (default: {key.default})" if key.default and not key.default.startswith("required") else ""
        yield f"  {key.key}{default}: {without_links(key.doc)}"
