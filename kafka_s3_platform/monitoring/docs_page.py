"""Serves the documentation of this version: at night, on a server, there may be no other way to it."""

import sys
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

import kafka_s3_platform
from kafka_s3_platform.text import make_anchor
from kafka_s3_platform.web_page import PAGE, PAGE_STYLE

_PLACES = (Path(kafka_s3_platform.__file__).parents[1] / "docs", Path(sys.prefix, "share", "kafka-s3", "docs"))
"""Where the repository has it, and an installed package."""

_STYLE = PAGE_STYLE + Markup("""
main { max-width: 960px; overflow-wrap: break-word; } img { max-width: 100%; }
a { color: var(--blue); } h2 { margin-top: 28px; }
pre { background: var(--back); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
pre, table { display: block; overflow-x: auto; } pre code { overflow-wrap: normal; }
td, th { vertical-align: top; white-space: normal; } code, td code { white-space: normal; overflow-wrap: break-word; }
pre code { white-space: pre; }
:target { background: var(--pale); }
""")


def find_docs() -> Path | None:
    """Return the folder of the documentation, None if it was not installed."""
    return next((place for place in _PLACES if (place / "operating.md").is_file()), None)


PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}
"""Their media types, by the end of the name."""


def read_document(folder: Path, name: str) -> tuple[bytes, str] | None:
    """Read one of the folder's documents, such as `errors.md`, as HTML, or one of its pictures.

    Return it and its media type, None if there is none of that name.
    """
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.suffix in {".md", *PICTURES}}
    if name not in found:
        return None
    if media_type := PICTURES.get(found[name].suffix):
        return found[name].read_bytes(), media_type
    return _render_document(found[name], name).encode(), "text/html"


def _render_document(path: Path, name: str) -> str:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(path.read_text())
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", make_anchor(tokens[at + 1].content))
    body = Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704 - it escapes all that is HTML
    return str(PAGE.format(title=f"{name} - Kafka-S3", style=_STYLE, body=body))
