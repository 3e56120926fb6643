"""Where a restore's documents lie, and which format they have."""

import json
from dataclasses import fields

import pytest

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.restore.documents import RestoreDocuments, StreamDocuments, parse_document
from kafka_s3_platform.restore.replay.checkpoint import Position
from kafka_s3_platform.restore.request import RestoreReport
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform_tests.restore.test_report_page import report


def keys(of: RestoreDocuments | StreamDocuments) -> dict[str, object]:
    names = {name for name, found in vars(type(of)).items() if isinstance(found, property)}
    return {name: getattr(of, name) for name in names - {f.name for f in fields(of)}}


def test_each_document_has_a_key_of_its_own() -> None:
    documents = RestoreDocuments("topics/_restore", "incident.7")
    assert keys(documents) == {
        "plan": "topics/_restore/incident.7.json",
        "report": "topics/_restore/incident.7.report.json",
        "page": "topics/_restore/incident.7.report.html",
        "sent_before": "topics/_restore/incident.7.known.parquet",
        "successor": "topics/_restore/incident.7.next",
        "streams": "topics/_restore/incident.7/",
    }
    assert keys(documents.stream(3)) == {
        "checkpoint": "topics/_restore/incident.7/3.json",
        "mapping": "topics/_restore/incident.7/3.mapping.parquet",
        "left_out": "topics/_restore/incident.7/3.left-out.json",
    }
    assert documents.stream(3, "a.json").checkpoint == "topics/_restore/incident.7/a.json/3.json"
    assert RestoreDocuments.of_plan(documents.plan) == documents


@pytest.mark.parametrize(("said", "found"), [(2, "format 2"), (None, "no format")])
def test_a_report_of_another_format_is_refused_and_says_what_to_do(said: int | None, found: str) -> None:
    document = json.loads(report().to_json())
    assert document.pop("format") == 1
    content = json.dumps(document if said is None else {**document, "format": said}).encode()
    advice = f"restore report k has {found}, and this version reads format 1: use the version that wrote it, or restore"
    with pytest.raises(IntegrityError, match=rf"\] {advice} under another restore id$"):
        RestoreReport.from_json(content, "k")
    assert RestoreReport.from_json(report().to_json(), "k").plan_digest == report().plan_digest


NO_DOCUMENTS = [b"", b"[", b"[" * 100_000, b"5", b"null", b"[]", b"\xff", b'{"a":' * 100_000, b'{"digest": 5}']


@pytest.mark.parametrize("content", NO_DOCUMENTS, ids=lambda content: str(content[:9]))
def test_what_is_no_document_is_told_as_that(content: bytes) -> None:
    for read in (
        ArchivePlan.from_json,
        RestoreReport.from_json,
        lambda *given: parse_document(given[0], Position, "k"),
    ):
        with pytest.raises(IntegrityError, match="k is no document of a restore"):
            read(content, "k")
