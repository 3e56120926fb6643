import pytest

from kafka_s3_platform.connect.config.zooz import convert_environment

REQUIRED = {"KAFKA_HOST": "a:9092", "SOURCE_KAFKA_TOPIC": "t", "S3_BUCKET_NAME": "bucket"}


def test_the_required_variables_become_a_file_with_the_services_defaults() -> None:
    converted = convert_environment(REQUIRED)
    assert converted.keys == {
        "name": "s3-connector",
        "connector.class": "kafka_s3_platform.S3Archive",
        "topics": "t",
        "kafka.endpoint": "a:9092",
        "s3.bucket.name": "bucket",
        "s3.region": "us-east-1",
        "topics.dir": "/",
        "archive.key.layout": "zooz",
        "path.format": "'date'=YYYY-MM-dd/'hour'=HH",
        "format.class": "ByteArrayFormat",
        "value.converter": "ByteArrayConverter",
        "rotate.schedule.interval.ms": "900000",
        "s3.part.retries": "5",
        "archive.key.extension": "json",
    }
    assert converted.without_counterpart == {}


def test_optional_variables_are_honoured_and_secrets_stay_where_they_are() -> None:
    keys = convert_environment(
        {
            **REQUIRED,
            "APP_ID": "mine",
            "S3_ACCESS_KEY": "hunter2",
            "S3_SECRET_KEY": "hunter2",
            "S3_REGION": "eu-west-1",
            "S3_ENDPOINT": "http://s3:9000",
            "S3_ROOT_PATH": "logs/raw",
            "S3_PATTERN_PATH": "day=%s/it's/h%s",
            "S3_EXTENSTION": "log",
            "COMPRESSION_TYPE": "GZIP",
            "FLUSH_INTERVAL_MINUTES": "5",
            "MAX_FLUSH_RETRIES": "9",
            "SKIP_CORRUPTED_MESSAGES": "true",
        }
    ).keys
    assert "hunter2" not in str(keys)
    assert (keys["aws.access.key.id"], keys["aws.secret.access.key"]) == (
        "${env:S3_ACCESS_KEY}",
        "${env:S3_SECRET_KEY}",
    )
    assert (keys["name"], keys["topics.dir"], keys["store.url"]) == ("mine", "logs/raw", "http://s3:9000")
    assert keys["path.format"] == "'day'=YYYY-MM-dd/'it''s'/'h'HH"
    assert (keys["s3.compression.type"], keys["archive.key.extension"]) == ("gzip", "log.gz")
    assert (keys["rotate.schedule.interval.ms"], keys["s3.part.retries"]) == ("300000", "9")
    assert (keys["errors.tolerance"], keys["errors.deadletterqueue.topic.name"]) == ("all", "t.dead-letters")


def test_what_is_skipped_is_kept_in_a_topic_and_told() -> None:
    assert (
        "goes to the topic t.dead-letters"
        in convert_environment({**REQUIRED, "SKIP_CORRUPTED_MESSAGES": "true"}).notes["SKIP_CORRUPTED_MESSAGES"]
    )
    assert convert_environment(REQUIRED).notes == {}


def test_variables_without_a_counterpart_are_told() -> None:
    own = {
        "LOADING_MODULE": "com.zooz.kafkas3connector.modules.UpperCaseLoader",
        "PORT": "9000",
        "BUFFERS_LOCAL_DIR": "/tmp",
        "DEFAULT_KAFKA_STARTPOINT": "earliest",
        "HOME": "/root",
    }
    assert convert_environment({**REQUIRED, **own}).without_counterpart.keys() == own.keys() - {"HOME"}
    default = "com.zooz.kafkas3connector.modules.DefaultLoader"
    assert not convert_environment({**REQUIRED, "LOADING_MODULE": default}).without_counterpart


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"KAFKA_HOST": ""}, "KAFKA_HOST must be set"),
        ({"COMPRESSION_TYPE": "rar"}, "COMPRESSION_TYPE: 'rar' is none of gzip, bzip2"),
        ({"FLUSH_INTERVAL_MINUTES": "soon"}, "FLUSH_INTERVAL_MINUTES: 'soon' is no whole number"),
        ({"S3_PATTERN_PATH": "%s/%s/%s"}, "S3_PATTERN_PATH"),
    ],
)
def test_what_the_service_would_not_take_is_refused(env: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert_environment({**REQUIRED, **env})
