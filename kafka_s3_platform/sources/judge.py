"""Judges the keys in a source's bucket: selects the source's objects, and finds faults of the others.

No scan takes the platform's own documents for foreign objects.
"""

import logging
from collections.abc import Callable, Sequence

from kafka_s3_platform.config.settings import ArchiveSettings, ConnectorConfig, SourceSettings
from kafka_s3_platform.java.regex import compile_java_regex
from kafka_s3_platform.layouts.new_layout import new_key_reader
from kafka_s3_platform.layouts.segment_key import Problem, ReadKey, Refusal, is_marker, is_offsets_key, names_part
from kafka_s3_platform.sources.objects import ForeignObject, ScanReport
from kafka_s3_platform.store.objects import ObjectInfo
from kafka_s3_platform.store.promises import WRITE_CHECK

_FIELDS = ArchiveSettings.model_fields
_FOLDERS = ("index_dir", "restore_dir")
"""The settings of folders of documents: indexes; plans, progress, mappings and reports of restores."""

logger = logging.getLogger(__name__)

_WRONG: tuple[Problem, ...] = ("unparsable", "misplaced", "topic")
"""Problems of a key for `behavior.on.error` to decide."""


def is_own_document(key: str, config: ConnectorConfig) -> bool:
    """Return True if a key is a document of ours: in this connector's folders, or in the default folders."""
    configured = (getattr(config.archive, name) for name in _FOLDERS)
    default = (_FIELDS[name].default for name in _FOLDERS)
    folders = tuple(f"{folder}/" for folder in (*configured, *default))
    delims = {config.layout.directory_delim, "/"}
    return (
        key.startswith(folders)
        or key.rpartition("/")[2] == WRITE_CHECK
        or any(is_offsets_key(key, delim) for delim in delims)
    )


class KeyJudge:
    """Judges keys one by one. `report` counts odd keys, `wrong` has a line for each wrong key.

    Raises ConfigError as `new_key_reader` does.
    """

    def __init__(self, config: ConnectorConfig, topics: Sequence[str] = ()) -> None:
        self._config = config
        self._topics = tuple(topics)
        self.behavior = (config.source or SourceSettings()).behavior_on_error
        self.reader = new_key_reader(config)
        self.is_wanted = compile_topic_filter(config, self._topics)
        self.report = ScanReport()
        self.wrong: list[str] = []

    @property
    def named(self) -> Sequence[str]:
        """The topics named by the caller or the connector file. Empty: every topic in the bucket."""
        return self._topics or self._config.topics

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of all keys to judge, sorted. None lies below another one."""
        # Unless bad keys fail, an object in another topic's folder counts by its name. So all folders are listed.
        if not self.named or self._config.layout.key_layout != "connect" or self.behavior != "fail":
            return [self.reader.root]
        return sorted({f"{self.reader.root}{topic}{self.reader.delimiter}" for topic in self.named})

    def judge(self, info: ObjectInfo) -> ForeignObject | None:
        """Return the object with the facts in its key. None if it is not the source's."""
        is_folder = info.key.endswith("/") and not info.size
        if is_folder or is_own_document(info.key, self._config):
            return None  # a folder's own marker, or a document of ours
        read = self.reader.read(info.key)
        if (isinstance(read, Refusal) or not info.size) and is_marker(info.key.rpartition("/")[2]):
            self.report.add("marker")
            return None
        read_key = self._refused(read, info.key) if isinstance(read, Refusal) else read
        if read_key is None:
            return None
        if not self.is_wanted(read_key.segment.topic):
            self.report.add("other_topic")
            return None
        item = _build_object(read_key, info)
        if item.is_cold:
            self.report.add("cold", f"{item.key} lies in {item.storage_class}: it has to be thawed first")
        return item

    def refuse(self, problem: Problem, line: str) -> None:
        """Report a wrong object."""
        self.report.add(problem, line)
        self.wrong.append(line)
        if self.behavior == "log":
            logger.warning("%s", line)

    def _refused(self, refusal: Refusal, key: str) -> ReadKey | None:
        """Report a refused key. Return its facts if it is read anyway: it lies in another topic's folder."""
        line = f"object {key}: {refusal.reason}"
        if refusal.problem in _WRONG:
            self.refuse(refusal.problem, line)
        elif refusal.problem == "extension" and names_part(key):
            self.report.add("unread_part")
        elif refusal.problem == "extension" and self._is_of_other_format(key, refusal.endings):
            self.report.add("other_format", f"{line}, by which it would be read: a file of its format restores it")
        else:
            self.report.add(refusal.problem, "" if refusal.problem == "index" else line)
        return refusal.read

    def _is_of_other_format(self, key: str, endings: Sequence[str]) -> bool:
        """Return True if a key with the file's ending in place of its own would be a selected object's."""
        folder, delimiter, name = key.rpartition(self.reader.delimiter)
        parts = name.split(".")
        stems = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        reads = (self.reader.read(f"{folder}{delimiter}{stem}{endings[0]}") for stem in stems)
        return any(isinstance(read, ReadKey) and self.is_wanted(read.segment.topic) for read in reads)


def compile_topic_filter(config: ConnectorConfig, topics: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function to select topics: by `topics`, else by the file. Without both, it selects all."""
    named = set(topics or config.topics)
    if named:
        return named.__contains__
    if config.topics_regex is None:
        return lambda _: True
    pattern = compile_java_regex(config.topics_regex)
    return lambda topic: pattern.fullmatch(topic) is not None


def _build_object(read: ReadKey, info: ObjectInfo) -> ForeignObject:
    segment = read.segment
    return ForeignObject(
        topic=segment.topic,
        kafka_partition=segment.kafka_partition,
        first_offset=segment.first_offset,
        encoded_partition=segment.encoded_partition,
        part=read.part,
        key=info.key,
        size=info.size,
        etag=info.etag,
        storage_class=info.storage_class,
        window=read.window,
        is_tombstone=read.is_tombstone,
        last_offset=read.last_offset,
    )
