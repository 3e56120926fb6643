"""Checks what Parquet objects of the archive claim of their sizes, before Arrow decodes what it has read of them.

Arrow decodes a row group as a whole, and by default as many at once as have two million records. So the pages of each
are checked as their bytes pass, as a restore checks them, and a dataset decodes one row group of an object at a time.
"""

import io
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.damage import build_limit_error
from kafka_s3_platform.formats.envelope.parquet import ROW_GROUP_BYTES, ROW_GROUP_RECORDS, EnvelopeReader, name_damage
from kafka_s3_platform.formats.parquet.pages import TAIL_BYTES, RowGroup, RowGroupPages
from kafka_s3_platform.model.limits import ReadLimits
from kafka_s3_platform.model.segment import StoredObject
from kafka_s3_platform.store.objects import ObjectStore, SizedFile


class CheckedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """Arrow's dataset, which decodes one row group of an object at a time, whatever `batch_readahead` says."""

    def scanner(self, *columns: Any, **options: Any) -> ds.Scanner:
        return super().scanner(*columns, **{**options, "batch_readahead": 0})


class ArrowObject(SizedFile):
    """A Parquet object that is read when Arrow asks. It keeps the footer until Arrow has it, and nothing else.

    Reading raises IntegrityError if the object was replaced, is damaged, or exceeds `limits`.
    """

    def __init__(self, store: ObjectStore, archived_object: StoredObject, limits: ReadLimits) -> None:
        super().__init__(archived_object.key, archived_object.size)
        self._store = store
        self._stored = archived_object
        self._etag = archived_object.etag
        self._limits = limits
        # A row group that we write ends with the record that exceeds ROW_GROUP_BYTES. The rest is for short columns.
        self._max_decoded = limits.block_bytes + 2 * ROW_GROUP_BYTES
        self._tail = b""
        self._is_opened = False
        self._row_groups: tuple[RowGroup, ...] = ()
        self._starts = self._ends = np.empty(0, np.int64)
        self._is_checked = np.empty(0, bool)
        self._decoded = np.empty(0)

    def read(self, size: int | None = -1, /) -> bytes:
        start = self._at
        if not self._is_opened:
            self._is_opened = True
            self._tail = self._fetch(max(self._size - TAIL_BYTES, 0), self._size)
            try:
                self._check_footer()
            except BaseException:
                self._is_opened = False
                raise
            self._at = start
        end = self._at = start + self._count_available(size)
        kept_from = self._size - len(self._tail)
        data = self._tail[start - kept_from : end - kept_from] if start >= kept_from else self._fetch(start, end)
        self._tail = max(self._tail, data, key=len) if end == self._size else b""
        if end < self._size:
            self._check_columns(start, data)
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        try:
            return self._store.read_range(self._stored.key, start, end, self._etag) if start < end else b""
        except IntegrityError:
            # A copy of the object has another ETag. If it is one, its ETag is that to ask for.
            refused, self._etag = self._etag, self._store.open_stored(self._stored).info.etag
            if self._etag == refused:
                raise
        return self._store.read_range(self._stored.key, start, end, self._etag)

    def _check_footer(self) -> None:
        with name_damage(self._stored.key):
            row_groups = EnvelopeReader(self, self._stored.key, self._limits).row_groups
            chunks = list(chain.from_iterable(group.chunks for group in row_groups))
            if any(not 0 <= chunk.start <= chunk.start + chunk.size < self._size for chunk in chunks):
                raise ValueError("a column lies outside of the file")
            starts = np.array([chunk.start for chunk in chunks], np.int64)
            ends = starts + np.array([chunk.size for chunk in chunks], np.int64)
            order = np.argsort(starts)
            if (ends[order][:-1] > starts[order][1:]).any():
                raise ValueError("its columns lie in each other")
            if any(group.rows > ROW_GROUP_RECORDS for group in row_groups):
                raise ValueError(f"it has a row group of more than {ROW_GROUP_RECORDS:,} records")
        self._starts = starts
        self._ends = ends
        self._is_checked = np.zeros(len(chunks), bool)
        self._decoded = np.zeros(len(row_groups))
        self._row_groups = row_groups

    def _check_columns(self, start: int, data: bytes) -> None:
        """Check each column of which these bytes, that begin at `start`, are the first ones read."""
        end = start + len(data)
        unchecked = np.flatnonzero((self._starts < end) & (self._ends > start) & ~self._is_checked)
        for at, places in groupby(unchecked.tolist(), key=lambda place: place // len(self._row_groups[0].chunks)):
            columns = list(places)
            low = min(start, int(self._starts[columns].min()))
            high = max(end, int(self._ends[columns].max()))
            # A column that is read in pieces is fetched once more.
            column_bytes = data if (low, high) == (start, end) else self._fetch(low, high)
            group = self._row_groups[at]
            chunks = [group.chunks[place % len(group.chunks)] for place in columns]
            group = replace(group, chunks=tuple(replace(chunk, start=chunk.start - low) for chunk in chunks))
            with name_damage(self._stored.key):
                pages = RowGroupPages(io.BytesIO(column_bytes), group, self._stored.key, self._limits)
                self._decoded[at] += pages.measure(ROW_GROUP_RECORDS).decoded_bytes
            if self._decoded[at] > self._max_decoded:
                claim = f"has a row group that may come to {self._decoded[at]:,.0f} bytes"
                raise build_limit_error(self._stored.key, claim, "block.bytes")
            self._is_checked[columns] = True
