"""Numbers in headers of Aiven's JSON keep their digits."""

import io

import pytest

from kafka_s3_platform.config.settings import SourceSettings
from kafka_s3_platform.formats.aiven import AivenReader
from kafka_s3_platform_tests.conftest import present


@pytest.mark.parametrize("number", [b"0.2000000000000000111", b"98765432109876543210.5", b"2.5E+400", b"2.5", b"7"])
def test_a_header_is_the_number_of_its_text(number: bytes) -> None:
    line = b'{"value":1,"headers":[{"key":"h","value":%s}],"offset":3}\n' % number
    settings = SourceSettings(fields=("value", "headers", "offset"))
    [batch] = AivenReader(io.BytesIO(line), "k", "jsonl", settings).batches()
    assert present(batch.headers).to_pylist() == [[{"key": "h", "value": number}]]
