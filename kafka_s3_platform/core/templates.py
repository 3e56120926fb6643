"""Renders the templates `*.html.j2` beside the modules. Foreign names and errors cannot become HTML in them."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kafka_s3_platform.core.text import count_noun

if TYPE_CHECKING:
    from jinja2 import Environment


def render_template(name: str, **facts: Any) -> str:
    """Render a template, such as `operate/monitoring/hours_page.html.j2`. It can use only `facts`."""
    return _make_environment().get_template(name).render(facts)


@cache
def _make_environment() -> "Environment":
    """Make the environment of all templates, which escapes everything and fails if a fact is missing."""
    # few processes render a page, and none of them twice what another version has installed meanwhile
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        auto_reload=False,
        loader=FileSystemLoader(Path(__file__).parents[1]),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["count_noun"] = count_noun
    environment.filters["quote"] = lambda text: quote(text, safe="")
    return environment
