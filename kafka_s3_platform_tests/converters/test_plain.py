import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.converters import new_converter
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.connect import NO_SCHEMA


def test_bytes_are_what_they_are() -> None:
    raw = pa.array([b"\xff\n", b"", None])
    converted = new_converter(ConverterSettings(format="BYTES"), "t", is_key=True).convert(raw, np.arange(3))
    assert converted.payload.raw == raw
    assert converted.payload.objects == [b"\xff\n", b"", None]
    assert converted.payload.codes.tolist() == [0, 0, NO_SCHEMA]
    assert converted.payload.schemas[0].avro == "bytes"


def test_strings_are_utf_8() -> None:
    converter = new_converter(ConverterSettings(format="STRING"), "t", is_key=True)
    converted = converter.convert(pa.array(["é\n".encode(), b"\xff", None, b""]), np.arange(5, 9))
    assert converted.payload.objects == ["é\n", None, ""]
    assert converted.payload.codes.tolist() == [0, NO_SCHEMA, 0]
    assert converted.payload.schemas[0].avro == "string"
    [failure] = converted.failures
    assert (failure.offset, failure.stage) == (6, "KEY_CONVERTER")
    assert failure.executing_class == "org.apache.kafka.connect.storage.StringConverter"
    assert "the key of the record at offset 6 of topic t is not UTF-8" in failure.message


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_a_format_with_schemas_needs_a_registry(name: str) -> None:
    settings = ConverterSettings.model_validate({"format": name})
    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url"):
        new_converter(settings, "t", is_key=False)
