"""The keys of the names of objects, with their templates and delimiters.

A variable is `{{variable}}` or `{{variable:parameter=value}}`, as in "File name format" of the README of Aiven's S3
sink. A template for keys to write has to name the topic, the kafka partition and the first offset, for these are read
back from the key. A template for existing keys need not name them all. It may also use `end_offset`, `key` and `any`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeGuard

from kafka_s3_platform.connect.config.dialects import Dialect
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.table import Key, TypedKey, declare_aliases, declare_key, declare_setting
from kafka_s3_platform.core.codecs.table import CODECS
from kafka_s3_platform.core.config import plugins
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.object_key import REWRITTEN, TOPIC, check_delimiters, explain_bad_folders

_VARIABLE = re.compile(r"\{\{\s*(\w*)\s*(?::\s*(\w*)(?:=(\w*))?)?\s*\}\}", re.ASCII)
_PADDING = {"false": "", "true": "padded"}
_UNITS = {"yyyy": "yyyy", "YYYY": "yyyy", "MM": "MM", "dd": "dd", "HH": "HH"}
_NUMBERS = frozenset({"partition", "start_offset", "end_offset"})
_WIDTHS = {"partition": 10, "start_offset": 20, "end_offset": 20}
"""The digits of padded numbers, as Aiven's sink writes them."""

_TEXTS = {
    "topic": TOPIC,
    "partition": r"\d+",
    "start_offset": r"\d+",
    "end_offset": r"\d+",
    "key": r".*",
    "any": r"[^/]*",
}
_WIDE = frozenset({"topic", "key", "any"})
_MAX_WIDE = 2
_WRITTEN = frozenset({"topic", "partition", "start_offset", "timestamp"})
_WRITTEN_ARE = (
    "{{topic}}, {{partition}}, {{start_offset}} (both may have :padding=true) and {{timestamp:unit=yyyy|MM|dd|HH}} are"
)
_READ = frozenset({*_TEXTS, "timestamp"})
_READ_ARE = (
    "{{topic}}, {{partition}}, {{start_offset}}, {{end_offset}}, {{key}}, {{any}} and {{timestamp:unit=yyyy|MM|dd|HH}}"
    " are"
)


@dataclass(frozen=True)
class Variable:
    """A variable of a template. `form` is `padded`, the unit of a timestamp (yyyy, MM, dd, HH), or empty."""

    name: str
    form: str = ""

    @property
    def width(self) -> int:
        """The number of digits of the variable, or 0 if it has as many as its number needs."""
        if not self.form:
            return 0
        return len(self.form) if self.name == "timestamp" else _WIDTHS[self.name]

    @property
    def group(self) -> str:
        """The name of the variable's group in a pattern: the unit of a timestamp, else the variable's own name."""
        return self.form if self.name == "timestamp" else self.name

    def pattern(self, *, is_exact: bool) -> str:
        """Return the regular expression of its text. A padded number has its width if `is_exact`, else any width."""
        if self.name == "timestamp" or (self.form and is_exact):
            return rf"\d{{{self.width}}}"
        return _TEXTS[self.name]


TemplatePart = str | Variable

_ANY = Variable("any")

_REWRITE: tuple[TemplatePart, ...] = ("@", Variable("ordinal"), "+", Variable("epoch"))
"""The parts of a template that match REWRITTEN."""


@dataclass(frozen=True)
class NameTemplate:
    """The texts and variables of a template in their order."""

    parts: tuple[TemplatePart, ...]

    @property
    def names(self) -> frozenset[str]:
        """The groups of the template's patterns, without those of REWRITTEN."""
        return frozenset(part.group for part in self.parts if isinstance(part, Variable) and part.name != "any")

    @property
    def last_offset(self) -> int:
        """The index of the last `start_offset`, or -1 if there is none."""
        offsets = [i for i, part in enumerate(self.parts) if isinstance(part, Variable) and part.name == "start_offset"]
        return offsets[-1] if offsets else -1

    @property
    def prefix(self) -> str:
        """The beginning of all keys."""
        if self.parts and isinstance(self.parts[0], str):
            return self.parts[0]
        return ""

    def pattern(self, *, is_exact: bool) -> str:
        """Return the regular expression of the names. It has a group for each of `names`, and the groups of REWRITTEN.

        If `is_exact`, padded numbers have the width they have in Aiven's sink. Other sinks may use another width. So
        without `is_exact`, only padded numbers next to another variable have this width, because otherwise their end
        would be unknown.
        """
        touching = self._touching()
        pieces: list[str] = []
        named: set[str] = set()
        for at, part in enumerate(self.parts):
            if isinstance(part, str):
                # The first place at which the text between two `any` is found is kept: the second `any` takes what
                # the first could take otherwise. With many `any`, a pattern that tried all places would never end.
                if self.parts[at - 1 : at] == (_ANY,) and self.parts[at + 1 : at + 2] == (_ANY,):
                    pieces[-1] = f"(?>{pieces[-1]}?{re.escape(part)})"
                else:
                    pieces.append(re.escape(part))
                continue
            if part == _ANY and self.parts[at - 1 : at] == (_ANY,):
                continue
            pieces.append(_in_group(part, part.pattern(is_exact=is_exact or at in touching), named))
            named.add(part.group)
            if at == self.last_offset:
                pieces.append(REWRITTEN)
        return "".join(pieces)

    @property
    def is_wide(self) -> bool:
        """True if `pattern` may take minutes to refuse a long name, because it has too many texts of any length."""
        wide = [part for part in self.parts if isinstance(part, Variable) and part.name in _WIDE]
        return len(wide) > _MAX_WIDE and wide != [_ANY] * len(wide)

    def linear_pattern(self, texts: Mapping[str, str]) -> str:
        """Return `pattern` as a regular expression without references, for RE2.

        A variable in `texts` (group -> text) matches this text only. `list_again` names the groups of repeated
        variables.
        """
        touching = self._touching()
        pieces: list[str] = []
        named: set[str] = set()
        for at, part in enumerate(self.parts):
            if isinstance(part, str):
                pieces.append(re.escape(part))
                continue
            text = part.pattern(is_exact=at in touching)
            if part.group in texts and part.group in named and part.name not in _NUMBERS:
                text = re.escape(texts[part.group])
            name = part.group if part.group not in named else f"{part.group}{at}"
            pieces.append(f"(?P<{name}>{text})")
            named.add(part.group)
            if at == self.last_offset:
                pieces.append(REWRITTEN)
        return "".join(pieces)

    def list_again(self) -> tuple[tuple[str, str], ...]:
        """List the repeated groups of `linear_pattern`, each with the earlier group that has the same text."""
        repeated: list[tuple[str, str]] = []
        named: set[str] = set()
        for at, part in enumerate(self.parts):
            if isinstance(part, Variable) and part.name not in {*_NUMBERS, "any"}:
                repeated += [(f"{part.group}{at}", part.group)] if part.group in named else []
                named.add(part.group)
        return tuple(repeated)

    def _touching(self) -> set[int]:
        """Find the indexes of variables of any length that have nothing but digits between them."""
        indexes: set[int] = set()
        run: list[int] = []
        for at, part in enumerate((*self.parts, "/")):
            if isinstance(part, Variable):
                run += [] if part.name == "timestamp" else [at]
            elif not part.isdecimal():
                indexes.update(run if len(run) > 1 else [])
                run = []
        return indexes


def _in_group(variable: Variable, text: str, named: set[str]) -> str:
    """Put the text into a group with the variable's name. A repeated variable has to have the same text again."""
    if variable.name == "any":
        return text
    if variable.group not in named:
        return f"(?P<{variable.group}>{text})"
    # The same number may be padded in one place and plain in the other, so the texts may differ.
    if variable.name in _NUMBERS:
        return text
    return f"(?P={variable.group})"


@lru_cache
def compile_template(text: str) -> NameTemplate:
    """Parse a template for keys to write.

    Raises:
        ValueError: a variable or parameter is not known or cannot be honoured, a required variable is missing, a folder
            is empty, `.` or `..`, or two objects could get the same key.
    """
    if any(match[1] == "key" for match in _VARIABLE.finditer(text)):
        raise ValueError("{{key}} keeps the newest record of each key and overwrites the others: an archive keeps all")
    template = NameTemplate(tuple(_parse(text, _WRITTEN, _WRITTEN_ARE)))
    for needed in ("topic", "partition", "start_offset"):
        if needed not in template.names:
            raise ValueError(f"it needs {{{{{needed}}}}}: without it two objects would get the same key")
    at = template.last_offset + 1
    folders = _split_folders([*template.parts[:at], *_REWRITE, *template.parts[at:]])
    for folder in folders:
        _check_folder(folder)
    if why := explain_bad_folders("".join(part if isinstance(part, str) else "0" for part in template.parts)):
        raise ValueError(f"its name {why}")
    if (folders[-1] and folders[-1][-1] == Variable("topic")) or _ends_in_topic_and_extension(folders[-1]):
        raise ValueError("a file's name cannot end in {{topic}}: an extension could be taken for a part of it")
    return template


@lru_cache
def compile_read_template(text: str) -> NameTemplate:
    """Parse a template for existing keys.

    Raises:
        ValueError: a variable is not known.
    """
    return NameTemplate(tuple(_parse(text, _READ, _READ_ARE)))


def _parse(text: str, names: frozenset[str], listed: str) -> Iterator[TemplatePart]:
    """Parse a template that may use variables of these names. `listed` lists them for messages."""
    start = 0
    for match in _VARIABLE.finditer(text):
        yield from _parse_literal(text[start : match.start()])
        variable = _parse_variable(match)
        if variable is None or variable.name not in names:
            raise ValueError(f"{match[0]!r} is not known; {listed}")
        yield variable
        start = match.end()
    yield from _parse_literal(text[start:])


def _parse_literal(text: str) -> Iterator[str]:
    """Yield the text between variables, if there is any. Raise ValueError if it has stray braces."""
    if "{{" in text or "}}" in text:
        raise ValueError(f"{text!r} is no variable such as {{{{topic}}}} or {{{{start_offset:padding=true}}}}")
    if text:
        yield text


def _parse_variable(match: re.Match[str]) -> Variable | None:
    """Return the variable in `{{...}}`, or None if the variable or its parameter is not known."""
    name, parameter, value = match.groups()
    if name in _TEXTS and parameter is None:
        return Variable(name)
    if name in _NUMBERS and parameter == "padding" and value in _PADDING:
        return Variable(name, _PADDING[value])
    if name == "timestamp" and parameter == "unit" and value in _UNITS:
        return Variable(name, _UNITS[value])
    return None


def _split_folders(parts: Sequence[TemplatePart]) -> list[list[TemplatePart]]:
    """Split the parts at slashes. The value of a variable holds no slash."""
    folders: list[list[TemplatePart]] = [[]]
    for part in parts:
        first, *others = part.split("/") if isinstance(part, str) else [part]
        folders[-1] += [first] if first else []
        folders += [[text] if text else [] for text in others]
    return folders


def _check_folder(folder: list[TemplatePart]) -> None:
    """Refuse the name of a folder if one cannot tell where its variables begin or end.

    The part before the topic is read from the left, and the part after it from the right. So each number of unknown
    length has to end, or begin, next to a character other than a digit.
    """
    if folder in ([], ["."], [".."]):
        raise ValueError("a folder or the file's name is empty, '.' or '..'")
    topics = [i for i, part in enumerate(folder) if part == Variable("topic")]
    if len(topics) > 1:
        raise ValueError("a folder or the file's name holds {{topic}} twice")
    at = topics[0] if topics else -1
    before = folder[: at + 1]
    after = folder[max(at, 0) :]
    ambiguous = [p for p, following in pairwise(before) if _runs_into(p, following, 0)]
    ambiguous += [p for previous, p in pairwise(after) if _runs_into(p, previous, -1)]
    if ambiguous:
        raise ValueError(
            "one cannot tell where {{" + ambiguous[0].name + "}} begins or ends: put text that is no digit between"
            " it and its neighbour"
        )


def _runs_into(part: TemplatePart, neighbour: TemplatePart, edge: int) -> TypeGuard[Variable]:
    """Return True if a part is a number whose end cannot be told from its neighbour: another variable, or a digit.

    `edge` is the index of the neighbour's character next to the part: 0 or -1.
    """
    if isinstance(part, str) or part.name == "topic" or part.form:
        return False
    return not isinstance(neighbour, str) or neighbour[edge].isdigit()


def _ends_in_topic_and_extension(folder: Sequence[TemplatePart]) -> bool:
    """Return True if a file's name ends with the topic and something like an extension."""
    tail = folder[-1]
    return folder[-2:-1] == [Variable("topic")] and isinstance(tail, str) and tail.startswith(".")


def _parse_prefix(text: str) -> str:
    """Parse the beginning of all object keys. It must not have variables."""
    if "{{" in text:
        raise ValueError("holds a placeholder; write it into file.name.template")
    folders = [folder for folder in text.split("/") if folder]
    if folders and (why := explain_bad_folders("/".join(folders))):
        raise ValueError(f"{text!r} is no beginning of keys: it {why}")
    return text


TOPICS_DIR = declare_setting(
    LayoutSettings,
    "topics_dir",
    "topics.dir",
    values.parse_folder_or_root,
    "Folder of all objects. Slashes at both ends are removed. For a source connector, `/` is the root of the bucket,"
    " and so is an empty value, as in Connect.",
    blank="/",
)
PREFIX = declare_key(
    "aws.s3.prefix",
    _parse_prefix,
    "Aiven's key: the beginning of every object key. The part up to its last slash is the folder.",
    default="",
)
PAD_WIDTH = declare_setting(
    LayoutSettings,
    "offset_pad_width",
    "filename.offset.zero.pad.width",
    values.expect_integer(0, 64),
    "How many digits the offset in an object's key is padded to.",
    for_sinks=True,
)
DIRECTORY_DELIM = declare_setting(
    LayoutSettings, "directory_delim", "directory.delim", str, "Separator between folders."
)
FILE_DELIM = declare_setting(
    LayoutSettings, "file_delim", "file.delim", str, "Separator between the parts of a file name."
)
TEMPLATE = declare_key(
    "file.name.template",
    str,
    "Aiven's key for the template of file names, folders included.",
    default="{{topic}}-{{partition}}-{{start_offset}}",
    shown="`{{topic}}-{{partition}}-{{start_offset}}`",
)


def _parse_key_layout(text: str) -> str:
    """Parse the name of a layout, or the dotted name of a user's class."""
    return values.load_plugin(text, plugins.KEY_LAYOUT) if "." in text else _LAYOUT_NAME(text)


_LAYOUT_NAME = values.expect_one_of(("connect", "block_gzip", "zooz", "template", "lenses"))
KEY_LAYOUT: TypedKey[str] = declare_setting(
    LayoutSettings,
    "key_layout",
    "archive.key.layout",
    _parse_key_layout,
    "How to name objects: `connect` as Connect's sink; `block_gzip` as DeviantArt's; `zooz` as Zooz's; `template`"
    " by `file.name.template`; or `lenses`, for source connectors only, as Lenses' sink. Or the dotted name of an"
    " allowed Python class, which runs as code.",
)
EXTENSION: TypedKey[str | None] = declare_setting(
    LayoutSettings,
    "extension",
    "archive.key.extension",
    values.parse_extension,
    "Extension of objects, without its leading dot. `.`: no extension.",
    shown="the format's own",
)
SOURCE_TEMPLATE = declare_key(
    "archive.source.template",
    str,
    "Template of the object keys below `topics.dir`, whatever tool wrote them; see"
    " [layouts](layouts.md#names-that-others-gave). For Secor:"
    " `{{topic}}/dt={{any}}/{{any}}_{{partition}}_{{start_offset}}.gz`.",
    default="",
)

NAME_KEYS: tuple[Key, ...] = (
    TOPICS_DIR,
    *declare_aliases("DeviantArt's", "s3.prefix=topics.dir"),
    PREFIX,
    *declare_aliases("Aiven's new", "file.name.prefix=aws.s3.prefix"),
    *declare_aliases("Aiven's newest", "file.prefix.template=aws.s3.prefix"),
    *declare_aliases("Aiven's old", "aws_s3_prefix=aws.s3.prefix"),
    PAD_WIDTH,
    DIRECTORY_DELIM,
    FILE_DELIM,
    TEMPLATE,
    KEY_LAYOUT,
    EXTENSION,
)


def read_names(file: ConfigFile, dialect: Dialect, output: Mapping[str, Any]) -> dict[str, Any]:
    """Read the layout of keys, their folder and their parts. `output` holds the format and the codec of objects."""
    layout = file.value_or(KEY_LAYOUT, dialect.key_layout)
    source_template = file.text(SOURCE_TEMPLATE.name) if dialect.is_source else ""
    # In files of Connect's own connectors, a template is enough to choose the layout.
    if source_template or (layout == dialect.key_layout == "connect" and TEMPLATE.name in file):
        layout = "template"
    if layout == "lenses" and not dialect.is_source:
        file.refuse(KEY_LAYOUT.name, "only read: names there hold the last offset, known when an object has ended")
    if source_template or layout != "template":
        whose = SOURCE_TEMPLATE.name if source_template else f"The layout {layout}"
        file.ignore_if_set((TEMPLATE.name,), f"{whose} names objects its own way.")
    if layout != "connect":
        own_keys = (DIRECTORY_DELIM.name, FILE_DELIM.name, PAD_WIDTH.name)
        file.ignore_if_set(own_keys, f"The layout {layout} names objects its own way.")
    return {
        "key_layout": layout,
        **_read_folder(file, dialect, layout, source_template),
        "extension": file.value_or(EXTENSION, _find_default_extension(file, dialect, output)),
        **_read_delimiters(file),
    }


def _find_default_extension(file: ConfigFile, dialect: Dialect, output: Mapping[str, Any]) -> str | None:
    """Return the extension of objects in Aiven's names, or None for the extension of the format.

    Aiven's template is the whole name. Its default ends with the codec's extension, preceded by `avro` for Avro.
    """
    if dialect.name != "aiven":
        return None
    if TEMPLATE.name in file:
        return ""
    avro = "avro" if output["format"] == "avro" else ""
    codec = CODECS.get(output["codec"])
    return (avro + (codec.suffix if codec and codec.aiven_word else "")).removeprefix(".")


def _read_delimiters(file: ConfigFile) -> dict[str, Any]:
    """Read the separators of folders and of parts of names. If one of the two is refused, both get their defaults."""
    folders = file.value(DIRECTORY_DELIM)
    parts = file.value(FILE_DELIM)
    try:
        check_delimiters(folders, parts)
    except ValueError as err:
        file.refuse("file.delim" if str(err).startswith("file.delim") else "directory.delim", str(err))
        return {"directory_delim": DIRECTORY_DELIM.unset, "file_delim": FILE_DELIM.unset}
    return {"directory_delim": folders, "file_delim": parts}


def _read_folder(file: ConfigFile, dialect: Dialect, layout: str, source_template: str) -> dict[str, Any]:
    """Read the folder of objects, and the template of their names if `layout` has one.

    Aiven's prefix sets both, since its part after the last slash begins the name. `source_template` takes precedence
    over the file's template.
    """
    parse = values.parse_folder if layout == "connect" and not dialect.is_source else values.parse_folder_or_root
    folder = file.read(TOPICS_DIR.name, parse, dialect.topics_dir)
    template = None
    prefix = file.value(PREFIX)
    if prefix and TOPICS_DIR.name in file:
        file.refuse(PREFIX.name, f"{file.name_in_file(TOPICS_DIR.name)} sets the same; keep one")
    elif prefix:
        folder = prefix.rpartition("/")[0].strip("/")
    if layout == "template":
        template = source_template or _read_template(file, prefix.rpartition("/")[2], dialect)
    return {"topics_dir": folder, "file_name_template": template}


def _read_template(file: ConfigFile, start: str, dialect: Dialect) -> str:
    """Read the template of file names, with `start` before it."""
    template = start + file.value(TEMPLATE)
    if dialect.is_source:
        return template  # `_judge_template` of sources checks it: it only reads keys
    try:
        compile_template(template)
    except ValueError as err:
        file.refuse(TEMPLATE.name if TEMPLATE.name in file else PREFIX.name, str(err))
    return template
