"""What a restore leaves out for being bad is decided once: objects that change their mind change nothing."""

from typing import Any

import pytest

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import IntegrityError, PreflightError, TransientError
from kafka_s3_platform.restore.request import RecordFilter
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, Load, Put, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.runners import Between
from kafka_s3_platform_tests.support import InProcessRunner

pytestmark = pytest.mark.integration

IGNORE = JSON + "behavior.on.error=ignore\n"
BY_FILE = IGNORE + "archive.source.template={{topic}}/{{any}}.json\n"
CUT_OFF = b'{"n":0}\n{"n'


def fail() -> None:
    raise TransientError("the run was killed")


def test_an_object_that_was_sent_and_is_damaged_since_is_not_told_as_left_out(load: Load, put: Put, lab: Lab) -> None:
    config, run = load(LINES, IGNORE), {"restore_id": lab.topic}
    for first in (0, 3, 6):
        put(lab.topic, first, numbered(first, 3))
    damage = Between(before_verify=lambda: put(lab.topic, 3, numbered(70, 2)))
    for runner in (damage, InProcessRunner()):
        with pytest.raises(
            IntegrityError, match=r"\+0\+0000000003\.json (.|\n)*this is not among it. Put it back as it was"
        ):
            restore(asked(config, (), "{topic}-copy", **run), runner)
    put(lab.topic, 3, numbered(3, 3))
    report = restored(config, (), "{topic}-copy", **run)
    assert (report.verified, report.record_count, report.skipped, report.left_out) == (True, 9, (), ())
    assert numbers(lab.kafka, f"{lab.topic}-copy") == list(range(9))


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("records", [RecordFilter(), RecordFilter(sql="value <> 'never'")])
def test_an_object_that_was_bad_and_is_mended_since_stays_left_out_and_a_new_restore_sends_it(
    load: Load, put: Put, lab: Lab, s3_client: Any, stops: bool, records: RecordFilter
) -> None:
    config, run = load(LINES, IGNORE), {"restore_id": lab.topic, "records": records}
    keys = [put(lab.topic, first, numbered(first, 3)) for first in (0, 3, 6)]
    good = s3_client.get_object(Bucket=lab.store.bucket, Key=keys[1])["Body"].read()
    s3_client.put_object(Bucket=lab.store.bucket, Key=keys[1], Body=CUT_OFF)

    def mend() -> None:
        s3_client.put_object(Bucket=lab.store.bucket, Key=keys[1], Body=good)
        if stops:
            fail()

    given = asked(config, (), "{topic}-copy", **run)
    if stops:
        with pytest.raises(TransientError):
            restore(given, Between(before_verify=mend))
        # What was decided counts, however the run that goes on is asked for.
        report = restored(config, (), "{topic}-copy", behavior_on_error="fail", **run)
    else:
        report = restore(given, Between(before_verify=mend))
    assert (report.verified, report.record_count, report.left_out) == (True, 6, (keys[1],))
    [line] = report.skipped
    assert keys[1] in line
    assert "Once mended, it is sent by a new restore under another restore id" in line
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8]

    after = restored(config, (), "{topic}-copy", after=lab.topic, records=records)
    assert (after.object_count, after.sent_count, after.verified) == (1, 3, True)
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8, 3, 4, 5]
    assert not any("was replaced after it was sent" in note for note in after.notes)


def test_a_run_that_goes_on_reads_as_the_first_one_did(
    load: Load, put: Put, store_settings: StoreSettings, topic_name: str
) -> None:
    config, run = load(LINES, JSON), {"restore_id": topic_name}
    put(topic_name, 0, numbered(0, 3))
    with pytest.raises(TransientError):
        restore(asked(config, (), "{topic}-copy", **run), Between(before_verify=fail))
    layouts = [config.layout.model_copy(update=one) for one in ({"codec": "gzip"}, {"tombstone_partition": "x"})]
    for layout in layouts:
        with pytest.raises(PreflightError, match=r"belongs to another restore .*read_as was .*, is now"):
            restored(config.model_copy(update={"layout": layout}), (), "{topic}-copy", **run)


def test_positions_of_objects_whose_names_tell_no_offset_stay_what_they_were(
    load: Load, lab: Lab, s3_client: Any
) -> None:
    def put_file(name: str, body: bytes) -> str:
        key = f"topics/{lab.topic}/{name}.json"
        s3_client.put_object(Bucket=lab.store.bucket, Key=key, Body=body)
        return key

    lines = [b"".join(b'{"n":%d}\n' % n for n in range(first, first + 3)) for first in (0, 3, 6)]
    keys = [put_file(name, body) for name, body in zip("abc", lines, strict=True)]

    def delete(key: str) -> None:
        s3_client.delete_object(Bucket=lab.store.bucket, Key=key)

    config, run = load(LINES, BY_FILE), {"restore_id": lab.topic}
    with pytest.raises(TransientError):
        restore(
            asked(config, (), "{topic}-copy", **run), Between(before_replay=lambda: delete(keys[1]), before_verify=fail)
        )
    delete(keys[0])
    put_file("b", lines[1])
    with pytest.raises(IntegrityError, match=rf"{keys[0]}(.|\n)*this is not among it. Put it back as it was"):
        restored(config, (), "{topic}-copy", **run)
    put_file("a", lines[0])
    report = restored(config, (), "{topic}-copy", **run)
    assert (report.verified, report.record_count, report.sent_count, report.left_out) == (True, 6, 0, (keys[1],))
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8]
