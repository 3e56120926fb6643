"""What a process keeps of the files of indexes that it has read."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.model.segment import Scan
from kafka_s3_platform.store import index_reads
from kafka_s3_platform.store.index_commit import Change, list_topic_rows
from kafka_s3_platform.store.index_reads import _RowCache
from kafka_s3_platform.store.index_rows import complete_columns, encode_rows


def test_files_of_few_rows_count_as_what_they_take_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted were 400 bytes of 59,000: a code server, which reads each commit of each index, grew for ever."""
    monkeypatch.setattr(index_reads, "CACHE_BYTES", 100_000)
    common = {"version": 3, "commit_id": "c", "committed_at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    rows = complete_columns(encode_rows([list_topic_rows("t", Change((Scan(0, 0, 9, 9, None, 1),)))], common))
    kept = _RowCache()
    for n in range(100):
        kept.keep(("index", str(n)), rows)
    found = [n for n in range(100) if kept.find(("index", str(n))) is not None]
    assert 15 < len(found) < 30
    assert found[-1] == 99
    assert kept.find(("index", "99")) == rows
