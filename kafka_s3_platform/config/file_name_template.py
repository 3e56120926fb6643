"""Aiven's `file.name.template`: text with `{{ variable }}` or `{{ variable:parameter=value }}` in it.

Variables and parameters are those of "File name format" in the README of Aiven's S3 sink. A template must say of each
object which it is: it names topic, kafka partition and first offset so that they can be read back from the key.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from kafka_s3_platform.config.folders import refusal

Name = Literal["topic", "partition", "start_offset", "timestamp", "ordinal", "epoch"]

_VARIABLE = re.compile(r"\{\{\s*(\w*)\s*(?::\s*(\w*)(?:=(\w*))?)?\s*\}\}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PADDING = {"false": "", "true": "padded"}
_UNITS = {"yyyy": "yyyy", "YYYY": "yyyy", "MM": "MM", "dd": "dd", "HH": "HH"}


@dataclass(frozen=True)
class Variable:
    """A placeholder. `form` is `padded`, the unit of a timestamp (yyyy, MM, dd, HH), or empty."""

    name: Name
    form: str = ""

    @property
    def has_fixed_width(self) -> bool:
        return bool(self.form)


Part = str | Variable
REWRITE: tuple[Part, ...] = ("@", Variable("ordinal"), "+", Variable("epoch"))
"""What follows the last `start_offset` of objects that begin inside a record's outputs, and of rewritten ones."""


@dataclass(frozen=True)
class FileNameTemplate:
    """A template's texts and variables in turn."""

    parts: tuple[Part, ...]

    @property
    def last_offset(self) -> int:
        """The index of the last `start_offset`."""
        return max(i for i, p in enumerate(self.parts) if isinstance(p, Variable) and p.name == "start_offset")

    @property
    def prefix(self) -> str:
        """What every key begins with."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""


def compile_template(text: str) -> FileNameTemplate:
    """The parts of a template.

    Raises:
        ValueError: a variable or parameter is not known or cannot be honoured, one that is needed is absent, a folder
            is empty, `.` or `..`, or two objects could get the same key.
    """
    template = FileNameTemplate(tuple(_parts(text)))
    names = {part.name for part in template.parts if isinstance(part, Variable)}
    for needed in ("topic", "partition", "start_offset"):
        if needed not in names:
            raise ValueError(f"it needs {{{{{needed}}}}}: without it two objects would get the same key")
    at = template.last_offset + 1
    folders = _folders([*template.parts[:at], *REWRITE, *template.parts[at:]])
    for folder in folders:
        _check_folder(folder)
    if why := refusal("".join(part if isinstance(part, str) else "0" for part in template.parts)):
        raise ValueError(f"its name {why}")
    if (folders[-1] and folders[-1][-1] == Variable("topic")) or _ends_in_topic_and_extension(folders[-1]):
        raise ValueError("a file's name cannot end in {{topic}}: an extension could be taken for a part of it")
    return template


def _ends_in_topic_and_extension(folder: Sequence[Part]) -> bool:
    tail = folder[-1]
    return folder[-2:-1] == [Variable("topic")] and isinstance(tail, str) and tail.startswith(".")


def _parts(text: str) -> Iterable[Part]:
    start = 0
    for match in _VARIABLE.finditer(text):
        yield from _literal(text[start : match.start()])
        yield _variable(match)
        start = match.end()
    yield from _literal(text[start:])


def _literal(text: str) -> Iterable[str]:
    if "{{" in text or "}}" in text:
        raise ValueError(f"{text!r} is no variable such as {{{{topic}}}} or {{{{start_offset:padding=true}}}}")
    if _CONTROL.search(text):
        raise ValueError(f"{text!r} holds a control character")
    if text:
        yield text


def _variable(match: re.Match[str]) -> Variable:
    name, parameter, value = match[1], match[2], match[3]
    if name == "key":
        raise ValueError("{{key}} keeps the newest record of each key and overwrites the others: an archive keeps all")
    if name == "topic" and parameter is None:
        return Variable("topic")
    if name in {"partition", "start_offset"} and (parameter is None or (parameter == "padding" and value in _PADDING)):
        return Variable(name, "" if parameter is None else _PADDING[value])  # type: ignore[arg-type]
    if name == "timestamp" and parameter == "unit" and value in _UNITS:
        return Variable("timestamp", _UNITS[value])
    raise ValueError(
        f"{match[0]!r} is not known; {{{{topic}}}}, {{{{partition}}}}, {{{{start_offset}}}} (both may have"
        " :padding=true) and {{timestamp:unit=yyyy|MM|dd|HH}} are"
    )


def _folders(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts between slashes. No variable's value holds one."""
    folders: list[list[Part]] = [[]]
    for part in parts:
        first, *others = part.split("/") if isinstance(part, str) else [part]
        folders[-1] += [first] if first else []
        folders += [[text] if text else [] for text in others]
    return folders


def _check_folder(folder: list[Part]) -> None:
    """Of each folder's name one can tell where its variables begin and end.

    What stands before the topic is read from the left, what stands behind it from the right, so each number of unknown
    length has to end, or begin, at text that is no digit.
    """
    if folder in ([], ["."], [".."]):
        raise ValueError("a folder or the file's name is empty, '.' or '..'")
    topics = [i for i, part in enumerate(folder) if part == Variable("topic")]
    if len(topics) > 1:
        raise ValueError("a folder or the file's name holds {{topic}} twice")
    at = topics[0] if topics else -1
    before, after = folder[: at + 1], folder[max(at, 0) :]
    ambiguous = [p for p, following in pairwise(before) if _runs_into(p, following, 0)]
    ambiguous += [p for previous, p in pairwise(after) if _runs_into(p, previous, -1)]
    if ambiguous:
        raise ValueError(
            "one cannot tell where {{" + ambiguous[0].name + "}} begins or ends: put text that is no digit between"  # type: ignore[union-attr]
            " it and its neighbour"
        )


def _runs_into(part: Part, neighbour: Part, edge: int) -> bool:
    if isinstance(part, str) or part.name == "topic" or part.has_fixed_width:
        return False
    return not isinstance(neighbour, str) or neighbour[edge].isdigit()
