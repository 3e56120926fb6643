import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kafka_s3_platform.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.model.batches import RECORD_SCHEMA
from kafka_s3_platform.model.schema import ArchivedSchema, SubjectVersion
from kafka_s3_platform.restore.outgoing.schemas import SchemaMapping
from kafka_s3_platform.restore.outgoing.values import Rewritten, Values, ValueSettings, new_values
from kafka_s3_platform.restore.request import Outgoing

GONE = RegistrySettings(url="http://registry.gone:8081")
AVRO = ConverterSettings(format="AVRO", registry=GONE)
LONG = ArchivedSchema("http://registry.gone:8081", 7, "AVRO", '"long"', (SubjectVersion("t-value", 1, None),))
NINE, FIVE = b"\0\0\0\0\7\x12", b"\0\0\0\0\7\x0a"
"""9 and 5 by schema 7."""


def records(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    rows = [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 3,
            "offset": 10 + at,
            "timestamp": at,
            "timestampType": 0,
        }
        for at, (key, value) in enumerate(zip(keys or [b"k"] * len(values), values, strict=True))
    ]
    return pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)


def applied(values: Values, batch: pa.RecordBatch) -> Rewritten:
    """The records as they are sent without a transform."""
    if values.changes_nothing:
        return Rewritten(batch)
    outcome = values.decode(batch)
    done = values.encode(outcome.batch)
    return Rewritten(done.batch, (*outcome.failures, *done.failures))


def mapping(value_ids: Mapping[int, int] | None, key_ids: Mapping[int, int] | None = None) -> SchemaMapping:
    return SchemaMapping(key_ids, value_ids)


def settings(outgoing: Outgoing | None = None, **given: Any) -> ValueSettings:
    return ValueSettings(outgoing or Outgoing(), RecordSettings(value=AVRO), "t", "copy", **given)


def test_without_a_wish_records_are_the_same_objects() -> None:
    values = new_values(settings())
    batch = records([NINE])
    assert values.changes_nothing
    assert applied(values, batch).batch is batch


def test_ids_are_mapped_and_everything_else_stays() -> None:
    values = new_values(settings(mapping=mapping({7: 300})))
    batch = records([NINE, None, b"plain", b""])
    done = applied(values, batch)
    assert done.failures == ()
    assert done.batch.column("value").to_pylist() == [b"\0\0\0\1\x2c\x12", None, b"plain", b""]
    assert done.batch.schema == batch.schema
    for name in set(batch.schema.names) - {"value"}:
        assert done.batch.column(name).equals(batch.column(name))


def test_keys_have_ids_of_their_own() -> None:
    both = RecordSettings(key=AVRO, value=AVRO)
    given = ValueSettings(Outgoing(), both, "t", "copy", mapping=mapping({7: 1}, {7: 2}))
    done = applied(new_values(given), records([NINE], [NINE])).batch
    assert done.column("value").to_pylist() == [b"\0\0\0\0\1\x12"]
    assert done.column("key").to_pylist() == [b"\0\0\0\0\2\x12"]


def test_bytes_of_a_side_without_a_registry_are_never_taken_for_ids() -> None:
    values = new_values(settings(mapping=mapping({7: 8}, key_ids=None)))
    assert applied(values, records([None], [NINE])).batch.column("key").to_pylist() == [NINE]


def test_a_record_whose_id_is_not_mapped_fails_alone() -> None:
    done = applied(new_values(settings(mapping=mapping({7: 8}))), records([NINE, b"\0\0\0\0\5x", NINE]))
    assert done.batch.column("offset").to_pylist() == [10, 12]
    [failure] = done.failures
    assert (failure.offset, failure.stage) == (11, "VALUE_CONVERTER")
    assert "the value of the record at offset 11 of topic t names schema 5, which was not archived" in failure.message


def test_an_empty_mapping_passes_no_id_on() -> None:
    assert len(applied(new_values(settings(mapping=mapping({}))), records([NINE, b"plain"])).failures) == 1


def test_values_are_decoded_with_archived_schemas_where_their_registry_is_gone() -> None:
    outgoing = Outgoing(value=ConverterSettings(format="JSON"))
    values = new_values(settings(outgoing, schemas=(LONG,)))
    done = applied(values, records([NINE, None, FIVE]))
    assert done.failures == ()
    assert done.batch.column("value").to_pylist() == [b"9", None, b"5"]


def test_a_value_that_cannot_be_decoded_fails_alone() -> None:
    outgoing = Outgoing(value=ConverterSettings(format="JSON"))
    done = applied(new_values(settings(outgoing, schemas=(LONG,))), records([NINE, b"?", FIVE + b"!"]))
    assert done.batch.column("value").to_pylist() == [b"9"]
    assert [f.offset for f in done.failures] == [11, 12]


def test_what_a_transform_did_not_change_keeps_its_bytes() -> None:
    values = new_values(settings(schemas=(LONG,)))
    decoded = values.decode(records([NINE, None]), everything=True)
    assert decoded.batch.value.objects == [9, None]
    assert values.encode(decoded.batch).batch.column("value").to_pylist() == [NINE, None]


def test_settings_travel_to_executors() -> None:
    given = settings(schemas=(LONG,), mapping=mapping({7: 300}))
    sent = pickle.loads(pickle.dumps(given))  # noqa: S301 - its own
    assert sent == given
    assert applied(new_values(sent), records([NINE])).batch.column("value").to_pylist() == [b"\0\0\0\1\x2c\x12"]
