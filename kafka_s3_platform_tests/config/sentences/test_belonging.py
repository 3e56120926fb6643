"""A key that belongs to another choice means nothing here, and something with that choice."""

import re
from dataclasses import dataclass

import pytest

from kafka_s3_platform_tests.config.sentences.files import (
    AIVEN_SOURCE,
    AVRO,
    FILES,
    JSON,
    Entries,
    file_of,
    resolve,
    without_meaning,
)

KEYS = FILES["json with keys and headers"]
GZIP = {**JSON, "s3.compression.type": "gzip"}
HOURLY = FILES["json by the hour"]
TIMED = FILES["json by a field's time"]
SOURCE = FILES["source"]
LEVEL = "s3.compression.level"


@dataclass(frozen=True)
class Belonging:
    """`key` with either value is without meaning `here`, which `sentence` says, and means something `there`."""

    sentence: str
    key: str
    values: tuple[str, str]
    here: Entries
    there: Entries

    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


OTHERS = "Belongs to a format that this file does not write."
BELONGINGS = (
    Belonging(
        "Belongs to JsonSchemaConverter.",
        "value.converter.preserve.additional.properties",
        ("true", "false"),
        AVRO,
        FILES["json of JSON Schema"],
    ),
    Belonging("Belongs to JsonConverter.", "value.converter.decimal.format", ("NUMERIC", "BASE64"), AVRO, JSON),
    Belonging("Belongs to JsonConverter.", "value.converter.replace.null.with.default", ("true", "false"), AVRO, JSON),
    Belonging("{} needs no registry.", "value.converter.schema.registry.url", ("http://a:1", "http://b:1"), JSON, AVRO),
    Belonging("The codec {} has no levels.", LEVEL, ("1", "9"), JSON, GZIP),
    Belonging("Belongs to JSON and bytes. This format uses its own level.", LEVEL, ("1", "9"), AVRO, GZIP),
    Belonging(OTHERS, "avro.codec", ("snappy", "bzip2"), JSON, AVRO),
    Belonging(OTHERS, "format.bytearray.extension", ("txt", "dat"), JSON, FILES["bytes"]),
    Belonging(OTHERS, "json.decimal.format", ("NUMERIC", "BASE64"), AVRO, JSON),
    Belonging(OTHERS, "compressed_block_size", ("7", "8"), JSON, FILES["block gzip"]),
    Belonging(
        "Each object shows how it is compressed.",
        "s3.compression.type",
        ("gzip", "none"),
        {**SOURCE, "format.class": "AvroFormat", "value.converter": "StringConverter"},
        SOURCE,
    ),
    Belonging(
        "Belongs to `format.output.type`.",
        "format.output.fields",
        ("key,value", "value"),
        {**AIVEN_SOURCE, "format.class": "JsonFormat"},
        {**AIVEN_SOURCE, "format.output.type": "jsonl", "key.converter": "StringConverter"},
    ),
    Belonging(
        "`input.format` names the format of the objects.",
        "format.output.type",
        ("csv", "jsonl"),
        FILES["aiven source"],
        AIVEN_SOURCE,
    ),
    Belonging("The envelope holds keys and headers.", "store.kafka.keys", ("true", "false"), {}, KEYS),
    Belonging("Belongs to `{}`.", "keys.format.class", ("JsonFormat", "AvroFormat"), JSON, KEYS),
    Belonging(
        "Only behavior.on.null.values=write has such a folder.",
        "tombstone.encoded.partition",
        ("gone", "deleted"),
        KEYS,
        {**KEYS, "behavior.on.null.values": "write"},
    ),
    Belonging(
        "The layout {} names objects its own way.",
        "file.delim",
        ("-", "_"),
        {**JSON, "archive.key.layout": "template"},
        JSON,
    ),
    Belonging(
        "{} names objects its own way.",
        "file.name.template",
        ("{{topic}}/{{partition}}/{{start_offset}}", "{{topic}}-{{partition}}-{{start_offset}}"),
        {**JSON, "archive.key.layout": "block_gzip"},
        JSON,
    ),
    Belonging(
        "Belongs to source connectors, which read objects back.", "behavior.on.error", ("log", "ignore"), JSON, SOURCE
    ),
    Belonging(
        "Belongs to writing: a source connector reads objects as they are.", "flush.size", ("7", "8"), SOURCE, JSON
    ),
    Belonging(
        "{} says what folders and names tell.",
        "partitioner.class",
        ("DailyPartitioner", "HourlyPartitioner"),
        FILES["source by a template"],
        SOURCE,
    ),
    Belonging(
        "No object holds keys, and nothing reads keys.",
        "key.converter",
        ("StringConverter", "JsonConverter"),
        JSON,
        {**KEYS, "keys.format.class": "JsonFormat"},
    ),
    Belonging(
        "No object holds keys, and nothing reads keys.",
        "key.converter",
        ("ByteArrayConverter", "JsonConverter"),
        JSON,
        {**KEYS, "keys.format.class": "JsonFormat"},
    ),
    Belonging(
        "This file names no converter.",
        "value.converter.schemas.enable",
        ("true", "false"),
        FILES["bytes"],
        {"format.class": "JsonFormat", "value.converter": "JsonConverter"},
    ),
    Belonging(
        "No converter of this file needs a registry.",
        "schema.registry.url",
        ("http://a:1", "http://b:1"),
        JSON,
        {"format.class": "AvroFormat", "value.converter": "AvroConverter"},
    ),
    Belonging(
        "The envelope has one schema, whatever the values are.",
        "schema.compatibility",
        ("BACKWARD", "FULL"),
        FILES["envelope with a converter"],
        AVRO,
    ),
    Belonging("{}Partitioner reads no field.", "partition.field.name", ("b", "c"), HOURLY, FILES["json by a field"]),
    Belonging("{}Partitioner makes no time folders.", "path.format", ("YYYY/MM", "YYYY"), JSON, TIMED),
    Belonging(
        "{}Partitioner makes no time folders.", "timestamp.extractor", ("RecordField", "RecordField"), JSON, HOURLY
    ),
    Belonging("{}Partitioner's {}.", "partition.duration.ms", ("7000", "8000"), HOURLY, TIMED),
    Belonging("The extractor {} reads no field.", "timestamp.field", ("b", "c"), HOURLY, TIMED),
    Belonging("{}Partitioner has no times, as in Connect.", "rotate.interval.ms", ("7000", "8000"), JSON, HOURLY),
)


def whole(entries: Entries) -> dict[str, str]:
    return {**file_of("envelope"), **entries}


@pytest.mark.parametrize("case", BELONGINGS, ids=str)
def test_a_key_that_belongs_elsewhere_changes_nothing_here(case: Belonging) -> None:
    bare = {key: value for key, value in whole(case.here).items() if key != case.key}
    for value in case.values:
        found = resolve({**bare, case.key: value})
        assert re.fullmatch(re.escape(case.sentence).replace(r"\{\}", ".+"), without_meaning(found)[case.key])
        assert found.config == resolve(bare).config is not None


@pytest.mark.parametrize("case", BELONGINGS, ids=str)
def test_where_it_belongs_it_decides(case: Belonging) -> None:
    bare = {key: value for key, value in whole(case.there).items() if key != case.key}
    one, other = (resolve({**bare, case.key: value}) for value in case.values)
    assert case.key not in without_meaning(one)
    assert one.config is not None
    assert other.config is not None
    assert one.config != (other.config if len(set(case.values)) > 1 else resolve(bare).config)


@pytest.mark.parametrize("kind", ["avro", "parquet", "envelope"])
def test_objects_that_are_compressed_inside_take_no_codec_of_lines(kind: str) -> None:
    found = resolve({**file_of(kind), "s3.compression.type": "none"})
    assert without_meaning(found)["s3.compression.type"] == "The format compresses its objects itself."
    assert found.config == resolve(file_of(kind)).config is not None
    assert resolve({**file_of(kind), "s3.compression.type": "gzip"}).config is None
