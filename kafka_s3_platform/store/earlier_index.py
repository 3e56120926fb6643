"""The indexes of earlier versions: one Delta table for each topic. They are read, and never written.

`kafka-s3 move-index` takes them over into the one table of their connector. Before that, it freezes each: it commits
that readers and writers need a feature of ours. delta-rs then refuses the table and names that feature, and so does
each earlier version of this package. The version before can still be opened.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import ConfigError, IndexDamagedError
from kafka_s3_platform.model.segment import StoredChunk
from kafka_s3_platform.store.errors import PreconditionError
from kafka_s3_platform.store.index_reads import (
    CHUNK_COLUMNS,
    LATE_COLUMNS,
    DataFile,
    collect_chunks,
    list_data_files,
    list_late_terms,
    read_rows,
    select_distinct,
    sum_late,
)
from kafka_s3_platform.store.index_table import Handle, IndexTable
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.row_filter import OneOf, SegmentFilter, match_values

MOVED = "kafka-s3-platform: this index was moved into that of its connector; later versions of this package read it"
"""The feature that a frozen table asks for. An earlier version shows it in its error."""


class EarlierSnapshot:
    """The index of one topic at one version, as an earlier version of this package has left it. Only reads."""

    def __init__(self, table: IndexTable, handle: Handle, topic: str) -> None:
        self.table = table
        self._handle = handle
        self._topic = topic
        self.version: int = handle.table.version()

    @property
    def table_id(self) -> str:
        return str(self._handle.table.metadata().id)

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp((self._handle.table.metadata().created_time or 0) / 1000, timezone.utc)

    @cached_property
    def _files(self) -> tuple[DataFile, ...]:
        return list_data_files(self.table, self._handle)

    @cached_property
    def _state_rows(self) -> pa.Table:
        return read_rows(self.table, self._files, "state")

    def read_state_rows(self, topic: str) -> pa.Table:
        """Return the rows that are no segments. Raises store errors."""
        self._refuse_another(topic)
        return self._state_rows

    def read_segment_rows(self, topic: str, kind: str, wanted: SegmentFilter) -> pa.Table:
        """Return the rows of segments that the filter wants. Raises store errors."""
        self._refuse_another(topic)
        return read_rows(self.table, self._files, "segments", [*match_values(kind=kind), *wanted.list_terms()])

    def list_chunks(self, topic: str, kinds: Collection[str], wanted: SegmentFilter) -> frozenset[StoredChunk]:
        """Return the hours or days of the segments that the filter wants."""
        self._refuse_another(topic)
        terms = [OneOf("kind", frozenset(kinds)), *wanted.list_terms()]
        rows = select_distinct(read_rows(self.table, self._files, "segments", terms, CHUNK_COLUMNS), CHUNK_COLUMNS)
        topics = pa.array([topic] * rows.num_rows, pa.string())
        return collect_chunks(rows.append_column("topic", topics)).get(topic, frozenset())

    def count_late(self, topic: str, since: datetime) -> tuple[int, int]:
        """Return how many records the hours from `since` on hold, and how many of these came late."""
        self._refuse_another(topic)
        rows = read_rows(self.table, self._files, "segments", list_late_terms(since), LATE_COLUMNS)
        topics = pa.array([topic] * rows.num_rows, pa.string())
        return sum_late(rows.append_column("topic", topics)).get(topic, (0, 0))

    def list_folders(self, topic: str) -> frozenset[str]:
        """Return the folders of all segments. Raises store errors."""
        self._refuse_another(topic)
        rows = read_rows(self.table, self._files, "segments", columns=("encoded_partition",))
        return frozenset(pc.unique(rows.column(0)).to_pylist())

    def has_rows(self, topic: str) -> bool:
        """Return True: an earlier index belongs to its topic, whatever it holds."""
        self._refuse_another(topic)
        return True

    def read_all_rows(self) -> pa.Table:
        """Return every row. Raises store errors."""
        return read_rows(self.table, self._files, "all")

    def list_write_times(self) -> Mapping[int, datetime]:
        """Return nothing: when the versions were written is looked at only to repair an index."""
        return {}

    def _refuse_another(self, topic: str) -> None:
        if topic != self._topic:
            raise IndexDamagedError(f"{self.table.uri} is the index of topic {self._topic}, not of {topic}")


@dataclass(frozen=True)
class EarlierIndex:
    """The index that an earlier version of this package kept of one topic, which need not exist."""

    store: StoreSettings
    index_dir: str
    connector: str
    topic: str

    @property
    def table(self) -> IndexTable:
        return IndexTable(self.store, f"{self.index_dir}/{self.connector}/{self.topic}")

    def peek(self) -> EarlierSnapshot | None:
        """Return the index as it is now, or as it was when it was frozen; None if there is none."""
        try:
            frozen = self.find_frozen_version()
            return EarlierSnapshot(self.table, self.table.open(None if frozen is None else frozen - 1), self.topic)
        except TableNotFoundError:
            return None

    def find_frozen_version(self) -> int | None:
        """Return the version that froze the table, None if it is not frozen."""
        newest = max(self._list_log_versions(), default=None)
        if newest is None or MOVED.encode() not in ObjectStore(self.store).get(self.table.name_log_entry(newest)):
            return None
        return newest

    def freeze(self) -> int:
        """Let nobody read or commit any more. Return the last version that has rows. A second call changes nothing.

        The commit is create-only, as each commit of Delta is: a run that commits at the same moment is before it, or is
        refused.
        """
        while True:
            frozen = self.find_frozen_version()
            if frozen is not None:
                return frozen - 1
            version = max(self._list_log_versions())
            protocol = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [MOVED],
                "writerFeatures": [MOVED],
            }
            try:
                entry = json.dumps({"protocol": protocol}).encode()
                ObjectStore(self.store).put_new(self.table.name_log_entry(version + 1), entry)
            except PreconditionError:
                continue
            return version

    def _list_log_versions(self) -> Iterator[int]:
        return (number for number, _ in self.table.list_log_entries())


def list_earlier_topics(store: StoreSettings, index_dir: str, connector: str) -> list[str]:
    """List the topics of which an earlier version of this package keeps an index. Raises store errors."""
    prefix = f"{index_dir}/{connector}/"
    return sorted(found.removeprefix(prefix).rstrip("/") for found in ObjectStore(store).list_prefixes(prefix))


def build_move_error(store: StoreSettings, folders: list[str]) -> ConfigError:
    """Build the error of a run that would write beside the indexes of an earlier version."""
    connector = folders[0].split("/")[-2]
    places = ", ".join(f"s3://{store.bucket}/{folder}" for folder in folders[:3])
    return ConfigError(
        f"connector {connector}: an earlier version of this package kept an index for each topic ({places}"
        f"{', ...' if len(folders) > 3 else ''}), and this version keeps one for all topics of a connector. Nothing "
        f"was changed. Stop the earlier version everywhere, look at what `kafka-s3 move-index {connector} --dry-run` "
        f"prints, and run it without --dry-run. Until then, the archive can be read and restored, and nothing is "
        f"archived"
    )
