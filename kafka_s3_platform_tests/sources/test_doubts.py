"""A connector file that says of envelopes that they are values alone is not believed without a look."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_s3_platform.connect.restore.foreign_source import TrialTask, try_first_records
from kafka_s3_platform.connect.restore.source.foreign_plan import make_foreign_plan
from kafka_s3_platform.connect.restore.source.foreign_stream import ForeignStreamTask
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform_tests.sources.memory import MemoryStore, opened, stream
from kafka_s3_platform_tests.sources.sink_files import BYTES, JSON, STRING, Keys, aiven, config_of, confluent

LENSES = b'{"key":"k","value":{"n":1},"headers":{},"metadata":{"timestamp":1,"topic":"t","partition":0,"offset":0}}\n'
AIVEN = b'{"key":"aw==","offset":0,"timestamp":1,"value":{"n":1},"headers":null}\n'
PIPES = b'{"payload":{"n":1},"kafka_topic":"t","kafka_offset":7,"at":"2026"}\n'
KCQL = {
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector",
    "connect.s3.kcql": "INSERT INTO copy SELECT * FROM bucket:topics STOREAS JSON",
    "key.converter": JSON,
    "value.converter": JSON,
}
BARE = aiven("jsonl", JSON, JSON) | {"format.output.envelope": "false", "format.output.fields": "value"}
VALUES = confluent("json", JSON, JSON)
CONNECTS = "topics/t/partition=0/t+0+0000000000.json"


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize(
    ("keys", "name", "body", "told"),
    [
        (KCQL, "topics/t/0/0_1_1.json", LENSES, "'store.envelope'=true"),
        (VALUES, CONNECTS, LENSES, "'store.envelope'=true"),
        (BARE, "topics/t-0-0", AIVEN, "format.output.envelope=true"),
        (VALUES, CONNECTS, AIVEN, "format.output.envelope=true"),
        (VALUES, CONNECTS, b'{"value":1}\n', ""),
        (KCQL | {"value.converter": STRING}, "topics/t/0/0_1_1.json", LENSES, "'store.envelope'=true"),
        (confluent("json", JSON, STRING), CONNECTS, AIVEN, "format.output.envelope=true"),
        (confluent("bytes", JSON, BYTES), CONNECTS.replace("json", "bin"), AIVEN, "format.output.envelope=true"),
        (confluent("bytes", JSON, BYTES), CONNECTS.replace("json", "bin"), PIPES, "another tool's"),
        (confluent("json", JSON, STRING), CONNECTS, PIPES, "another tool's"),
        (VALUES, CONNECTS, PIPES, "another tool's"),
        (VALUES, CONNECTS, b'{"payload":1,"topic":"a"}\n', ""),
        (VALUES, CONNECTS, b'{"kafka_offset":1,"kafka_topic":"a","at":1}\n', ""),
        (confluent("json", JSON, STRING), CONNECTS, b'"value, offset, key"\n', ""),
        (VALUES, CONNECTS, b'{"key":1,"metadata":{"offset":1}}\n', ""),
        (VALUES, CONNECTS, b"[1]\n", ""),
        (VALUES, CONNECTS, b"[1,2]\n[3,4]\n", ""),
        (VALUES, CONNECTS, b'[{"n":1},{"n":2}]', "format.output.type=json and format.output.envelope=false"),
        (BARE | {"format.output.type": "json"}, "topics/t-0-0", b'[{"n":1},{"n":2}]', ""),
        (KCQL | {"connect.s3.kcql": f"{KCQL['connect.s3.kcql']} PROPERTIES('store.envelope'=true)"},
         "topics/t/0/0_1_1.json", LENSES, ""),
    ],
)  # fmt: skip
def test_values_that_look_like_something_else_leave_a_doubt_in_the_verdict(
    tmp_path: Path, keys: Keys, name: str, body: bytes, told: str, is_begun: bool
) -> None:
    config = config_of(tmp_path, keys)
    store = MemoryStore({name: body})
    sent = SentSettings("u", 1, RecordFilter(), Outgoing(), "fail", None)
    task = TrialTask(ForeignStreamTask(config, opened(config, store)), sent)
    found = list(try_first_records([task], store, is_begun=is_begun))
    assert [(f.refuses, f.doubts, told in f.text) for f in found if f.doubts] == ([(False, True, True)] if told else [])


PIPE = confluent("bytes", BYTES, BYTES) | {"archive.source.template": "{{topic}}/{{any}}"}
NAMED = {"format.bytearray.separator": "\\n"}
SEPARATED, CLOSED = "records were split at their separator", "objects end with a separator, and"


def doubts_of(folder: Path, keys: Keys, objects: Mapping[str, bytes]) -> list[str]:
    config = config_of(folder, keys)
    found = stream(config, objects)
    assert sum(batch.num_rows for batch in found)
    return [note for note in found.report.list_notes(config) if isinstance(note, DoubtNote)]


@pytest.mark.parametrize(
    ("keys", "bodies", "doubts"),
    [
        (PIPE, [b"a\nb"], [SEPARATED]),
        (PIPE | NAMED, [b"a\nb"], []),
        (PIPE | NAMED, [b"a\nb\n"], []),
        (PIPE | NAMED, [b"a\nb", b"c\nd\n"], ["order is by file", "1 " + CLOSED + " 1 do not"]),
        (PIPE | NAMED, [b"a\n", b"b\n", b"c"], ["order is by file", "2 " + CLOSED + " 1 do not"]),
        (PIPE | NAMED, [b"a\n", b"b\n"], ["order is by file"]),
        (PIPE | NAMED, [b"a", b"b"], ["order is by file"]),
    ],
)
def test_what_the_lines_of_a_pipe_do_not_prove_is_a_doubt(
    tmp_path: Path, keys: Keys, bodies: list[bytes], doubts: list[str]
) -> None:
    found = doubts_of(tmp_path, keys, {f"topics/t/{n}": body for n, body in enumerate(bodies)})
    assert [told in doubt for told, doubt in zip(doubts, found, strict=True)] == [True] * len(doubts)


@pytest.mark.parametrize(
    ("template", "doubts"),
    [
        ("{{topic}}/{{partition}}-{{start_offset}}", []),
        ("{{topic}}/{{start_offset}}", ["keys have no kafka partition"]),
        ("{{topic}}/{{key}}-{{start_offset}}", ["an object holds the last record of its key", "no kafka partition"]),
    ],
)
def test_names_without_a_kafka_partition_or_of_the_last_record_of_a_key_leave_doubts(
    tmp_path: Path, template: str, doubts: list[str]
) -> None:
    config = config_of(tmp_path, VALUES | {"archive.source.template": template + ".json"})
    names = [template.replace("{{topic}}", "t").replace("{{partition}}", "4").replace("{{start_offset}}", "7")]
    names = [f"topics/{name}.json".replace("{{key}}", "k") for name in names]
    plan = make_foreign_plan(
        RestoreRequest(config, "", "", "r", "x"), (), None, MemoryStore(dict.fromkeys(names, b"1\n"))
    )
    assert [told in doubt for told, doubt in zip(doubts, plan.doubts, strict=True)] == [True] * len(doubts)


@pytest.mark.parametrize(
    ("times", "is_doubted"),
    [
        ([1_767_225_600, 1_767_225_601], True),
        ([86_400], True),
        ([1_767_225_600, 1_767_225_600_000], False),
        ([1_767_225_600_000], False),
    ],
)
def test_times_of_1970_are_no_milliseconds(tmp_path: Path, times: list[int], is_doubted: bool) -> None:
    body = b"".join(b'{"at":%d}\n' % time for time in times)
    found = doubts_of(tmp_path, VALUES | {"archive.source.timestamp.field": "at"}, {CONNECTS: body})
    assert ["the field at (archive.source.timestamp.field) holds seconds" in doubt for doubt in found] == (
        [True] * is_doubted
    )


@pytest.mark.parametrize(
    ("body", "keys", "is_doubted"),
    [
        (b"a\r\nb\r\n", {}, True),
        (b"a\r\nb\n", {}, False),
        (b"a\r\nb\r\n", {"format.bytearray.separator": "\\n"}, False),
        (b"a\r\nb\r\n", {"format.bytearray.separator": "\\r\\n"}, False),
    ],
)
def test_values_that_all_end_with_a_carriage_return_are_a_doubt(
    tmp_path: Path, body: bytes, keys: Keys, is_doubted: bool
) -> None:
    found = doubts_of(tmp_path, confluent("bytes", BYTES, BYTES) | keys, {"topics/t/partition=0/t+0+10.bin": body})
    assert ["every value ends with a carriage return" in doubt for doubt in found] == [True] * is_doubted


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_times_of_far_years_are_no_milliseconds(tmp_path: Path, unit: int) -> None:
    body = b'{"at":%d}\n' % (1_767_225_600_000 * unit)
    [doubt] = doubts_of(tmp_path, VALUES | {"archive.source.timestamp.field": "at"}, {CONNECTS: body})
    assert "the field at (archive.source.timestamp.field) holds microseconds or nanoseconds" in doubt
