import pytest

from kafka_s3_platform.config.formats import INPUTS, JSON_WITH_SCHEMA, REFUSALS, WRITTEN_FORMATS
from kafka_s3_platform.config.keys.records import explain_refusal, find_input
from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load

CLASSES = {
    "avro": "AvroFormat",
    "json": "JsonFormat",
    "bytes": "ByteArrayFormat",
    "parquet": "ParquetFormat",
    "block_gzip": "BlockGzipFormat",
    "envelope.parquet": "EnvelopeParquetFormat",
    "envelope.avro": "EnvelopeAvroFormat",
    "envelope.json": "EnvelopeJsonFormat",
}


@pytest.mark.parametrize("output", WRITTEN_FORMATS)
@pytest.mark.parametrize("row", INPUTS)
def test_a_pair_loads_unless_the_table_refuses_it(load: Load, row: str, output: str) -> None:
    converter = {"value.converter": "JsonConverter"} if row == JSON_WITH_SCHEMA else {"input.data.format": row}
    keys = {**converter, "format.class": CLASSES[output], "schema.registry.url": "http://registry:8081"}
    if (row, output) not in REFUSALS:
        assert load(keys).config.layout.format == output
        return
    with pytest.raises(ConfigError) as caught:
        load(keys)
    assert f"{row} cannot be written as {output}: {REFUSALS[row, output]}" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "output"), [("JSON", "avro"), ("JSON", "parquet"), ("STRING", "parquet"), ("AVRO", "bytes")]
)
def test_what_connect_cannot_write_is_refused(row: str, output: str) -> None:
    assert (row, output) in REFUSALS


def test_the_table_names_no_pair_that_is_not_in_it() -> None:
    assert {row for row, _ in REFUSALS} <= set(INPUTS)
    assert {output for _, output in REFUSALS} <= set(WRITTEN_FORMATS)


def test_json_with_its_schema_is_another_input_than_json() -> None:
    plain, with_schema = ConverterSettings(format="JSON"), ConverterSettings(format="JSON", schemas_enable=True)
    assert (find_input(plain), find_input(with_schema)) == ("JSON", JSON_WITH_SCHEMA)
    assert explain_refusal(plain, "avro")
    assert explain_refusal(with_schema, "avro") is None


def test_keys_follow_the_same_table(load: Load) -> None:
    keys = {"format.class": "JsonFormat", "input.data.format": "JSON", "store.kafka.keys": True}
    with pytest.raises(ConfigError, match=r"input\.key\.format: JSON cannot be written as avro"):
        load({**keys, "input.key.format": "JSON"})
    assert load({**keys, "input.key.format": "STRING"}).config.layout.keys_format == "avro"
