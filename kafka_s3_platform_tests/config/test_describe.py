from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.describe import Description, check_report, describe_class
from kafka_s3_platform.connect.config.dialects import CLOUD, DIALECTS, Dialect
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform_tests.config.conftest import Check, finding, of_class


def test_a_report_tells_what_each_key_does(check: Check) -> None:
    report = check({"flush.size": 3, "confluent.license": "", "hive.integration": "true", "nonsense": 1})
    assert not report.ok
    assert report.config is None
    assert finding(report.findings, "flush.size").value == "3"
    assert "An object ends after this many records" in finding(report.findings, "flush.size").effect
    assert finding(report.findings, "confluent.license").support is Support.WITHOUT_MEANING
    assert [found.key for found in of_class(report, Support.REFUSED)] == ["hive.integration", "nonsense"]


def test_a_report_of_a_file_that_loads_holds_its_configuration(check: Check) -> None:
    report = check()
    assert report.ok
    assert report.config is not None
    assert (report.name, report.problems) == ("events", ())


def test_a_report_shows_values_as_they_are_written(check: Check) -> None:
    report = check({"s3.region": "${env:REGION}"}, env={"REGION": "eu-west-1"})
    assert finding(report.findings, "s3.region").value == "${env:REGION}"


def test_a_report_tells_of_missing_keys(folder: Path) -> None:
    path = folder / "a.properties"
    path.write_text("name=a\n")
    report = check_report(path, folder / "worker.properties", {})
    assert [(found.key, found.effect.split(":")[0]) for found in of_class(report, Support.REFUSED)] == [
        ("s3.bucket.name", "required"),
        ("topics", "required"),
    ]


def test_a_missing_bucket_is_told_by_the_name_that_the_class_has_for_it(folder: Path) -> None:
    path = folder / "a.properties"
    path.write_text("name=a\nconnector.class=com.deviantart.kafka_connect_s3.S3SinkConnector\ntopics=t\n")
    report = check_report(path, folder / "worker.properties", {})
    assert [found.key for found in of_class(report, Support.REFUSED)] == ["s3.bucket"]


def test_a_report_tells_of_the_workers_keys_too(check: Check) -> None:
    report = check(worker="consumer.group.id=x\nrest.port=1\n")
    assert not report.ok
    assert [found.support for found in report.worker_findings] == [
        Support.HONOURED,
        Support.REFUSED,
        Support.WITHOUT_MEANING,
    ]


def test_a_file_that_cannot_be_parsed_is_a_problem_of_the_report(folder: Path) -> None:
    path = folder / "a.json"
    path.write_text('{"name": "a",}')
    report = check_report(path, folder / "worker.properties", {})
    assert not report.ok
    assert "a.json, line 1, column" in report.problems[0]
    assert report.worker_findings
    (folder / "worker.properties").write_text("a=1\na=2\n")
    assert "line 2: the key of line 1 again" in check_report(path, folder / "worker.properties", {}).problems[0]


@pytest.mark.parametrize("dotted", ["subprocess.Popen", "hostile_module.Thing"])
@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("s3.credentials.provider.class", {"s3.credentials.provider.touch": "", "s3.credentials.provider.{}": ""}),
        ("transforms.x.type", {"transforms": "x", "transforms.x.touch": "", "transforms.x.{}": ""}),
        ("format.class", {}),
        ("partitioner.class", {}),
        ("timestamp.extractor", {}),
    ],
)
def test_a_connector_file_alone_loads_no_class(
    check: Check, folder: Path, key: str, more: dict[str, str], dotted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking a file ran what it named."""
    mark = folder / "mark"
    (folder / "hostile_module.py").write_text(f"open({str(mark)!r}, 'w')\nclass Thing: ...\n")
    monkeypatch.syspath_prepend(str(folder))
    report = check({key: dotted, **{name.format(mark): value for name, value in more.items()}})
    assert not report.ok
    told = finding(report.findings, key)
    assert told.support is Support.REFUSED
    assert "no plug-in that this installation allows" in told.effect
    assert "KAFKA_S3_PLUGINS" in told.effect
    assert not mark.exists()


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
    assert (defaults["partitioner.class"], defaults["archive.key.layout"]) == ("DailyPartitioner", "block_gzip")
    assert "aws.s3.bucket.name" in names(describe_class("AivenKafkaConnectS3SinkConnector"), "required")
    assert "file.delim" in names(describe_class("S3SinkConnector"), "optional")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "com.deviantart.kafka_connect_s3.S3SinkConnector",
            {"path.format": "YYYY-MM-dd", "format.class": "BlockGzipFormat", "s3.prefix": "none", "flush.size": "none"},
        ),
        (
            "S3_SINK",
            {
                "flush.size": "1000",
                "rotate.interval.ms": "3600000",
                "partitioner.class": "HourlyPartitioner",
                "format.class": "EnvelopeParquetFormat",
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dlq-<name>",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        ),
        (
            "AivenKafkaConnectS3SinkConnector",
            {
                "timestamp.extractor": "Wallclock",
                "file.compression.type": "gzip",
                "format.class": "ByteArrayFormat",
                "partitioner.class": "DefaultPartitioner",
                "archive.key.layout": "template",
            },
        ),
        ("kafka_s3_platform.S3Archive", {"flush.size": "none", "timestamp.extractor": "Record"}),
        (
            "io.confluent.connect.s3.S3SinkConnector",
            {
                "errors.tolerance": "none",
                "errors.deadletterqueue.context.headers.enable": "false",
                "rotate.interval.ms": "none",
            },
        ),
    ],
)
def test_the_defaults_of_a_class_are_those_that_its_files_come_to(name: str, told: dict[str, str]) -> None:
    defaults = {key.key: key.default for key in describe_class(name).optional}
    assert {key: defaults[key] for key in told} == told


def test_no_default_of_a_class_tells_of_another_one() -> None:
    for dialect in DIALECTS:
        described = describe_class(dialect.class_name)
        keys = (*described.required, *described.required_there, *described.optional)
        assert [key.key for key in keys if "S3_SINK" in key.default] == []


def test_an_unknown_class_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"did you mean S3_SINK\?"):
        describe_class("S3_SINKS")


def test_a_source_is_described_without_the_keys_of_writing() -> None:
    source = describe_class("S3SourceConnector")
    assert "topics" not in names(source, "required")
    assert {"topics", "behavior.on.error", "s3.poll.interval.ms"} <= set(names(source, "optional"))
    assert "flush.size" not in names(source, "optional")
    assert "behavior.on.error" not in names(describe_class("S3SinkConnector"), "optional")
