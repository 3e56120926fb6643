"""Finds the objects of a source: lists a bucket, judges each key, and returns the objects in the order of reading.

A key is the source's, or has a fault, or is ignored. No scan takes the platform's own documents for foreign objects.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from kafka_s3_platform.connect.sources.objects import (
    ForeignObject,
    ScanReport,
    group_objects,
    has_record_offsets,
    order_by_name,
)
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    SourceSettings,
    compile_topic_filter,
)
from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, IntegrityError
from kafka_s3_platform.core.layouts.new_layout import new_key_reader
from kafka_s3_platform.core.layouts.segment_key import Problem, ReadKey, Refusal, is_marker, is_offsets_key, names_part
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.store.promises import WRITE_CHECK

_FIELDS = ArchiveSettings.model_fields
_FOLDERS = ("index_dir", "restore_dir")
"""The settings for folders of documents: one for indexes, one for restores' plans, progress, mappings and reports."""

logger = logging.getLogger(__name__)

_WRONG_KEY_PROBLEMS: tuple[Problem, ...] = ("unparsable", "misplaced", "topic")
"""The problems of a key about which `behavior.on.error` decides."""

LISTED_OUTSIDE = 100_000
"""The most keys listed to count objects outside `topics.dir`. A bucket may hold millions."""

_PROBLEM_TEXTS: Mapping[Problem, str] = {
    "outside": "lie outside of that folder",
    "extension": "end otherwise",
    "other_format": "are named as objects of the topic, but for their endings",
    "unread_part": "hold keys or headers, which the file does not read",
    "index": "are indexes of the blocks of others",
    "marker": "are markers of Spark, Hadoop and the like",
    "other_topic": "are of other topics",
    "unparsable": "have unreadable names",
    "misplaced": "lie in folders that are not the partitioner's",
    "topic": "lie in the folder of another topic",
    "duplicate": "begin where another does",
    "incomplete": "lack the values, keys or headers of their records",
    "cold": "lie in cold storage",
}

# The most lines in an error message. The report keeps more.
_NAMED = 10

FirstPlace = tuple[str, int, int | None]
"""A topic, a kafka partition and the first offset, or None if the key has none."""


def is_own_document(key: str, config: ConnectorConfig) -> bool:
    """Return True if a key is one of the platform's documents, in this connector's folders or in the default ones."""
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
    """Decides for each key if it is an object of the source. `report` counts odd keys, `wrong` lists wrong ones.

    Raises ConfigError as `new_key_reader` does.
    """

    def __init__(self, config: ConnectorConfig, topics: Sequence[str] = ()) -> None:
        self._config = config
        self._named_topics = tuple(topics) or config.topics
        self.behavior = (config.source or SourceSettings()).behavior_on_error
        self.reader = new_key_reader(config)
        self.is_wanted = compile_topic_filter(config, tuple(topics))
        self.report = ScanReport()
        self.wrong: list[str] = []

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of all keys to judge, sorted. No prefix lies below another."""
        # Unless bad keys are errors, an object in another topic's folder counts by its name. So all folders are listed.
        if not self._named_topics or self._config.layout.key_layout != "connect" or self.behavior != "fail":
            return [self.reader.root]
        return sorted({f"{self.reader.root}{topic}{self.reader.delimiter}" for topic in self._named_topics})

    def judge(self, info: ObjectInfo) -> ForeignObject | None:
        """Return the object with the facts in its key, or None if it is not the source's."""
        is_folder = info.key.endswith("/") and not info.size
        if is_folder or is_own_document(info.key, self._config):
            return None  # a folder's own marker, or a document of ours
        result = self.reader.read(info.key)
        if (isinstance(result, Refusal) or not info.size) and is_marker(info.key.rpartition("/")[2]):
            self.report.add("marker")
            return None
        read_key = self._report_refusal(result, info.key) if isinstance(result, Refusal) else result
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

    def _report_refusal(self, refusal: Refusal, key: str) -> ReadKey | None:
        """Report a refused key. Return its facts if it is read anyway, since it only lies in another topic's folder."""
        line = f"object {key}: {refusal.reason}"
        if refusal.problem in _WRONG_KEY_PROBLEMS:
            self.refuse(refusal.problem, line)
        elif refusal.problem == "extension" and names_part(key):
            self.report.add("unread_part")
        elif refusal.problem == "extension" and self._has_other_format(key, refusal.endings):
            self.report.add("other_format", f"{line}, by which it would be read: a file of its format restores it")
        else:
            self.report.add(refusal.problem, "" if refusal.problem == "index" else line)
        return refusal.read

    def _has_other_format(self, key: str, endings: Sequence[str]) -> bool:
        """Return True if a key would be a selected object's if it had the file's ending in place of its own."""
        folder, delimiter, name = key.rpartition(self.reader.delimiter)
        parts = name.split(".")
        stems = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        results = (self.reader.read(f"{folder}{delimiter}{stem}{endings[0]}") for stem in stems)
        return any(isinstance(read, ReadKey) and self.is_wanted(read.segment.topic) for read in results)


def _build_object(read: ReadKey, info: ObjectInfo) -> ForeignObject:
    """Combine the facts about an object from a listing and from its key."""
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


class SourceListing:
    """Lists the objects of a source, by topic, kafka partition and first offset.

    It lists the objects of `topics`, or else of the topics in the connector's file, or else of every topic in the
    bucket. `named_topics` are these topics, or empty for every topic. `report` is complete after the iteration.

    Each iteration lists the bucket again and finds new objects and folders. Of two objects at the same offset, it keeps
    the one whose key is in `preferred`.

    Raises:
        ConfigError: no topics are named, and the sink's routers leave open how they name the topics of objects.

    Raises (when iterated):
        IntegrityError: a key cannot be read, or an object is misplaced, repeated or incomplete, and
            `behavior.on.error` is `fail`.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        topics: Sequence[str] = (),
        store: ObjectStore | None = None,
        preferred: Container[str] = (),
    ) -> None:
        if config.unnamed_topics and not topics:
            raise ConfigError(config.unnamed_topics)
        self._config = config
        self._topics = tuple(topics)
        self._preferred = preferred
        self._store = store or ObjectStore(config.store)
        self.named_topics = self._topics or config.topics
        self.report = ScanReport()

    def describe_search(self) -> str:
        """Describe the topics and the folder of the search, and the other objects there."""
        layout = self._config.layout
        root = new_key_reader(self._config).root
        pattern = f"topics.regex {self._config.topics_regex}" if self._config.topics_regex else "any topic"
        topic = self.named_topics[0] if self.named_topics else "<topic>"
        settings = f"layout {layout.key_layout}, partitioner {layout.partitioner}, format {layout.format}"
        others = "".join(f"; {count:,} others {_PROBLEM_TEXTS[kind]}" for kind, count in self.report.counts.items())
        lines = "".join(f"; {line}" for line in self.report.lines[:_NAMED] if line.startswith("object "))
        return (
            f"{', '.join(self.named_topics) or pattern} was looked for below {self._store.uri(root)} ({settings}"
            f"{self._make_example(topic)}){others}{lines}"
        )

    def _make_example(self, topic: str) -> str:
        """Return an example of an object's key for a message, or an empty text if its folder needs a record's value."""
        try:
            keys = make_sample_keys(self._config, Sample(topic, self._config.archive.start_hour))
        except ConfigError:
            return ""  # such as a folder made from a record's value
        return f", such as {keys[0]}"

    def __iter__(self) -> Iterator[ForeignObject]:
        """List, judge and order the objects. Fill `report`. Raise IntegrityError for wrong ones if not tolerated."""
        judge = KeyJudge(self._config, self._topics)
        self.report = judge.report
        reader = judge.reader
        by_key: dict[str, ForeignObject] = {}
        for info in chain.from_iterable(map(self._store.list, judge.prefixes)):
            item = judge.judge(info)
            if item is not None:
                by_key[item.key] = item
        # Of objects at the same offset, the first one is kept. Preferred keys come first.
        ordered = sorted(
            by_key.values(), key=lambda o: (*o.order, o.key not in self._preferred, order_by_name(o.key, o.place))
        )
        objects = self._drop_incomplete(self._drop_duplicates(ordered, judge), judge)
        wrong = judge.wrong
        if wrong and judge.behavior == "fail":
            more_text = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise IntegrityError(
                f"{self._store.uri(reader.root)}: {'; '.join(wrong[:_NAMED])}{more_text}. Correct the folder, the"
                f" layout and the format of the source's file; or set behavior.on.error to ignore or log, which leaves"
                f" them out"
            )
        for topic in self.named_topics:
            if not any(o.topic == topic for o in objects):
                self.report.lines.append(f"no object of topic {topic} was found below {self._store.uri(reader.root)}")
        self.report.lines.extend(reader.notes if objects else ())
        self._count_outside(reader.root)
        yield from objects

    def _drop_duplicates(self, objects: Sequence[ForeignObject], judge: KeyJudge) -> list[ForeignObject]:
        """Leave out objects that begin at another one's offset, since both hold its record, whatever their folders are.

        If records have their own offsets, records repeated in two folders are found later, when they are read.
        """
        by_folder = has_record_offsets(self._config)
        first_keys: dict[tuple[object, ...], str] = {}
        distinct = []
        for item in objects:
            folder = item.encoded_partition if by_folder else None
            name = (item.topic, item.kafka_partition, item.place, folder, item.part)
            if item.place is not None and name in first_keys:
                verb = "ends" if item.first_offset is None else "begins"
                line = f"object {item.key}: it {verb} where {first_keys[name]} does, so records would come twice"
                judge.refuse("duplicate", line)
                continue
            first_keys[name] = item.key
            distinct.append(item)
        return distinct

    def _drop_incomplete(self, objects: Sequence[ForeignObject], judge: KeyJudge) -> list[ForeignObject]:
        """Leave out objects if the values, keys or headers of the same records are missing."""
        left_out: set[str] = set()
        for objects_of_records in (s for group in group_objects(objects) for s in group.sets):
            if line := objects_of_records.explain_missing_parts(self._config.layout):
                judge.refuse("incomplete", line)
                left_out.update(o.key for o in objects_of_records.objects)
        return [o for o in objects if o.key not in left_out]

    def _count_outside(self, root: str) -> None:
        """Count objects outside the source's folder, for errors, if the bucket may be listed."""
        if not root:
            return
        try:
            keys = (info.key for info in islice(self._store.list(""), LISTED_OUTSIDE))
            count = sum(not key.startswith(root) and not is_own_document(key, self._config) for key in keys)
        except AuthorizationError:
            self.report.lines.append(f"objects outside of {root} were not counted: no right to list the bucket")
            return
        if count:
            self.report.counts["outside"] = count


def read_places(
    config: ConnectorConfig, topics: Sequence[str], objects: Iterable[ForeignObject]
) -> Iterator[FirstPlace | str]:
    """Yield the place in the key of each object, or the reason why the object is not restored."""
    reader = new_key_reader(config)
    is_wanted = compile_topic_filter(config, tuple(topics))
    for item in objects:
        is_below = item.key.startswith(reader.root) and not is_own_document(item.key, config)
        read = reader.read(item.key) if is_below else None
        read_key = read.read if isinstance(read, Refusal) else read
        if read_key is None or not is_wanted(read_key.segment.topic):
            yield f"none that this connector reads below {reader.root or 'its bucket'}"
        else:
            yield read_key.segment.topic, read_key.segment.kafka_partition, read_key.segment.first_offset
