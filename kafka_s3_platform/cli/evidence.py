"""`kafka-s3 evidence check`: it needs the file, its signature and the public key, and nothing of the archive."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from kafka_s3_platform.cli.messages import INCOMPLETE, Verdict, align_columns, json_option, print_result
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.restore.evidence import SIGNATURE_SUFFIX, Evidence
from kafka_s3_platform.core.restore.signing import check_signature
from kafka_s3_platform.core.text import count_noun

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group
def evidence() -> None:
    """Check evidence of a restore, a rehearsal or a deep verification."""


@evidence.command
@click.argument("path", metavar="FILE", type=_FILE)
@click.option("--public-key", required=True, type=_FILE, metavar="PEM", help="The public key of who signed it.")
@click.option("--signature", type=_FILE, metavar="SIG", help="Its signature. Default: FILE with .sig behind its name.")
@json_option
@click.pass_context
def check(ctx: click.Context, path: Path, public_key: Path, signature: Path | None, as_json: bool) -> None:
    """Check the signature of FILE, and show what was compared. Needs only FILE, its signature and the public key.

    Exit status 1 if the signature does not match. Exit status 3 if it does, but something was missing.
    """
    signature_path = signature or path.with_name(path.name + SIGNATURE_SUFFIX)
    try:
        content = path.read_bytes()
        signature_bytes = signature_path.read_bytes()
    except OSError as err:
        raise ConfigError(
            f"{err.filename} cannot be read: {err.strerror}. The signature lies beside the file in the archive; "
            "evidence without one proves nothing: it was made without a key, or its run was killed, and wrote another"
        ) from err
    key_name = check_signature(path, content, signature_bytes, public_key)
    document = Evidence.from_json(content, str(path))
    print_result(
        {"signed_by": key_name, "is_complete": document.is_complete, "evidence": msgspec.to_builtins(document)},
        as_json,
        [*_format(document, key_name)],
    )
    ctx.exit(0 if document.is_complete else INCOMPLETE)


def _format(document: Evidence, key_name: str) -> Iterator[str | Verdict]:
    """Yield the lines about evidence whose signature matches."""
    yield f"the signature matches: key {key_name}"
    run = f" {document.run}" if document.run else ""
    yield (
        f"{document.kind}{run} of connector {document.connector}, evidence {document.number} in its folder, by "
        f"{document.platform}"
    )
    yield (
        f"archive in bucket {document.bucket}; target: {document.target or 'none'}; from "
        f"{document.started_at:%Y-%m-%d %H:%M:%S} to {document.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    yield document.method
    heads = ["topic", "compared with", "records", "bytes", ""]
    rows = [[t.topic, t.compared_with, f"{t.records:,}", f"{t.record_bytes:,}", t.verdict] for t in document.topics]
    head, *lines = align_columns([heads, *rows], numbers=(2, 3))
    yield head
    for line, topic in zip(lines, document.topics, strict=True):
        yield Verdict(line, topic.is_complete)
        if topic.terms:
            yield f"  asked for: {json.dumps(topic.terms)}"
        yield from (f"  {sentence}" for sentence in topic.left_out)
    records = count_noun(sum(topic.records for topic in document.topics), "record")
    verdict = "all that was to be compared was there, and equal" if document.is_complete else "NOT all came back"
    yield Verdict(f"{records} of {count_noun(len(document.topics), 'topic')}: {verdict}", document.is_complete)
