from pathlib import Path

import pytest

from kafka_s3_platform.config.describe import check_report
from kafka_s3_platform.config.keys.sheet import KeyClass
from kafka_s3_platform_tests.config.conftest import Check, finding, of_class


def test_a_report_tells_what_each_key_does(check: Check) -> None:
    report = check({"flush.size": 3, "confluent.license": "", "hive.integration": "true", "nonsense": 1})
    assert not report.ok
    assert report.config is None
    assert finding(report.findings, "flush.size").value == "3"
    assert "An object ends after this many records" in finding(report.findings, "flush.size").effect
    assert finding(report.findings, "confluent.license").key_class is KeyClass.WITHOUT_MEANING
    assert [found.key for found in of_class(report, KeyClass.REFUSED)] == ["hive.integration", "nonsense"]


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
    assert [(found.key, found.effect.split(":")[0]) for found in of_class(report, KeyClass.REFUSED)] == [
        ("s3.bucket.name", "required"),
        ("topics", "required"),
    ]


def test_a_report_tells_of_the_workers_keys_too(check: Check) -> None:
    report = check(worker="consumer.group.id=x\nrest.port=1\n")
    assert not report.ok
    assert [found.key_class for found in report.worker_findings] == [
        KeyClass.HONOURED,
        KeyClass.REFUSED,
        KeyClass.WITHOUT_MEANING,
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
    assert told.key_class is KeyClass.REFUSED
    assert "no plug-in that this installation allows" in told.effect
    assert "KAFKA_S3_PLUGINS" in told.effect
    assert not mark.exists()
