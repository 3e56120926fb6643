"""What keys tell of objects, in the layouts of the sinks that people come from, or why they tell nothing."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_s3_platform.config.java_regex import compile_java_regex
from kafka_s3_platform.config.plugins import FORMAT, load_class
from kafka_s3_platform.config.read_template import ReadTemplate, compile_read_template
from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.compression import SUFFIXES
from kafka_s3_platform.formats.parquet import EXTENSIONS
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.partitioners.folders import Window, new_folders, window_of
from kafka_s3_platform.partitioners.keys import OFFSET, TOPIC
from kafka_s3_platform.sources.objects import Problem

_PART_NAMES: Mapping[str, ObjectPart] = {"keys": "key", "headers": "headers"}
_INDEXES = re.compile(r"(last_chunk_index\..*|.*\.index\.json)")


@dataclass(frozen=True, slots=True)
class Told:
    """What a key tells."""

    topic: str
    kafka_partition: int
    first_offset: int | None
    encoded_partition: str
    part: ObjectPart = "value"
    window: Window | None = None
    is_tombstone: bool = False
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object is not read as its key stands. `told` is what its file name alone says, where it says something."""

    problem: Problem
    reason: str
    told: Told | None = None


class KeyReader(Protocol):
    """Reads keys below `root`. `notes` say what they cannot tell."""

    root: str
    notes: tuple[str, ...]

    def read(self, key: str) -> Told | Refusal:
        """What the key tells; it begins with `root`."""
        ...


def new_key_reader(config: ConnectorConfig) -> KeyReader:
    """The reader of the layout of a source's file.

    Raises:
        ConfigError: the layout needs a topic by name, or a class of the user's cannot be loaded.
    """
    layouts: Mapping[str, Callable[[ConnectorConfig], KeyReader]] = {
        "connect": ConnectReader,
        "block_gzip": BlockGzipReader,
        "zooz": ZoozReader,
        "template": TemplateReader,
        "lenses": LensesReader,
    }
    return layouts[config.layout.key_layout](config)


def wanted_topics(config: ConnectorConfig, topics: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a topic is asked for: by the caller, else by the file; a file that names none asks for all."""
    named = set(topics or config.topics)
    if named:
        return named.__contains__
    if config.topics_regex is None:
        return lambda _: True
    pattern = compile_java_regex(config.topics_regex)
    return lambda topic: pattern.fullmatch(topic) is not None


def endings(layout: LayoutSettings, part: ObjectPart) -> tuple[str, ...]:
    """How the names of objects may end, the longest first, whatever they are compressed with. Empty: anyhow."""
    format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[part] or ""
    if part == "value" and layout.extension is not None:
        found = {f".{layout.extension.removeprefix('.')}"} if layout.extension else {""}
    else:
        found = {f".{name}" for name in _extensions(format_name, layout)}
    prefix = next((f".{name}" for name, own in _PART_NAMES.items() if own == part), "")
    return tuple(sorted((prefix + ending for ending in found), key=len, reverse=True))


def _extensions(format_name: str, layout: LayoutSettings) -> set[str]:
    match format_name.removeprefix("envelope."):
        case "avro":
            return {"avro"}
        case "json":
            return {f"json{suffix}" for suffix in SUFFIXES.values()}
        case "bytes":
            return {f"{layout.bytes_extension.removeprefix('.')}{suffix}" for suffix in SUFFIXES.values()}
        case "parquet":
            return set(EXTENSIONS.values())
        case "block_gzip":
            return {"gz"}
    own: str = getattr(load_class(format_name, FORMAT), "extension", "")
    return {own.removeprefix(".")}


class ConnectReader:
    """Confluent's: `<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset>.<extension>`."""

    notes: tuple[str, ...] = ()

    def __init__(self, config: ConnectorConfig) -> None:
        layout = self._layout = config.layout
        self.root = f"{layout.topics_dir}{layout.directory_delim}" if layout.topics_dir else ""
        self._folders = new_folders(layout)
        delim = re.escape(layout.file_delim)
        self._name = re.compile(rf"(?P<topic>{TOPIC}){delim}(?P<partition>\d+){delim}{OFFSET}", re.ASCII)
        self._endings = {ending: part for part in _parts(layout) for ending in endings(layout, part)}

    def read(self, key: str) -> Told | Refusal:
        delim = self._layout.directory_delim
        topic, _, rest = key.removeprefix(self.root).partition(delim)
        encoded, _, name = rest.rpartition(delim)
        ending = next((e for e in sorted(self._endings, key=len, reverse=True) if name.endswith(e)), None)
        if _INDEXES.fullmatch(name):
            return Refusal("index", "it is an index of the blocks of others")
        if ending is None or re.search(rf"\.({'|'.join(_PART_NAMES)})\Z", name.removesuffix(ending)):
            return Refusal("extension", f"its name does not end in {' or '.join(self._endings)}")
        match = self._name.fullmatch(name.removesuffix(ending))
        if match is None:
            return Refusal("unparsable", f"its name is not {self._form}{ending}")
        told = Told(match["topic"], int(match["partition"]), int(match["offset"]), encoded, self._endings[ending])
        return self._placed(told, topic)

    @property
    def _form(self) -> str:
        return self._layout.file_delim.join(("<topic>", "<kafka partition>", "<first offset>"))

    def _placed(self, told: Told, topic: str) -> Told | Refusal:
        encoded = told.encoded_partition
        if encoded == self._layout.tombstone_partition and encoded:
            found = replace(told, is_tombstone=True)
        else:
            folder = self._folders.folder(encoded) if encoded else None
            if folder is None:
                return Refusal("misplaced", f"its folder {encoded!r} is none of {self._layout.partitioner}'s")
            if folder.kafka_partition not in {None, told.kafka_partition}:
                return Refusal(
                    "misplaced", f"its name says kafka partition {told.kafka_partition}, its folder {encoded}"
                )
            found = replace(told, window=folder.window)
        if topic != told.topic:
            return Refusal("topic", f"its name says topic {told.topic}, its folder {topic}", found)
        return found


def _parts(layout: LayoutSettings) -> tuple[ObjectPart, ...]:
    wanted: Mapping[ObjectPart, str | None] = {
        "value": layout.format,
        "key": layout.keys_format,
        "headers": layout.headers_format,
    }
    return tuple(part for part, name in wanted.items() if name)


class _TimeFolders:
    """`<topics.dir>/<time folders>/<name>`."""

    notes: tuple[str, ...] = ()

    def __init__(self, config: ConnectorConfig, name: str) -> None:
        layout = config.layout
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self._folders, self._endings = new_folders(layout), endings(layout, "value")
        self._name = re.compile(name, re.ASCII)
        self._topic = config.topics[0] if len(config.topics) == 1 else ""

    def read(self, key: str) -> Told | Refusal:
        encoded, _, name = key.removeprefix(self.root).rpartition("/")
        if _INDEXES.fullmatch(name):
            return Refusal("index", "it is an index of the blocks of others")
        ending = next((e for e in self._endings if name.endswith(e)), None)
        if ending is None:
            return Refusal("extension", f"its name does not end in {' or '.join(self._endings)}")
        match = self._name.fullmatch(name.removesuffix(ending))
        if match is None:
            return Refusal("unparsable", "its name tells no kafka partition and first offset")
        folder = self._folders.folder(encoded)
        if folder is None:
            return Refusal("misplaced", f"its folder {encoded!r} is no time folder")
        topic = match.groupdict().get("topic") or self._topic
        return Told(topic, int(match["partition"]), int(match["offset"]), encoded, window=folder.window)


class BlockGzipReader(_TimeFolders):
    """DeviantArt's: `<s3.prefix>/<YYYY-MM-DD>/<topic>-<5 digits>-<12 digits>.gz`."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(config, rf"(?P<topic>{TOPIC})-(?P<partition>\d{{5,}})-(?=\d{{12}}){OFFSET}")


class ZoozReader(_TimeFolders):
    """Zooz's: `<root>/date=<date>/hour=<hour>/<kafka partition>_<first offset>.<extension>`, all of one topic."""

    def __init__(self, config: ConnectorConfig) -> None:
        if len(config.topics) != 1:
            raise ConfigError("keys of the layout zooz tell no topic: name the one that they are of in `topics`")
        super().__init__(config, rf"(?P<partition>\d+)_{OFFSET}")


class LensesReader:
    """Lenses' S3 sink's: `.../<topic>/<kafka partition>/<last offset>_<earliest>_<latest>.<extension>`.

    With PARTITIONBY or NOPARTITION `.../<topic>(<kafka partition>_<last offset>).<extension>`, in any folders. Numbers
    are padded or not. The times are those of the records.
    """

    _ENDINGS: Mapping[str, tuple[str, ...]] = {"json": (".json", ".gz"), "bytes": (".text",)}
    _NUMBERS = r"(?:partition=)?(?P<partition>\d+)/(?P<offset>\d+)(?:_(?P<earliest>-?\d+)_(?P<latest>-?\d+))?"
    _SUFFIX = r"(?:[^0-9/][^/]*)?"
    _OWN = re.compile(r"\.(indexes|temp-upload)")

    def __init__(self, config: ConnectorConfig) -> None:
        layout = config.layout
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        kind = layout.format.rpartition(".")[2]
        own = (f".{layout.extension}",) if layout.extension else ()
        self._endings = own or self._ENDINGS.get(kind, (f".{kind}",))
        folders = rf"(?:.*/)?(?:topic=)?(?P<topic>{TOPIC})/{self._NUMBERS}{self._SUFFIX}"
        names = rf"(?:.*/)?(?P<topic>{TOPIC})\((?P<partition>\d+)_(?P<offset>\d+)\){self._SUFFIX}"
        self._names = [re.compile(name, re.ASCII | re.DOTALL) for name in (names, folders)]
        self.notes: tuple[str, ...] = _of_envelope(layout)

    def read(self, key: str) -> Told | Refusal:
        # Below the folder of the source, which may be that of the topic itself, the whole key tells the topic.
        if self._OWN.match(key):
            return Refusal("index", "it is a document of Lenses' own")
        ending = next((e for e in self._endings if key.endswith(e)), None)
        if ending is None:
            return Refusal("extension", f"its name does not end in {' or '.join(self._endings)}")
        found = (name.fullmatch(key.removesuffix(ending)) for name in self._names)
        match = next((m for m in found if m is not None), None)
        if match is None:
            return Refusal("unparsable", "its name is not of the sink's: it tells no topic, kafka partition and offset")
        folder, times = key.removeprefix(self.root).rpartition("/")[0], match.groupdict()
        first, last = int(times.get("earliest") or -1), int(times.get("latest") or -1)
        window = (first, last + 1) if 0 <= first <= last else None
        number, offset = int(match["partition"]), int(match["offset"])
        return Told(match["topic"], number, None, folder, window=window, last_offset=offset)


def _of_envelope(layout: LayoutSettings) -> tuple[str, ...]:
    if not layout.format.startswith("lenses."):
        return ()
    told = "Lenses' envelope keeps headers as a map: their order, and all but one of those of one name, are not known"
    if layout.format == "lenses.json":
        told += "; headers of bytes are base64 there, and stay so without header.converter=ByteArrayConverter"
    return (told,)


class TemplateReader:
    """Keys below `topics.dir` by a template; what it does not name is not known."""

    def __init__(self, config: ConnectorConfig) -> None:
        layout = self._layout = config.layout
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self._templates = [(part, _compiled(name)) for part, name in _names(layout)]
        self._ending = _ending(template_of_values(layout))
        self._topic = config.topics[0] if len(config.topics) == 1 else ""
        if "topic" not in self._templates[-1][1].names and not self._topic:
            template = layout.file_name_template
            raise ConfigError(f"the template {template!r} names no topic: name the one that all objects are of")
        self.notes = (*_notes(self._templates[-1][1].names, layout), *_of_envelope(layout))

    def read(self, key: str) -> Told | Refusal:
        name = key.removeprefix(self.root)
        for part, template in self._templates:
            if match := template.pattern.fullmatch(name):
                return self._told(match, name.rpartition("/")[0], part)
        if name.endswith(self._ending):
            return Refusal("unparsable", "its name is not of the template")
        return Refusal("extension", f"its name does not end in {self._ending}")

    def _told(self, match: re.Match[str], folder: str, part: ObjectPart) -> Told | Refusal:
        found = {name: text for name, text in match.groupdict().items() if text is not None}
        first, last = (int(found[name]) if name in found else None for name in ("start_offset", "end_offset"))
        if first is not None and last is not None and last < first:
            return Refusal(
                "unparsable", f"its name says that it ends with offset {last}, before it begins with {first}"
            )
        return Told(
            found.get("topic", self._topic),
            int(found.get("partition", 0)),
            first,
            folder,
            part,
            window_of({n: int(found[n]) for n in ("yyyy", "MM", "dd", "HH") if n in found}, self._layout.timezone),
            is_tombstone=part != "value" and folder.rpartition("/")[2] == self._layout.tombstone_partition,
            last_offset=last,
        )


def _names(layout: LayoutSettings) -> Iterator[tuple[ObjectPart, str]]:
    """The names of keys and headers, by their own extensions, before that of values, which might be any."""
    whole = template_of_values(layout)
    stem = whole.removesuffix(_ending(whole))
    for part in _parts(layout):
        if part != "value":
            yield from ((part, stem + ending) for ending in endings(layout, part))
    yield "value", whole


def _notes(names: frozenset[str], layout: LayoutSettings) -> Iterator[str]:
    """What there is to say of keys by a template that tells so much and no more."""
    if "key" in names:
        yield (
            "keys hold {{key}}: where a sink groups by the key, an object holds the last record of its key when it was"
            " written, and the earlier ones are in no object; the key of a name is not given back to its record"
        )
    if "partition" not in names:
        yield "keys tell no kafka partition: all records count as those of kafka partition 0"
    if "yyyy" in names and layout.timestamp_extractor == "Wallclock":
        yield "the times in keys tell when records were archived, not their own timestamps"


def template_of_values(layout: LayoutSettings) -> str:
    """What the keys of values below `topics.dir` are, as a template, their extension included."""
    template = layout.file_name_template or ""
    extension = f".{layout.extension}" if layout.extension else ""
    return template if template.endswith(extension) else template + extension


def _compiled(template: str) -> ReadTemplate:
    try:
        return compile_read_template(template)
    except ValueError as err:
        raise ConfigError(f"the template of keys: {err}") from err


def _ending(template: str) -> str:
    """What every key of a template ends with: the extension that stands in it, or nothing."""
    tail = re.split(r"\}\}", template)[-1]
    return tail[tail.index(".") :] if "." in tail else ""
