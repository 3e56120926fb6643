"""A key without meaning changes nothing: whatever its value, the settings are those of the file without it."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys.clients import CLIENT_PROPERTIES, WITHOUT_MEANING_PROPERTIES
from kafka_s3_platform.connect.config.keys.converters import OPTION_KEYS
from kafka_s3_platform.connect.config.keys.table import Key, Support
from kafka_s3_platform.connect.config.mapping import ALL_KEYS
from kafka_s3_platform.connect.config.worker import WORKER_WITHOUT_MEANING_KEYS, load_worker
from kafka_s3_platform_tests.config.sentences.files import FILES, file_of, resolve, without_meaning

TO_RESTORES = "The envelope keeps the bytes of "
"""Said of the keys of a converter that cannot be used. Restores that need it tell of them."""

VALUES = (
    *("true", "false", "none", "-1", "0", "1", "7", "65536", "x", "a,b", "http://h:1", "all", "fail", "write"),
    *("AVRO", "JSON", "BYTES", "STRING", "gzip", "snappy", "zstd", "NONE", "BACKWARD", "NUMERIC", "BASE64"),
    *("JsonFormat", "AvroFormat", "ParquetFormat", "StringConverter", "JsonConverter", "ByteArrayConverter"),
    *("HOURLY", "DAILY", "HourlyPartitioner", "DefaultPartitioner", "Record", "RecordField", "Wallclock", "WALLCLOCK"),
    *("YYYY/MM", "Europe/Paris", "key,value", "jsonl", "csv", "{{topic}}-{{partition}}-{{start_offset}}", "AES256"),
)
"""What one key or another takes. Each is odd for most keys."""


def name_one(key: Key) -> str:
    """The key, or one of a family."""
    return key.name.removesuffix("*") + ("of.mine" if key.is_family else "")


OPTIONS = [name_one(key) for key in OPTION_KEYS]
CONVERTERS = [f"{side}.converter.{option}" for side in ("key", "value") for option in OPTIONS]
CLIENTS = [name_one(key) for key in (*CLIENT_PROPERTIES, *WITHOUT_MEANING_PROPERTIES)]
OVERRIDES = [f"{scope}.override.{name}" for scope in ("consumer", "producer", "admin") for name in CLIENTS]
NAMES = (*(name_one(key) for key in ALL_KEYS), *CONVERTERS, *OVERRIDES)
NEVER = [
    *(name_one(key) for key in ALL_KEYS if key.support is Support.WITHOUT_MEANING),
    *(f"value.converter.{name_one(key)}" for key in OPTION_KEYS if key.support is Support.WITHOUT_MEANING),
    *(f"consumer.override.{name_one(key)}" for key in WITHOUT_MEANING_PROPERTIES),
]


@pytest.mark.parametrize("kind", FILES)
def test_keys_that_never_have_a_meaning_leave_each_kind_of_file_as_it_is(kind: str) -> None:
    bare = file_of(kind)
    for value in ("true", "-7", "no such thing"):
        found = resolve({**dict.fromkeys(NEVER, value), **bare})
        assert found.config == resolve(bare).config is not None
        assert without_meaning(found).keys() >= set(NEVER) - set(bare)


@example("aiven", [("archive.out.of.range.folder", "true")])
@given(
    st.sampled_from(sorted(FILES)), st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=40)
)
def test_a_key_that_has_no_meaning_beside_others_can_be_removed(kind: str, more: list[tuple[str, str]]) -> None:
    entries = file_of(kind)
    for name, value in more:
        if name not in entries and resolve({**entries, name: value}).config is not None:
            entries[name] = value
    found = resolve(entries)
    for name in (name for name, said in without_meaning(found).items() if TO_RESTORES not in said):
        rest = {key: value for key, value in entries.items() if key != name}
        assert resolve(rest).config == found.config, name


def test_keys_of_the_worker_that_have_no_meaning_leave_it_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "worker.properties"
    path.write_text("bootstrap.servers=broker:9092\n")
    bare = load_worker(path, {})
    lines = (f"{name_one(key)}=7\n" for key in (*WORKER_WITHOUT_MEANING_KEYS, *WITHOUT_MEANING_PROPERTIES))
    path.write_text("bootstrap.servers=broker:9092\n" + "".join(dict.fromkeys(lines)))
    found = load_worker(path, {})
    assert (found.properties, found.converters) == (bare.properties, bare.converters)
