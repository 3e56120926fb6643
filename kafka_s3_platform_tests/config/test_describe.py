import pytest

from kafka_s3_platform.config.describe import Description, describe_class
from kafka_s3_platform.config.dialects import CLOUD, DIALECTS, Dialect


def names(found: Description, group: str) -> list[str]:
    return [key.key for key in getattr(found, group)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_class_is_described(dialect: Dialect) -> None:
    found = describe_class(dialect.class_name)
    assert found.class_name == dialect.class_name
    assert names(found, "required")
    assert found.optional


def test_clouds_required_keys_are_all_told_and_which_of_them_are_required_here() -> None:
    found = describe_class("S3_SINK")
    assert set(names(found, "required")) == {"name", "topics", "s3.bucket.name"}
    assert {*names(found, "required"), *names(found, "required_there")} == set(CLOUD.required_there)


def test_a_class_is_described_in_its_own_words() -> None:
    deviantart = describe_class("com.deviantart.kafka_connect_s3.S3SinkConnector")
    assert "s3.bucket" in names(deviantart, "required")
    assert "compressed_block_size" in names(deviantart, "optional")
    assert "time.interval" not in names(deviantart, "optional")
    defaults = {key.key: key.default for key in deviantart.optional}
    assert (defaults["partitioner.class"], defaults["archive.key.layout"]) == ("Daily", "block_gzip")
    assert "aws.s3.bucket.name" in names(describe_class("AivenKafkaConnectS3SinkConnector"), "required")
    assert "file.delim" in names(describe_class("S3SinkConnector"), "optional")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "com.deviantart.kafka_connect_s3.S3SinkConnector",
            {"path.format": "YYYY-MM-dd", "format.class": "block_gzip", "s3.prefix": "none", "flush.size": "none"},
        ),
        (
            "S3_SINK",
            {
                "flush.size": "1000",
                "rotate.interval.ms": "3600000",
                "partitioner.class": "Hourly",
                "errors.tolerance": "none; all for `S3_SINK`",
            },
        ),
        (
            "AivenKafkaConnectS3SinkConnector",
            {
                "timestamp.extractor": "Wallclock",
                "file.compression.type": "gzip",
                "format.class": "bytes",
                "partitioner.class": "Default",
                "archive.key.layout": "template",
            },
        ),
        ("kafka_s3_platform.S3Archive", {"flush.size": "none; 1000 for `S3_SINK`", "timestamp.extractor": "Record"}),
    ],
)
def test_the_defaults_of_a_class_are_those_that_its_files_come_to(name: str, told: dict[str, str]) -> None:
    defaults = {key.key: key.default for key in describe_class(name).optional}
    assert {key: defaults[key] for key in told} == told


def test_an_unknown_class_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"did you mean S3_SINK\?"):
        describe_class("S3_SINKS")


def test_a_source_is_described_without_the_keys_of_writing() -> None:
    source = describe_class("S3SourceConnector")
    assert "topics" not in names(source, "required")
    assert {"topics", "behavior.on.error", "s3.poll.interval.ms"} <= set(names(source, "optional"))
    assert "flush.size" not in names(source, "optional")
    assert "behavior.on.error" not in names(describe_class("S3SinkConnector"), "optional")
