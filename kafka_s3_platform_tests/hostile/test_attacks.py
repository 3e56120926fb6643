"""No object takes more than some memory and time: it is refused by the one error, or read with its bad records told.

Names of others in the index: each is one value of one column, whatever it says.

Each promise of docs/security.md names tests that are there.
"""

import ast
import gzip
import random
import re
import zlib
from pathlib import Path

import pytest

from kafka_s3_platform.core.formats.envelope.avro import ENVELOPE_SCHEMA
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.model.segment import CommittedOffset, Segment
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.row_filter import match_group
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.hostile.attacks import ATTACKS
from kafka_s3_platform_tests.hostile.containers import avro, long
from kafka_s3_platform_tests.hostile.measure import measured
from kafka_s3_platform_tests.hostile.names import ODD
from kafka_s3_platform_tests.hostile.readers import READERS
from kafka_s3_platform_tests.support import NOON, SETTINGS, Sent, archived, snapshot

MEGABYTES, SECONDS = 300, 20


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_one_bad_object_and_costs_little(name: str) -> None:
    attack = ATTACKS[name]
    found = measured(attack.format, attack.build())
    assert found.seconds < SECONDS, found
    assert found.megabytes < MEGABYTES, found
    if attack.fault:
        assert attack.fault in found.fault
        assert found.fault.startswith("[KS-ARCHIVE-DATA] object k")
    else:
        assert (found.records, found.bad, found.fault) == (1, 1, "")


def test_records_whose_items_take_no_byte_are_decoded_some_at_a_time() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "value", "type": {"type": "array", "items": "null"}},
            *({"name": name, "type": "null"} for name in ("key", "offset", "timestamp", "headers")),
        ],
    }
    found = measured("aiven.avro", avro(schema, [(60, (long(10**6) + b"\0") * 60)]))
    assert (found.records, found.bad, found.fault) == (60, 0, "")
    assert found.megabytes < MEGABYTES, found


def test_names_that_are_no_fields_of_a_record_cost_nothing() -> None:
    found = measured("aiven.jsonl", b'{"value":1,' + b",".join(b'"%d":0' % i for i in range(4_000_000)) + b"}\n")
    assert (found.records, found.bad, found.fault) == (1, 1, "")
    assert found.megabytes < MEGABYTES, found


def test_all_that_a_record_holds_counts_for_its_batch() -> None:
    record = b"\0\0\0" + long(10**6) + b"t" * 10**6 + bytes(4)
    block = zlib.compressobj(6, zlib.DEFLATED, -15)
    data = block.compress(record * 100) + block.flush()
    found = measured("envelope.avro", avro(ENVELOPE_SCHEMA.encode(), [(100, data)] * 10, "deflate"))
    assert (found.records, found.fault) == (1000, "")
    assert found.megabytes < MEGABYTES, found


def test_every_reader_is_attacked() -> None:
    # The readers within Aiven's and Lenses' have no attack of their own: they are the lines, Avro and Parquet above.
    alike = {f"{own}.{name}" for own in ("aiven", "lenses") for name in ("avro", "parquet")}
    alike |= {"bytes", *(f"bytes.{name}" for name in ("bz2", "zst", "lz4", "snappy", "xz"))}
    assert {attack.format for attack in ATTACKS.values()} == set(READERS) - alike


def test_a_large_line_that_is_one_is_read() -> None:
    found = measured("json", b'{"a":"' + b"x" * 100_000_000 + b'"}\n' + b"1\n")
    assert (found.records, found.bad, found.fault) == (2, 0, "")
    assert found.seconds < SECONDS


def test_lines_that_compress_well_are_read() -> None:
    found = measured("json.gz", gzip.compress(b'{"id":1,"text":"the same again and again"}\n' * 1_000_000))
    assert (found.records, found.bad, found.fault) == (1_000_000, 0, "")
    assert found.megabytes < MEGABYTES


def test_random_bytes_are_refused_by_the_one_error() -> None:
    noise = random.Random(1).randbytes(100_000)
    for name in ("avro", "parquet", "envelope.parquet", "envelope.avro", "envelope.json", "aiven.json", "block_gzip"):
        assert measured(name, noise).fault.startswith("[KS-ARCHIVE-DATA] object k")


def segment(key: str) -> Segment:
    return Segment(key, "hourly", NOON, "hour=12", 0, 0, 10, 10, 2, 99, 55, "etag", "sha", "digest", 1, 2, SETTINGS, 1)


def test_groups_of_any_name_replace_their_own_offsets_only(lab: Lab) -> None:
    """A group's name is any text; it becomes a part of the predicate by which its earlier offsets are removed."""
    config = lab.fill([Sent() for _ in range(5)], consumer_groups=(f"(?s).*{lab.topic}",))
    groups = [f"{name}{lab.topic}" for name in ODD]

    def commit(offset: int, names: list[str]) -> None:
        with ClusterAdmin(lab.kafka) as admin:
            for name in names:
                publish_offsets(admin, name, lab.topic, {0: offset}, {0: name})
        archived(config)

    commit(1, groups)
    for turn, name in enumerate(groups[:3]):
        commit(2 + turn, [name])
    commit(5, groups[3:])
    found = {row.group_id: (row.committed_offset, row.metadata) for row in snapshot(config).state.groups}
    assert found == {name: (2 + at if at < 3 else 5, name) for at, name in enumerate(groups)}
    assert sum(s.record_count for s in snapshot(config).segments) == 5


@pytest.mark.parametrize("name", ODD)
def test_a_predicate_holds_for_the_row_of_that_very_name(lab: Lab, name: str) -> None:
    index = TopicIndex(ConnectorIndex(lab.store, "_index", "c"), "t")
    key = name.replace("../", "..-")  # a key that leads out of its folder is damage
    rows = [CommittedOffset(group, 0, 5, "", None, "EMPTY", NOON) for group in (name, "other", name + "'")]
    index.open().commit(Change((*rows, segment(key), segment("other"))))
    index.open().commit(Change(removed=(match_group(name),), retired=(segment(key),)))
    left = index.open()
    assert [s.key for s in left.segments] == ["other"]
    assert [s.key for s in left.retired] == [key]
    assert {row.group_id for row in left.state.groups} == {"other", name + "'"}


def test_names_of_dagster_stay_apart_and_hold_no_more_than_dagster_takes() -> None:
    made = {make_op_name("topic", name) for name in ODD}
    assert len(made) == len(ODD)
    assert all(name.isascii() and name.replace("_", "a").isalnum() for name in made)


TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "security.md"


def promises() -> dict[str, list[str]]:
    """The tests of each promise."""
    table = DOCUMENT.read_text().partition("| promise | tests |")[2].partition("\n\n")[0]
    rows = [line.strip("|").rpartition("|") for line in table.splitlines()[2:]]
    return {promise.strip(): re.findall(r"`([^`]+)`", tests) for promise, _, tests in rows}


@pytest.mark.parametrize(("promise", "tests"), promises().items())
def test_a_promise_names_tests_that_are_there(promise: str, tests: list[str]) -> None:
    assert tests, promise
    for test in tests:
        file, _, name = test.partition("::")
        names = {
            each.name for each in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(each, ast.FunctionDef)
        }
        assert any(each.startswith("test_") for each in names), test
        assert not name or name in names, test


def test_there_are_promises() -> None:
    assert len(promises()) > 10
