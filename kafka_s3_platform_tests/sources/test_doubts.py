"""A connector file that says of envelopes that they are values alone is not believed without a look."""

from pathlib import Path

import pytest

from kafka_s3_platform.restore.outgoing.sent import SentSettings
from kafka_s3_platform.restore.preflight.trial import TrialTask, try_first_records
from kafka_s3_platform.restore.request import Outgoing, RecordFilter
from kafka_s3_platform.restore.source.foreign_stream import ForeignStreamTask
from kafka_s3_platform.sources.objects import group_objects
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform_tests.sources.memory import MemoryStore
from kafka_s3_platform_tests.sources.test_sink_files import JSON, Keys, aiven, config_of, confluent

LENSES = b'{"key":"k","value":{"n":1},"headers":{},"metadata":{"timestamp":1,"topic":"t","partition":0,"offset":0}}\n'
AIVEN = b'{"key":"aw==","offset":0,"timestamp":1,"value":{"n":1},"headers":null}\n'
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
    [group] = group_objects(scan_objects(config, store=store))
    sent = SentSettings("u", 1, RecordFilter(), Outgoing(), "fail", None)
    found = list(try_first_records([TrialTask(ForeignStreamTask(config, group), sent)], store, is_begun=is_begun))
    assert [(f.refuses, f.doubts, told in f.text) for f in found if f.doubts] == ([(False, True, True)] if told else [])
