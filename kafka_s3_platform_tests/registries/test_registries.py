"""Whole Schema Registries: archived with what no record names, and restored with the ids that they had."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kafka_s3_platform.cli import main
from kafka_s3_platform.connect.converters.registry_contents import qualify_subject
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.definitions import defs
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.registries.importing_registry import ImportingRegistry
from kafka_s3_platform_tests.store.http_proxy import running

A, LATER_A, OTHER_A = (
    json.dumps({"type": "record", "name": "A", "fields": [{"name": name, "type": "int", "default": 0}]})
    for name in "xyz"
)
B = json.dumps({"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]})
ALL_THERE = "read back: all is there, as archived"

Command = Callable[..., Result]


@pytest.fixture
def source() -> Iterator[ImportingRegistry]:
    """A version is missing between two others, one is soft-deleted, so is a subject; a context has ids of its own."""
    with running(ImportingRegistry()) as server:
        for text in (A, OTHER_A, LATER_A):
            server.register("a", text)
        del server.versions["a", 2]
        server.register("b", B, references=[{"name": "A", "subject": "a", "version": 3}])
        server.register("a-again", A)
        server.register("ruled", A, metadata={"properties": {"owner": "me"}})
        server.register(":.fleet:d", OTHER_A)
        server.register(":.fleet:c", B, references=[{"name": "A", "subject": "d", "version": 1}])
        server.register("gone", OTHER_A)
        server.deleted |= {("a", 1), ("gone", 1)}
        server.configs |= {
            "": {"compatibilityLevel": "NONE"},
            "a": {"compatibilityLevel": "FULL", "normalize": True},
            ":.fleet:": {"compatibilityLevel": "NONE"},
        }
        assert server.modes is not None
        server.modes["ruled"] = "READONLY"
        server.writes.clear()
        yield server


@pytest.fixture
def target() -> Iterator[ImportingRegistry]:
    with running(ImportingRegistry()) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(lab: Lab, folder: Path) -> Command:
    """Runs `kafka-s3 registry` for the connector `c`, whose registry is at `url`."""

    def run(*arguments: str, url: str, to: str | None = None, status: int = 0) -> Result:
        write_connector(lab, folder, url)
        if to is not None:
            (folder / "target.registry").write_text(f"schema.registry.url={to}\n")
            arguments = (*arguments, "--to", str(folder / "target.registry"))
        result = CliRunner().invoke(main, ["registry", *arguments[:1], "c", *arguments[1:]])
        assert result.exit_code == status, result.output
        return result

    return run


def write_connector(lab: Lab, folder: Path, url: str) -> None:
    key, secret = lab.store.access_key_id, lab.store.secret_access_key
    assert key is not None
    assert secret is not None
    keys = {
        "name": "c",
        "topics": lab.topic,
        "s3.bucket.name": lab.store.bucket,
        "store.url": lab.store.endpoint_url,
        "aws.access.key.id": key.get_secret_value(),
        "aws.secret.access.key": secret.get_secret_value(),
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": url,
    }
    (folder / "c.json").write_text(json.dumps(keys))
    (folder / "worker.properties").write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n")


def list_documents(lab: Lab, client: Any) -> list[str]:
    listed = client.list_objects_v2(Bucket=lab.store.bucket, Prefix="_index/registry=c/")
    return [item["Key"] for item in listed.get("Contents", ())]


def test_an_empty_registry_gets_everything_as_it_was(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    told = command("archive", url=source.endpoint).output
    assert "7 subjects, 8 versions, 7 schemas" in told
    assert "2 of the versions soft-deleted" in told
    assert source.writes == []
    assert (
        "8 versions would be registered"
        in command("restore", "--dry-run", url=source.endpoint, to=target.endpoint).output
    )
    assert target.writes == []
    told = command("restore", url=source.endpoint, to=target.endpoint).output
    assert "8 versions registered, of 7 subjects with 8 versions; all ids are as archived" in told
    assert ALL_THERE in told
    assert (target.versions, target.deleted) == (source.versions, source.deleted)
    assert (target.configs, target.modes) == (source.configs, source.modes)


def test_a_restore_that_was_killed_goes_on_and_then_has_nothing_to_do(
    command: Command, source: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    with running(ImportingRegistry(most_imports=3)) as target:
        command("restore", url=source.endpoint, to=target.endpoint, status=1)
        assert len(target.versions) == 3
        assert "5 versions registered" in command("restore", url=source.endpoint, to=target.endpoint).output
        assert (target.versions, target.deleted, target.modes) == (source.versions, source.deleted, source.modes)
        assert target.configs == source.configs
        target.writes.clear()
        again = command("restore", url=source.endpoint, to=target.endpoint).output
        assert "0 versions registered" in again
        assert ALL_THERE in again
        assert target.writes == []


def test_a_registry_without_import_gives_its_own_ids_and_what_differs_is_said(
    command: Command, source: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    with running(ImportingRegistry(modes=False)) as target:
        target.register("others", '"string"')
        told = command("restore", url=source.endpoint, to=target.endpoint, status=3).output
        assert "got other ids: restore records with --map-schema-ids" in told
        assert "version 3 of a is version 2 there" in told
        assert "ruled has the mode None, not READONLY" in told
        assert target.versions["b", 1]["references"][0]["version"] == 2
        assert target.versions["a", 1]["schema"] == A
        versions = {*target.versions}
        again = command("restore", url=source.endpoint, to=target.endpoint, status=3).output
        assert "0 versions registered" in again
        assert {*target.versions} == versions


def test_where_an_id_is_of_another_schema_all_get_new_ones(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    target.register("others", '"string"')
    dry_run = command("restore", "--dry-run", url=source.endpoint, to=target.endpoint).output
    assert "ids would be others: there, id 1 is of another schema, such as in others" in dry_run
    told = command("restore", "--json", url=source.endpoint, to=target.endpoint, status=3).stdout
    assert json.loads(told)["new_ids"]["."]["1"] != 1
    assert target.versions["others", 1]["schema"] == '"string"'
    del target.versions["others", 1]
    second_dry_run = command("restore", "--dry-run", "--json", url=source.endpoint, to=target.endpoint).stdout
    assert json.loads(second_dry_run)["new_ids"]["."]["1"] != 1, "no id is taken, and schemas have others already"


def test_a_registry_that_numbers_anew_gets_nothing_twice(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    source.register("z", A)
    source.register("v", B, references=[{"name": "A", "subject": "z", "version": 1}])
    source.register("back", A)
    source.deleted |= {("v", 1), ("z", 1), ("back", 1)}
    source.register("back", A)
    command("archive", url=source.endpoint)
    target.register("others", '"string"')
    told = command("restore", url=source.endpoint, to=target.endpoint, status=3).output
    assert "version 1 of back is not deleted there" in told, "its version 2 is the same one there, and lives"
    assert target.deleted == {("a", 1), ("gone", 1), ("v", 1), ("z", 1)}
    versions, deleted = dict(target.versions), set(target.deleted)
    target.writes.clear()
    again = command("restore", url=source.endpoint, to=target.endpoint, status=3).output
    assert "0 versions registered" in again
    assert (target.versions, target.deleted, target.writes) == (versions, deleted, [])


def test_a_subject_with_another_schema_is_refused_by_name(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    target.register("b", '"string"')
    target.versions["b", 1]["id"] = 50
    told = command("restore", url=source.endpoint, to=target.endpoint, status=1).output
    assert "version 1 of b" in told
    assert "nothing was registered" in told
    assert target.writes == []
    command("restore", "--subject", "a", url=source.endpoint, to=target.endpoint)
    assert {subject for subject, _ in target.versions} == {"a", "b"}


def test_a_version_of_the_target_is_not_replaced_by_another_schema(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    source.register("v", A)
    source.register("v", LATER_A)
    command("archive", url=source.endpoint)
    target.register("v", LATER_A)
    target.versions["v", 1]["id"] = 50
    output = command("restore", url=source.endpoint, to=target.endpoint, status=3).output
    assert target.versions["v", 1] == {"schemaType": "AVRO", "references": [], "schema": LATER_A, "id": 50}
    assert "version 2 of v is version 1 there" in output


def test_of_deleted_versions_those_go_first_that_refer_to_others(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    source.register("z", A)
    source.register("v", B, references=[{"name": "A", "subject": "z", "version": 1}])
    source.deleted |= {("v", 1), ("z", 1)}
    command("archive", url=source.endpoint)
    assert ALL_THERE in command("restore", url=source.endpoint, to=target.endpoint).output
    assert target.deleted == source.deleted


def test_references_without_a_context_are_of_their_own(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    command("restore", "--subject", ":.fleet:c", url=source.endpoint, to=target.endpoint)
    assert {*target.versions} == {(":.fleet:c", 1), (":.fleet:d", 1)}
    with running(ImportingRegistry(modes=False)) as numbering:
        restored = command("restore", "--subject", ":.fleet:c", url=source.endpoint, to=numbering.endpoint)
        assert ALL_THERE in restored.output
        assert {*numbering.versions} == {(":.fleet:c", 1), (":.fleet:d", 1)}


@pytest.mark.parametrize(
    ("subject", "referrer", "full_name"),
    [
        ("a", "b", "a"),
        (":.:a", "b", "a"),
        (":.fleet:a", "b", ":.fleet:a"),
        ("a", ":.fleet:b", ":.fleet:a"),
        (":.other:a", ":.fleet:b", ":.other:a"),
    ],
)
def test_a_reference_names_its_subject_as_confluents_registry_reads_it(
    subject: str, referrer: str, full_name: str
) -> None:
    assert qualify_subject(subject, referrer) == full_name


def test_a_chosen_subject_brings_what_its_schemas_refer_to(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    command("restore", "--subject", "b", url=source.endpoint, to=target.endpoint)
    assert {*target.versions} == {("b", 1), ("a", 1), ("a", 3)}
    assert (
        "no subject c is archived"
        in command("restore", "--subject", "c", url=source.endpoint, to=target.endpoint, status=1).output
    )


def test_a_chosen_subject_comes_back_beside_other_archived_versions_of_what_it_refers_to(
    command: Command, source: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    lost = source.versions.pop(("b", 1))
    assert ALL_THERE in command("restore", "--subject", "b", url=source.endpoint).output
    assert source.versions["b", 1] == lost


def test_a_version_that_somebody_has_soft_deleted_since_is_live_again(
    command: Command, source: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    deleted = {*source.deleted}
    source.deleted |= {("ruled", 1), ("a", 3)}
    told = command("restore", url=source.endpoint).output
    assert "2 versions registered" in told
    assert ALL_THERE in told
    assert source.deleted == deleted


def test_settings_without_a_compatibility_come_back_and_nothing_stays_beside_them(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    source.configs |= {"a-again": {"normalize": True}}
    command("archive", url=source.endpoint)
    target.configs |= {"a": {"compatibilityLevel": "FULL", "alias": "x"}, "b": {"compatibilityLevel": "NONE"}}
    assert ALL_THERE in command("restore", url=source.endpoint, to=target.endpoint).output
    assert target.configs == source.configs


def test_a_document_is_written_when_something_has_changed(
    command: Command, source: ImportingRegistry, lab: Lab, s3_client: Any
) -> None:
    for _ in range(2):
        command("archive", url=source.endpoint)
    assert len(list_documents(lab, s3_client)) == 1
    source.configs["b"] = {"compatibilityLevel": "NONE"}
    command("archive", url=source.endpoint)
    assert [key[-11:] for key in list_documents(lab, s3_client)] == ["000001.json", "000002.json"]
    shown = command("show", "--subjects", url=source.endpoint).output
    assert "as of " in shown
    assert ":.fleet:c" in shown


def test_a_registry_that_has_lost_versions_is_not_restored_from_what_is_left(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    lost = {place: source.versions.pop(place) for place in [*source.versions] if place != ("b", 1)}
    told = command("archive", url=source.endpoint).output
    assert "7 versions of earlier documents are in the newest one no more" in told
    source.register("new", A)
    command("archive", url=source.endpoint)
    told = command("restore", url=source.endpoint, to=target.endpoint, status=1).output
    assert "name the document by kafka-s3 registry restore --document N, 3 for the newest one" in told
    assert target.writes == []
    command("restore", "--document", "1", url=source.endpoint, to=target.endpoint)
    assert target.versions.keys() == lost.keys() | {("b", 1)}
    assert "there are 1 to 3" in command("show", "--document", "4", url=source.endpoint, status=1).output


def test_a_registry_that_is_elsewhere_now_is_restored_from_what_was_archived_before(
    command: Command, source: ImportingRegistry, target: ImportingRegistry
) -> None:
    command("archive", url=source.endpoint)
    name = source.endpoint.removeprefix("http://").replace(":", "_")
    assert f"archived are {name}: name one by --registry" in command("restore", url=target.endpoint, status=1).output
    assert ALL_THERE in command("restore", "--registry", name, url=target.endpoint).output
    assert target.versions == source.versions


def test_subjects_that_are_listed_on_several_pages_are_archived_all(
    command: Command, source: ImportingRegistry
) -> None:
    source.most_listed = 3
    assert "7 subjects, 8 versions" in command("archive", url=source.endpoint).output


def test_a_document_that_somebody_has_changed_is_refused(
    command: Command, source: ImportingRegistry, lab: Lab, s3_client: Any
) -> None:
    command("archive", url=source.endpoint)
    [key] = list_documents(lab, s3_client)
    body = s3_client.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read()
    s3_client.put_object(Bucket=lab.store.bucket, Key=key, Body=body.replace(b'"FULL"', b'"NONE"'))
    assert "is no archived registry of this version" in command("show", url=source.endpoint, status=1).output


def test_a_registry_that_changes_each_time_while_it_is_read_is_not_archived(
    command: Command, source: ImportingRegistry, lab: Lab, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = source.answer

    def change(request: Any) -> Any:
        if request.method == "GET" and request.path.startswith("/subjects?"):
            source.register(f"new-{uuid.uuid4()}", A)
        return answer(request)

    monkeypatch.setattr(source, "answer", change)
    assert "has changed each time while it was read" in command("archive", url=source.endpoint, status=75).output
    assert list_documents(lab, s3_client) == []


def test_dagster_archives_it_each_night(source: ImportingRegistry, lab: Lab, folder: Path, s3_client: Any) -> None:
    write_connector(lab, folder, source.endpoint)
    repository = defs().get_repository_def()
    assert repository.get_schedule_def("registry__c").cron_schedule == "30 0 * * *"
    done = repository.get_job("registry__c").execute_in_process(instance=dg.DagsterInstance.ephemeral())
    [shown] = done.asset_materializations_for_node(done.get_step_success_events()[0].node_name)
    assert shown.asset_key.path[:2] == ["c", "registry"]
    assert shown.metadata["versions"].value == 8
    assert len(list_documents(lab, s3_client)) == 1


def test_a_subject_without_a_mode_has_none_after_its_versions_were_let_through(
    command: Command, source: ImportingRegistry
) -> None:
    """Where a registry refuses an archived version, its subject takes any schema for a while."""
    command("archive", url=source.endpoint)
    with running(ImportingRegistry(modes=False)) as target:
        target.incompatible.add(A)
        told = command("restore", "--subject", "a-again", url=source.endpoint, to=target.endpoint).output
        assert ALL_THERE in told
        assert {*target.configs} == {""}


def test_a_deleted_subject_of_a_real_registry_comes_back(command: Command, registry: RegistrySettings) -> None:
    """Apicurio's, which knows neither modes nor GUIDs."""
    subject, other = (f"{name}-{uuid.uuid4().hex}" for name in "ab")
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema(subject, Schema(A))
    reference = SchemaReference("A", subject, 1)
    client.register_schema(other, Schema(B, references=[reference]))
    command("archive", url=registry.url)
    for name in (other, subject):
        client.delete_subject(name)
        client.delete_subject(name, permanent=True)
    told = command("restore", "--subject", other, url=registry.url).output
    assert "2 versions registered" in told
    assert ALL_THERE in told
    assert client.get_version(other, 1).schema.references == [reference]
