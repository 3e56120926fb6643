from typing import Any

import pytest

from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Check, Load, finding

FORMATS = "io.confluent.connect.s3.format."
JSON = {"format.class": "JsonFormat", "input.data.format": "JSON"}
AVRO = {"format.class": "AvroFormat", "input.data.format": "AVRO", "schema.registry.url": "http://registry:8081"}
PARQUET = {**AVRO, "format.class": "ParquetFormat"}
BYTES = {"format.class": "ByteArrayFormat"}
CLOUD = {"connector.class": "S3_SINK", "input.data.format": "JSON", "output.data.format": "JSON"}
CLOUD_GZIP = {**CLOUD, "compression.codec": "JSON - gzip"}
HEADERS_OF_BYTES = {"headers.format.class": "ByteArrayFormat"}


@pytest.mark.parametrize(
    ("keys", "format_name", "codec"),
    [
        ({}, "envelope.parquet", "zstd"),
        ({"format.class": "EnvelopeAvroFormat"}, "envelope.avro", "zstd"),
        ({"format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat"}, "envelope.json", "gzip"),
        ({**AVRO, "format.class": FORMATS + "avro.AvroFormat"}, "avro", "null"),
        ({**JSON, "format.class": FORMATS + "json.JsonFormat"}, "json", "none"),
        ({**BYTES, "format.class": FORMATS + "bytearray.ByteArrayFormat"}, "bytes", "none"),
        ({**PARQUET, "format.class": FORMATS + "parquet.ParquetFormat"}, "parquet", "snappy"),
        ({**BYTES, "s3.compression.type": "gzip"}, "bytes", "gzip"),
        ({**JSON, "s3.compression.type": "zstd"}, "json", "zstd"),
        ({**AVRO, "avro.codec": "bzip2"}, "avro", "bzip2"),
        ({**PARQUET, "parquet.codec": "none"}, "parquet", "none"),
        ({"parquet.codec": "lz4"}, "envelope.parquet", "lz4"),
        (CLOUD_GZIP, "json", "gzip"),
        ({**CLOUD, "compression.codec": "none"}, "json", "none"),
        ({**AVRO, "compression.codec": "AVRO - snappy"}, "avro", "snappy"),
        ({"format.class": "BlockGzipFormat"}, "block_gzip", "gzip"),
    ],
)
def test_each_format_has_its_names_and_its_codec(
    load: Load, keys: dict[str, object], format_name: str, codec: str
) -> None:
    layout = load(keys).config.layout
    assert (layout.format, layout.codec) == (format_name, codec)


ZOOZ = {**BYTES, "archive.key.layout": "zooz"}
FIELDS = {"partitioner.class": "FieldPartitioner"}
KEYS = {**JSON, "store.kafka.keys": True}


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({**AVRO, "avro.codec": "gzip"}, "avro.codec", "the format avro has no codec 'gzip'"),
        ({**JSON, "s3.compression.type": "snappy"}, "s3.compression.type", "the format json has no codec"),
        ({**PARQUET, "parquet.codec": "bzip2"}, "parquet.codec", "the format parquet has no codec"),
        ({**AVRO, "s3.compression.type": "gzip"}, "s3.compression.type", "compresses by itself; set avro"),
        ({**JSON, "s3.compression.type": "gzip", "s3.compression.level": 10}, "s3.compression.level", "level"),
        ({**JSON, "s3.compression.type": "gzip", "s3.compression.level": 0}, "s3.compression.level", "level"),
        ({**CLOUD, "compression.codec": "AVRO - snappy"}, "compression.codec", "no codec of the format json"),
        ({**CLOUD, "compression.codec": "JSON - snappy"}, "compression.codec", "no codec 'snappy'"),
        ({**CLOUD_GZIP, "s3.compression.type": "gzip"}, "compression.codec", "sets the same"),
        ({**CLOUD, "format.class": "JsonFormat"}, "output.data.format", "format.class says the same"),
        ({"format.class": "com.example.OwnFormat"}, "format.class", "Java classes cannot run here"),
        ({"format.class": "JsonFormatt"}, "format.class", "did you mean JsonFormat"),
        ({**JSON, "store.kafka.headers": True, **HEADERS_OF_BYTES}, "headers.format.class", "not bytes"),
        ({**KEYS, "keys.format.class": "EnvelopeAvroFormat"}, "keys.format.class", "unknown here"),
        (KEYS, "key.converter", "required, here or in worker.properties, or input.key.format"),
        ({**JSON, "behavior.on.null.values": "write"}, "store.kafka.keys", "writes keys, for want of values"),
        ({**JSON, "behavior.on.null.values": "skip"}, "behavior.on.null.values", "none of ignore, fail, write"),
        ({**JSON, **FIELDS}, "partition.field.name", "required"),
        ({**BYTES, **FIELDS, "partition.field.name": "a"}, "partition.field.name", "values have no fields"),
        ({"timestamp.extractor": "RecordField", "timestamp.field": "a"}, "timestamp.field", "values have no fields"),
        ({"directory.delim": "a"}, "directory.delim", "directory.delim 'a'"),
        ({"file.delim": "1"}, "file.delim", "file.delim '1'"),
        ({"path.format": "'zone'=z"}, "path.format", "'z' at position 7"),
        ({"timezone": "Mars/Olympus"}, "timezone", "'Mars/Olympus' is no timezone"),
        ({**CLOUD, "rotate.interval.ms": 599_999}, "rotate.interval.ms", "599999 is not between 600000"),
        ({**CLOUD, "rotate.schedule.interval.ms": 1}, "rotate.schedule.interval.ms", "1 is not between 600000"),
        ({**ZOOZ, "topics": "a,b"}, "topics", "keys of the layout zooz name no topic"),
        ({**ZOOZ, "topics": "", "topics.regex": "a"}, "topics.regex", "keys of the layout zooz"),
        ({"topics.regex": "a.*"}, "topics.regex", "topics names the topics; keep one"),
        ({"topics": "", "topics.regex": "("}, "topics.regex", "'(' is no regular expression"),
        ({"topics": ""}, "topics", "required: name the topics to archive, or set topics.regex"),
        ({"topics.dir": "/"}, "topics.dir", "the bucket's root is not usable"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(load: Load, keys: dict[str, object], key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(keys)
    (line,) = [line for line in str(caught.value).splitlines() if line.startswith(f"  {key}: ")]
    assert message in line


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({**AVRO, "s3.compression.level": 6}, "s3.compression.level"),
        ({**JSON, "s3.compression.level": 6}, "s3.compression.level"),
        ({**JSON, "avro.codec": "snappy"}, "avro.codec"),
        ({**JSON, "format.bytearray.extension": ".x"}, "format.bytearray.extension"),
        ({**AVRO, "json.decimal.format": "NUMERIC"}, "json.decimal.format"),
        ({**JSON, "compressed_block_size": 1}, "compressed_block_size"),
        ({**JSON, "keys.format.class": "JsonFormat"}, "keys.format.class"),
        ({**JSON, "partition.field.name": "a"}, "partition.field.name"),
        ({**JSON, "path.format": "YYYY"}, "path.format"),
        ({**JSON, "rotate.interval.ms": 1}, "rotate.interval.ms"),
        ({**JSON, "timestamp.field": "t"}, "timestamp.field"),
        ({**JSON, "tombstone.encoded.partition": "t"}, "tombstone.encoded.partition"),
        ({**JSON, "archive.out.of.range.folder": "odd"}, "archive.out.of.range.folder"),
        ({"timestamp.extractor": "Wallclock", "archive.out.of.range.folder": "odd"}, "archive.out.of.range.folder"),
        ({"store.kafka.keys": True}, "store.kafka.keys"),
        ({**BYTES, "archive.key.layout": "zooz", "file.delim": "-"}, "file.delim"),
    ],
)
def test_a_key_of_something_else_is_accepted_without_meaning(load: Load, keys: dict[str, object], key: str) -> None:
    assert finding(load(keys).findings, key).support is Support.WITHOUT_MEANING


def test_the_keys_of_a_format_are_honoured(load: Load) -> None:
    layout = load(
        {
            **BYTES,
            "format.bytearray.extension": ".raw",
            "format.bytearray.separator": r"\r\n",
            "s3.compression.level": -1,
        }
    ).config.layout
    assert (layout.bytes_extension, layout.bytes_separator, layout.codec_level) == ("raw", "\r\n", None)
    assert load({**JSON, "json.decimal.format": "numeric"}).config.layout.decimal_format == "NUMERIC"


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("\r\n", "\r\n"),
        ("\n", "\n"),
        ("\t", "\t"),
        (" | ", " | "),
        (" ", " "),
        (" length ", "length"),
        ("${env:TWO}", "\r\n"),
        ("", "\n"),
    ],
)
def test_blanks_of_a_separator_count_as_in_connect(load: Load, text: str, separator: str) -> None:
    layout = load({**BYTES, "format.bytearray.separator": text}, {"TWO": "\r\n"}).config.layout
    assert layout.bytes_separator == separator


@pytest.mark.parametrize("text", ["", ".", " "])
def test_objects_of_bytes_without_an_extension_are_asked_for_by_another_key(check: Check, text: str) -> None:
    found = finding(check({**BYTES, "format.bytearray.extension": text}).findings, "format.bytearray.extension")
    assert (found.support, "archive.key.extension=." in found.effect) == (Support.REFUSED, True)


def test_an_empty_folder_is_the_buckets_root_as_in_connect(check: Check) -> None:
    found = finding(check({**BYTES, "topics.dir": ""}).findings, "topics.dir")
    assert (found.support, found.effect) == (Support.REFUSED, "the bucket's root is not usable; name a folder")


def test_keys_and_headers_go_to_objects_of_their_own_with_their_formats_codecs(load: Load) -> None:
    keys = {**AVRO, "store.kafka.keys": True, "store.kafka.headers": True, "key.converter": "StringConverter"}
    layout = load(keys).config.layout
    assert (layout.keys_format, layout.headers_format, layout.keys_codec) == ("avro", "avro", None)
    other = {"keys.format.class": "JsonFormat", "output.headers.format": "PARQUET", "s3.compression.type": "gzip"}
    layout = load({**keys, **other}).config.layout
    assert (layout.keys_format, layout.headers_format) == ("json", "parquet")
    assert (layout.codec, layout.keys_codec, layout.headers_codec) == ("null", "gzip", "snappy")


@pytest.mark.parametrize("name", ["out-of-range", "Odd.times", "__out_of_range__"])
def test_records_out_of_range_have_the_folder_that_is_named(load: Load, name: str) -> None:
    assert load({"archive.out.of.range.folder": name}).config.layout.out_of_range_folder == name


@pytest.mark.parametrize("name", ["_odd", ".odd", "__odd__", "a/b", "2026", "hour=1", "tombstone", "all", "May", "a b"])
def test_a_folder_of_records_out_of_range_that_engines_hide_or_others_have_is_refused(load: Load, name: str) -> None:
    path = "MMM/dd" if name == "May" else "'all'/YYYY"
    with pytest.raises(ConfigError, match=r"archive.out.of.range.folder: .*write a name such as out-of-range"):
        load({"path.format": path, "archive.out.of.range.folder": name})


def test_records_without_a_value_fail_as_in_connect_and_are_archived_in_the_envelope(load: Load) -> None:
    assert load(JSON).config.layout.null_values == "fail"
    assert load({**JSON, "behavior.on.null.values": "ignore"}).config.layout.null_values == "ignore"
    written = {"behavior.on.null.values": "write", "store.kafka.keys": True, "input.key.format": "STRING"}
    layout = load({**JSON, **written, "tombstone.encoded.partition": "gone"}).config.layout
    assert (layout.null_values, layout.tombstone_partition) == ("write", "gone")
    assert load().config.layout.null_values == "write"
    with pytest.raises(ConfigError, match="an envelope archives records without a value"):
        load({"behavior.on.null.values": "ignore"})


@pytest.mark.parametrize(
    ("keys", "partitioner"),
    [
        ({}, "Hourly"),
        (JSON, "Default"),
        (CLOUD, "Hourly"),
        ({**CLOUD, "time.interval": "DAILY"}, "Daily"),
        ({"partitioner.class": "DefaultPartitioner"}, "Default"),
        ({**BYTES, "archive.key.layout": "zooz"}, "Hourly"),
        ({**BYTES, "archive.key.layout": "block_gzip"}, "Daily"),
    ],
)
def test_a_file_that_names_no_partitioner_has_the_one_its_sink_has(
    load: Load, keys: dict[str, object], partitioner: str
) -> None:
    assert load(keys).config.layout.partitioner == partitioner


def test_fields_of_the_value_group_records(load: Load) -> None:
    keys = {**JSON, "partitioner.class": "FieldPartitioner", "partition.field.name": "country, address.city"}
    layout = load(keys).config.layout
    assert (layout.partitioner, layout.partition_fields) == ("Field", ("country", "address.city"))


def test_topics_may_be_a_pattern(load: Load) -> None:
    config = load({"topics": "", "topics.regex": "flights-.*"}).config
    assert (config.topics, config.topics_regex) == ((), "flights-.*")


def test_clouds_timestamp_field_names_its_extractor_too(load: Load) -> None:
    layout = load({**CLOUD, "timestamp.field": "at.time"}).config.layout
    assert (layout.timestamp_extractor, layout.timestamp_field) == ("RecordField", "at.time")
    layout = load(
        {**JSON, "partitioner.class": "HourlyPartitioner", "timestamp.extractor": "RecordField"}
    ).config.layout
    assert layout.timestamp_field == "timestamp"


@pytest.mark.parametrize(
    ("keys", "interval", "schedule"),
    [
        ({}, None, None),
        ({"rotate.interval.ms": 5, "rotate.schedule.interval.ms": 7}, 5, 7),
        ({"rotate.interval.ms": -1, "rotate.schedule.interval.ms": -1}, None, None),
        (CLOUD, 3_600_000, None),
        ({**CLOUD, "time.interval": "DAILY"}, 86_400_000, None),
        ({**CLOUD, "rotate.interval.ms": 600_000, "rotate.schedule.interval.ms": 600_000}, 600_000, 600_000),
        ({**CLOUD, "rotate.interval.ms": -1}, None, None),
    ],
)
def test_rotation_has_the_limits_and_defaults_of_its_sink(
    load: Load, keys: dict[str, object], interval: int | None, schedule: int | None
) -> None:
    layout = load(keys).config.layout
    assert (layout.rotate_interval_ms, layout.rotate_schedule_interval_ms) == (interval, schedule)


def test_delimiters_are_honoured(load: Load) -> None:
    layout = load({"directory.delim": "|", "file.delim": "-"}).config.layout
    assert (layout.directory_delim, layout.file_delim) == ("|", "-")


def test_python_classes_may_be_named(load: Load, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = "".join(f"    def {name}(self): ...\n" for name in ("write", "close", "encode", "extract"))
    (tmp_path / "my_own_classes.py").write_text(f"class Own:\n{methods}")
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "my_own_classes")
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = ("format.class", "partitioner.class", "timestamp.extractor")
    layout = load({**dict.fromkeys(keys, "my_own_classes.Own"), "input.data.format": "JSON"}).config.layout
    assert (layout.format, layout.partitioner, layout.timestamp_extractor) == ("my_own_classes.Own",) * 3


@pytest.mark.parametrize(
    ("keys", "field", "expected"),
    [
        ({**BYTES, "archive.key.extension": ".json.gz"}, "extension", "json.gz"),
        ({**JSON, "schema.compatibility": "backward"}, "schema_compatibility", "BACKWARD"),
        ({"filename.offset.zero.pad.width": 3}, "offset_pad_width", 3),
        ({"file.name.template": "{{topic}}/{{partition}}-{{start_offset}}"}, "key_layout", "template"),
    ],
)
def test_other_keys_of_the_layout_are_honoured(
    load: Load, keys: dict[str, object], field: str, expected: object
) -> None:
    assert getattr(load(keys).config.layout, field) == expected


def test_the_archives_own_offsets_may_be_published(check: Check) -> None:
    config = check({"archive.publish.offsets": True}).config
    assert config
    assert config.archive.publish_offsets
