"""Where a restore's documents lie: every restore that was ever begun is found under these keys."""

from dataclasses import fields

from kafka_s3_platform.restore.documents import RestoreDocuments, StreamDocuments


def keys(of: RestoreDocuments | StreamDocuments) -> dict[str, object]:
    names = {name for name, found in vars(type(of)).items() if isinstance(found, property)}
    return {name: getattr(of, name) for name in names - {f.name for f in fields(of)}}


def test_documents_lie_where_earlier_versions_put_them() -> None:
    documents = RestoreDocuments("topics/_restore", "incident.7")
    assert keys(documents) == {
        "plan": "topics/_restore/incident.7.json",
        "report": "topics/_restore/incident.7.report.json",
        "page": "topics/_restore/incident.7.report.html",
        "known": "topics/_restore/incident.7.known.parquet",
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
