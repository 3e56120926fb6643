"""An object of the archive that is corrupted, cut off, replaced or gone: named, and never passed on as data.

What a restore leaves out for being bad is decided once: objects that change their mind change nothing.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IntegrityError, PreflightError, TransientError
from kafka_s3_platform.core.restore.documents import read_left_out, save_left_out
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.request import RecordFilter, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.source.archive_plan import make_plan
from kafka_s3_platform.core.restore.source.archive_stream import ArchivedStream, make_archive_stream
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.own import Archive, Between, target_of
from kafka_s3_platform_tests.restore.own import restored as restored_own
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, snapshot

Harm = Callable[[bytes], bytes | None]

ALL = [b"%d-%d" % (hour, n) for hour in range(3) for n in range(1000)]
WITHOUT_SECOND = [v for v in ALL if not v.startswith(b"1-")]

IGNORE = JSON + "behavior.on.error=ignore\n"
BY_FILE = IGNORE + "archive.source.template={{topic}}/{{any}}.json\n"
CUT_OFF = b'{"n":0}\n{"n'


def flipped(body: bytes) -> bytes:
    """One byte of a page."""
    return body[:200] + bytes([body[200] ^ 0xFF]) + body[201:]


def cut_off(body: bytes) -> bytes:
    return body[:-100]


def gone(body: bytes) -> None:
    del body


HARMS: list[Harm] = [flipped, cut_off, gone]


MEANWHILE = [(flipped, False), (flipped, True), (cut_off, True), (gone, False)]


@pytest.fixture
def config(copied_archive: Archive, lab: Lab) -> ConnectorConfig:
    """Three hours in an object each, and an empty target."""
    config = copied_archive([Sent(v, None, NOON + int(v[:1]) * HOUR) for v in ALL])
    lab.create(target_of(config))
    return config


def sent(config: ConnectorConfig) -> list[bytes | None]:
    return values(config.kafka, target_of(config))


def harm_second(config: ConnectorConfig, s3_client: Any, harm: Harm) -> str:
    """The key of the second hour's object, to which it was done."""
    key = snapshot(config).segments[1].key
    harmed = harm(s3_client.get_object(Bucket=config.store.bucket, Key=key)["Body"].read())
    if harmed is None:
        s3_client.delete_object(Bucket=config.store.bucket, Key=key)
    else:
        s3_client.put_object(Bucket=config.store.bucket, Key=key, Body=harmed)
    return key


class HarmingRunner(InProcessRunner):
    """Does it after the preflight; `unseen`, as if the bytes changed below a store that gives the same entity tag."""

    def __init__(self, config: ConnectorConfig, s3_client: Any, harm: Harm, *, unseen: bool = False) -> None:
        self._config, self._s3, self._harm, self._unseen = config, s3_client, harm, unseen
        self._etag: str | None = None

    def run(self, function: Any, tasks: Any, max_concurrent: int) -> Iterator[Any]:
        if function is replay_streams:
            key = harm_second(self._config, self._s3, self._harm)
            found = ObjectStore(self._config.store).head(key)
            self._etag = found.etag if self._unseen and found else None
        return iter(list(super().run(function, [self._fooled(t) for t in tasks], max_concurrent)))

    def _fooled(self, task: Any) -> Any:
        if self._etag is None:
            return task
        if isinstance(task, tuple):
            return tuple(map(self._fooled, task))
        objects = [replace(o, etag=self._etag) if n == 1 else o for n, o in enumerate(task.stream.objects)]
        return replace(task, stream=replace(task.stream, objects=tuple(objects)))


@pytest.mark.parametrize("harm", HARMS)
def test_fail_refuses_before_the_first_record(config: ConnectorConfig, lab: Lab, harm: Harm) -> None:
    key = harm_second(config, lab.s3, harm)
    bad = rf"object {re.escape(key)} (was replaced|does not exist)"
    with pytest.raises(PreflightError, match=bad):
        restored_own(config)
    assert sent(config) == []
    assert re.search(bad, restored_own(config, dry_run=True).refusals[0])


@pytest.mark.parametrize(("harm", "unseen"), MEANWHILE)
def test_fail_ends_at_an_object_that_is_harmed_meanwhile(
    config: ConnectorConfig, lab: Lab, harm: Harm, unseen: bool
) -> None:
    runner = HarmingRunner(config, lab.s3, harm, unseen=unseen)
    with pytest.raises(IntegrityError, match=r"object .*hour=13.* cannot be (read|opened)"):
        restored_own(config, runner)
    assert set(sent(config)) <= set(ALL[:1000])


@pytest.mark.parametrize(("harm", "behavior"), [(flipped, "ignore"), (cut_off, "log"), (gone, "log")])
def test_otherwise_it_is_left_out_whole_and_named(
    config: ConnectorConfig, lab: Lab, harm: Harm, behavior: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = harm_second(config, lab.s3, harm)
    counted = restored_own(config, behavior_on_error=behavior, dry_run=True, exact=True)
    report = restored_own(config, behavior_on_error=behavior)

    assert sent(config) == WITHOUT_SECOND
    assert report.verified
    assert report.record_count == counted.record_count == 2000
    for found in (report, counted):
        (line,) = found.skipped
        assert key in line
        assert any(note.startswith("left out: ") and key in note for note in found.notes)
    assert any(key in r.getMessage() for r in caplog.records if r.name.endswith("source.archive_stream")) is (
        behavior == "log"
    )


@pytest.mark.parametrize(("harm", "unseen"), MEANWHILE)
def test_no_record_of_an_object_that_is_harmed_meanwhile_goes_out(
    config: ConnectorConfig, lab: Lab, harm: Harm, unseen: bool
) -> None:
    runner = HarmingRunner(config, lab.s3, harm, unseen=unseen)
    report = restored_own(config, runner, behavior_on_error="ignore")
    assert sent(config) == WITHOUT_SECOND
    assert [("hour=13" in line) for line in report.skipped] == [True]


def test_a_window_within_an_object_leaves_it_out_too(config: ConnectorConfig, lab: Lab) -> None:
    harm_second(config, lab.s3, gone)
    report = restored_own(config, behavior_on_error="ignore", from_offset=500, to_offset=2500)
    assert sent(config) == [*ALL[500:1000], *ALL[2000:2500]]
    assert len(report.skipped) == 1


def test_an_object_that_may_have_been_sent_in_part_is_never_left_out(config: ConnectorConfig, lab: Lab) -> None:
    topic = config.topics[0]
    asked = RestoreRequest(config, topic, topic, restore_id="r", run_id="x", behavior_on_error="ignore")
    task = make_archive_stream(asked, make_plan(asked), 0)
    harm_second(config, lab.s3, gone)
    store, key = ObjectStore(config.store), "_restore/r/0.left-out.json"
    bad = list(ArchivedStream(task).find_bad_objects())
    with pytest.raises(IntegrityError, match=r"object .*hour=13.*An earlier run may have sent a part of it"):
        save_left_out(store, key, "plan", bad, 1500)
    assert read_left_out(store, key, "plan") is None
    save_left_out(store, key, "plan", bad, 1000)
    save_left_out(store, key, "plan", [], 1000)
    decided = read_left_out(store, key, "plan")
    assert decided is not None
    assert list(decided) == [b.key for b in bad]
    with pytest.raises(IntegrityError, match="the plan of this restore is another"):
        read_left_out(store, key, "another")
    from_second = ArchivedStream(replace(task, left_out=decided), 1000)
    assert sum(b.num_rows for b in from_second) == 1000
    assert from_second.facts.skipped == tuple(decided.values())


def test_an_object_is_checked_whole_where_a_run_goes_on_inside_of_it(config: ConnectorConfig) -> None:
    topic = config.topics[0]
    asked = RestoreRequest(config, topic, topic, restore_id="r", run_id="x", behavior_on_error="ignore")
    task = make_archive_stream(asked, make_plan(asked), 0)
    objects = [replace(o, digest="00") if n == 1 else o for n, o in enumerate(task.objects)]
    [bad] = ArchivedStream(replace(task, objects=tuple(objects)), 1500).find_bad_objects()
    assert "its record digest is" in bad.why
    assert bad.start_offset == 1000


def test_what_failed_goes_on_without_the_object_when_asked_to(config: ConnectorConfig, lab: Lab) -> None:
    with pytest.raises(IntegrityError):
        restored_own(config, HarmingRunner(config, lab.s3, gone))
    report = restored_own(config, behavior_on_error="log")
    assert sent(config) == WITHOUT_SECOND
    assert report.verified


def fail() -> None:
    raise TransientError("the run was killed")


def test_an_object_that_was_sent_and_is_damaged_since_is_not_told_as_left_out(lab: SourceLab) -> None:
    config, run = lab.load(LINES, IGNORE), {"restore_id": lab.topic}
    for first in (0, 3, 6):
        lab.put(lab.topic, first, numbered(first, 3))
    damage = Between(before_verify=lambda: lab.put(lab.topic, 3, numbered(70, 2)))
    for runner in (damage, InProcessRunner()):
        with pytest.raises(
            IntegrityError, match=r"\+0\+0000000003\.json (.|\n)*this is not one of them. Put it back as it was"
        ):
            restore(asked(config, (), "{topic}-copy", **run), runner)
    lab.put(lab.topic, 3, numbered(3, 3))
    report = restored(config, (), "{topic}-copy", **run)
    assert (report.verified, report.record_count, report.skipped, report.left_out) == (True, 9, (), ())
    assert numbers(lab.kafka, f"{lab.topic}-copy") == list(range(9))


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("records", [RecordFilter(), RecordFilter(sql="value <> 'never'")])
def test_a_mended_object_stays_out_and_a_new_restore_sends_it(
    lab: SourceLab, stops: bool, records: RecordFilter
) -> None:
    config, run = lab.load(LINES, IGNORE), {"restore_id": lab.topic, "records": records}
    keys = [lab.put(lab.topic, first, numbered(first, 3)) for first in (0, 3, 6)]
    good = lab.s3.get_object(Bucket=lab.store.bucket, Key=keys[1])["Body"].read()
    lab.put_object(keys[1], CUT_OFF)

    def mend() -> None:
        lab.put_object(keys[1], good)
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
    assert "Once it is repaired, a new restore under another restore id sends it" in line
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8]

    after = restored(config, (), "{topic}-copy", after=lab.topic, records=records)
    assert (after.object_count, after.sent_count, after.verified) == (1, 3, True)
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8, 3, 4, 5]
    assert not any("was replaced after it was sent" in note for note in after.notes)


def test_a_run_that_goes_on_reads_as_the_first_one_did(lab: SourceLab) -> None:
    config, run = lab.load(LINES, JSON), {"restore_id": lab.topic}
    lab.put(lab.topic, 0, numbered(0, 3))
    with pytest.raises(TransientError):
        restore(asked(config, (), "{topic}-copy", **run), Between(before_verify=fail))
    layouts = [config.layout.model_copy(update=one) for one in ({"codec": "gzip"}, {"tombstone_partition": "x"})]
    for layout in layouts:
        with pytest.raises(PreflightError, match=r"belongs to another restore .*read_as was .*, is now"):
            restored(config.model_copy(update={"layout": layout}), (), "{topic}-copy", **run)


def test_positions_of_objects_whose_names_tell_no_offset_stay_what_they_were(lab: SourceLab) -> None:
    def put_file(name: str, body: bytes) -> str:
        key = f"topics/{lab.topic}/{name}.json"
        lab.put_object(key, body)
        return key

    lines = [b"".join(b'{"n":%d}\n' % n for n in range(first, first + 3)) for first in (0, 3, 6)]
    keys = [put_file(name, body) for name, body in zip("abc", lines, strict=True)]

    def delete(key: str) -> None:
        lab.s3.delete_object(Bucket=lab.store.bucket, Key=key)

    config, run = lab.load(LINES, BY_FILE), {"restore_id": lab.topic}
    with pytest.raises(TransientError):
        restore(
            asked(config, (), "{topic}-copy", **run), Between(before_replay=lambda: delete(keys[1]), before_verify=fail)
        )
    delete(keys[0])
    put_file("b", lines[1])
    with pytest.raises(IntegrityError, match=rf"{keys[0]}(.|\n)*this is not one of them. Put it back as it was"):
        restored(config, (), "{topic}-copy", **run)
    put_file("a", lines[0])
    report = restored(config, (), "{topic}-copy", **run)
    assert (report.verified, report.record_count, report.sent_count, report.left_out) == (True, 6, 0, (keys[1],))
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [0, 1, 2, 6, 7, 8]
