import pytest

from kafka_s3_platform.core.errors import PermanentError, TransientError
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.transforms import example_mappers
from kafka_s3_platform_tests.transforms.batches import (
    apply,
    batch,
    headers_of,
    messages,
    payload,
    schema,
    topics_of,
    values,
)

ROOM = example_mappers.__name__
LOG = [b"12:00 - INFO - started", b"12:01 - DEBUG - detail\n12:02 - INFO - done", None]


def mapper(name: str, **options: str) -> dict[str, str]:
    return {"type": f"{ROOM}.{name}", **options}


def test_zooz_upper_case_mapper() -> None:
    assert values(apply(batch(payload([b"abc", b"d"])), a=mapper("UpperCaseMapper"))) == ["ABC", "D"]


def test_one_record_becomes_many_that_share_its_offset_and_are_numbered() -> None:
    done = apply(batch(payload(LOG[:2]), key=payload([b"k", b"l"])), a=mapper("LinesMapper"))
    assert values(done) == [b"12:00 - INFO - started", b"12:01 - DEBUG - detail", b"12:02 - INFO - done"]
    assert done.batch.offsets.tolist() == [100, 101, 101]
    assert present(done.batch.ordinals).tolist() == [0, 0, 1]
    assert done.batch.key.objects == [b"k", b"l", b"l"]


def test_a_filter_gives_back_nothing_and_what_it_keeps_stays_as_it_came() -> None:
    given = batch(payload(LOG[:2]), headers=[[("h", b"1")], None])
    done = apply(given, a=mapper("LevelFilter", level="DEBUG"))
    assert values(done) == LOG[:1]
    assert done.failures == ()
    assert done.batch.value.raw is not None
    assert headers_of(done) == [[("h", b"1")]]


def test_a_record_may_get_another_key_value_headers_and_topic() -> None:
    record = schema("R", ("a", "int"))
    done = apply(batch(payload([{"a": 1}], record)), a=mapper("Rewriter"))
    assert (done.batch.key.objects, values(done)) == ([b"k"], [{"a": 1, "new": 1}])
    assert (headers_of(done), topics_of(done)) == ([[("seen", None)]], ["orders.x"])
    assert done.batch.value.schemas == (record,)


def test_an_exception_is_a_failure_of_that_record_only() -> None:
    done = apply(batch(payload([b"ok", None, b"\xff"])), a=mapper("UpperCaseMapper"))
    assert values(done) == ["OK"]
    assert [(f.offset, f.exception, f.executing_class) for f in done.failures] == [
        (101, "AttributeError", f"{ROOM}.UpperCaseMapper"),
        (102, "UnicodeDecodeError", f"{ROOM}.UpperCaseMapper"),
    ]


def test_the_time_that_decides_the_hour_may_not_be_changed() -> None:
    assert messages(apply(batch(payload([b"x"])), a=mapper("LaterMapper"))) == [
        "a mapper may not change the kafka partition, offset or timestamp of a record"
    ]


def test_an_error_of_the_platform_ends_the_run() -> None:
    with pytest.raises(TransientError, match="lookup service"):
        apply(batch(payload([b"x"])), a=mapper("ServiceMapper"))


def test_a_mapper_may_work_on_whole_arrow_batches() -> None:
    assert apply(batch(payload([b"x", b"y", b"z"])), a=mapper("EveryOther")).batch.offsets.tolist() == [100, 102]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Backwards", "on topic orders, offsets 100 to 101 gave back records that do not ascend by offset and ordinal"),
        ("Broken", "failed, as a transform on topic orders, offsets 100 to 101: KeyError: 'colour of 2'"),
    ],
)
def test_a_batch_mapper_that_breaks_its_contract_is_named_with_topic_and_offsets(name: str, said: str) -> None:
    with pytest.raises(PermanentError, match=f"{ROOM}.{name} {said}"):
        apply(batch(payload([b"x", b"y"])), a=mapper(name))


def test_behind_a_predicate_outputs_take_their_place_among_the_other_records() -> None:
    predicates = {"predicates": "p", "predicates.p.type": "RecordIsTombstone"}
    step = {**mapper("LinesMapper"), "predicate": "p", "negate": "true"}
    done = apply(batch(payload([LOG[1], None, LOG[0]])), predicates=predicates, a=step)
    assert values(done) == [*(LOG[1] or b"").splitlines(), None, LOG[0]]
    assert done.batch.offsets.tolist() == [100, 100, 101, 102]
    assert present(done.batch.ordinals).tolist() == [0, 1, 0, 0]


def test_one_after_the_other_they_number_anew() -> None:
    both = {"a": mapper("LinesMapper"), "b": mapper("LevelFilter", level="DEBUG")}
    done = apply(batch(payload([LOG[1]])), **both)
    assert values(done) == [b"12:02 - INFO - done"]
    assert present(done.batch.ordinals).tolist() == [0]


def test_a_source_record_fails_as_a_whole_and_once() -> None:
    done = apply(
        batch(payload([b"1\nx\ny", b"2"])),
        a=mapper("LinesMapper"),
        b=mapper("UpperCaseMapper"),
        c={"type": "Cast$Value", "spec": "int8"},
    )
    assert values(done) == [2]
    assert [failure.offset for failure in done.failures] == [100]
