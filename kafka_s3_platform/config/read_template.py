"""Templates that existing keys are read by: text with `{{variable}}` in it, Aiven's words and `any`.

Reading asks less than writing (`file_name_template`): a key need not tell everything, and nothing is made of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*(?::\s*(\w+)=(\w+))?\s*\}\}", re.ASCII)
_UNITS = {"yyyy": r"\d{4}", "YYYY": r"\d{4}", "MM": r"\d\d", "dd": r"\d\d", "HH": r"\d\d"}
_TEXTS = {
    "topic": r"[a-zA-Z0-9._-]+",
    "partition": r"\d+",
    "start_offset": r"\d+",
    "end_offset": r"\d+",
    "key": r".*",
    "any": r"[^/]*",
}
_NUMBERS = frozenset({"partition", "start_offset", "end_offset"})
_REWRITTEN = r"(?:@(?P<ordinal>\d+))?(?:\+\d+)?"
"""What our own objects have after their offset where they begin inside a record, or were rewritten."""


@dataclass(frozen=True)
class ReadTemplate:
    """A compiled template: `pattern` has the groups `names`, and `ordinal` where there is an offset."""

    pattern: re.Pattern[str]
    names: frozenset[str]


@lru_cache
def compile_read_template(text: str) -> ReadTemplate:
    """The pattern of a template; of a variable that stands twice both have to say the same.

    Raises:
        ValueError: a variable is not known.
    """
    named: set[str] = set()
    pattern = "".join(_patterns(text, named))
    return ReadTemplate(re.compile(pattern, re.ASCII), frozenset(named))


def _patterns(text: str, named: set[str]) -> Iterator[str]:
    start, offsets = 0, len(re.findall(r"\{\{\s*start_offset", text))
    for match in _VARIABLE.finditer(text):
        yield _literal(text[start : match.start()])
        start = match.end()
        name, pattern = _variable(match)
        yield _group(name, pattern, named)
        if name == "start_offset":
            offsets -= 1
            yield "" if offsets else _REWRITTEN
    yield _literal(text[start:])


def _variable(match: re.Match[str]) -> tuple[str, str]:
    name, parameter, value = match.groups()
    if name == "timestamp" and parameter == "unit" and value in _UNITS:
        return value.replace("YYYY", "yyyy"), _UNITS[value]
    if name in _NUMBERS and parameter == "padding" and value in {"true", "false"}:
        return name, _TEXTS[name]
    if name in _TEXTS and parameter is None:
        return name, _TEXTS[name]
    raise ValueError(
        f"{match[0]!r} is not known; {{{{topic}}}}, {{{{partition}}}}, {{{{start_offset}}}}, {{{{end_offset}}}},"
        " {{key}}, {{any}} and {{timestamp:unit=yyyy|MM|dd|HH}} are"
    )


def _group(name: str, pattern: str, named: set[str]) -> str:
    if name == "any":
        return pattern
    if name in named:
        # A padded number and a plain one are the same number, written otherwise.
        return pattern if name in _NUMBERS else f"(?P={name})"
    named.add(name)
    return f"(?P<{name}>{pattern})"


def _literal(text: str) -> str:
    if "{{" in text or "}}" in text:
        raise ValueError(f"{text!r} is no variable such as {{{{topic}}}} or {{{{start_offset}}}}")
    return re.escape(text)
