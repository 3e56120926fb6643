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
main { max-width: 960px; overflow-wrap: break-word; } a { color: var(--blue); } h2 { margin-top: 28px; }
pre { background: var(--back); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
pre, table { display: block; overflow-x: auto; } pre code { overflow-wrap: normal; }
td, th { vertical-align: top; white-space: normal; } code, td code { white-space: normal; overflow-wrap: break-word; }
pre code { white-space: pre; }
:target { background: var(--pale); }
""")


def find_docs() -> Path | None:
    """Return the folder of the documentation, None if it was not installed."""
    return next((place for place in _PLACES if (place / "operating.md").is_file()), None)


def render_document(folder: Path, name: str) -> str | None:
    """Render one of the folder's documents, such as `errors.md`, as HTML. None if there is no such document."""
    if name not in {str(path.relative_to(folder)) for path in folder.rglob("*.md")}:
        return None
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse((folder / name).read_text())
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", make_anchor(tokens[at + 1].content))
    body = Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704 - it escapes all that is HTML
    return str(PAGE.format(title=f"{name} - Kafka-S3", style=_STYLE, body=body))
