import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.segments.schema_ids import collect_wire_schema_ids, fetch_archived_schemas
from kafka_s3_platform.core.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.state import IndexState

GONE = RegistrySettings.model_validate({"url": "http://127.0.0.1:9", "properties": {"max.retries": "0"}})
AVRO = ConverterSettings(format="AVRO", registry=GONE)
KNOWN = ArchivedSchema("http://127.0.0.1:9", 7, "AVRO", '"long"', ())


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"body"


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=8) | st.integers(0, 2**32 - 1).map(framed)), st.integers(0, 2))
def test_ids_are_those_of_values_that_begin_as_the_wire_format_does(rows: list[bytes | None], skip: int) -> None:
    column = pa.array(rows, pa.binary()).slice(skip)
    expected = {int.from_bytes(r[1:5], "big") for r in rows[skip:] if r is not None and len(r) >= 5 and r[0] == 0}
    assert collect_wire_schema_ids(column) == expected


def test_many_ids_that_take_turns_are_all_found() -> None:
    column = pa.array([framed(int(i)) for i in np.random.default_rng(1).integers(0, 50, 5000)], pa.binary())
    assert collect_wire_schema_ids(column) == set(range(50))


def test_only_sides_with_a_registry_have_ids() -> None:
    assert RecordSettings().registries == ()
    assert RecordSettings(key=AVRO, value=AVRO).registries == (GONE,)


def test_a_schema_that_the_index_holds_is_not_asked_for_again() -> None:
    fetched = fetch_archived_schemas(IndexState(schemas=(KNOWN,)), [7], RecordSettings(value=AVRO))
    assert (fetched.rows, fetched.missing, fetched.problem) == ((), (), None)


def test_a_registry_that_is_down_holds_up_no_commit_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fetched = fetch_archived_schemas(IndexState(schemas=(KNOWN,)), [9, 7, 8], RecordSettings(value=AVRO))
    assert (fetched.rows, fetched.missing) == ((), (8, 9))
    assert fetched.problem is not None
    assert "does not answer" in fetched.problem
    assert "schemas [8, 9] are not archived, the next run tries again" in caplog.text
