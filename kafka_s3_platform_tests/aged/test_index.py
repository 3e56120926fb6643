"""What the generator of aged indexes writes is what the code would have written: it reads as whole and complete."""

from datetime import datetime, timedelta, timezone

import pytest

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.model.offsets import make_span
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.upkeep.compact.days import read_day_segments
from kafka_s3_platform_tests.aged.index import write_aged_index
from kafka_s3_platform_tests.aged.rows import HOUR, RECORDS
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import connector

pytestmark = pytest.mark.integration

END = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOURS = 24 * 5


def test_an_aged_index_is_whole_and_complete(lab: Lab) -> None:
    config = connector(KafkaSettings(bootstrap_servers="127.0.0.1:1"), lab.store, lab.topic)
    config = config.model_copy(update={"name": lab.topic})
    age = write_aged_index(config, 2, HOURS, END)
    snapshot = TopicIndex.of(config, lab.topic).open()
    state = snapshot.state
    hours = [age.start + n * HOUR for n in range(HOURS)]
    assert snapshot.version == age.version
    assert [state.coverage(p) for p in (0, 1)] == [make_span(0, HOURS * RECORDS)] * 2
    assert state.judge.list_complete(hours, timedelta(minutes=5)) == set(hours)
    assert all(map(state.is_scanned, hours))
    assert len(read_day_segments(snapshot, age.start.date())) == 2
    assert len(read_day_segments(snapshot, age.start.date(), retired=True)) == 2 * 24
    assert sum(s.record_count for s in snapshot.segments) == sum(s.record_count for s in state.scans)
