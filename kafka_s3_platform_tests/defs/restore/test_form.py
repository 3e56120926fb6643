"""The form of a restore as Dagster's launchpad opens it, without any server.

One declaration a restore option: the command line, a run's config and the request have the same ones.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote, urlsplit

import click
import dagster as dg
import pytest
import yaml
from dagster._config import ConfigTypeKind
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap
from dagster._core.system_config.objects import ResolvedRunConfig
from pydantic import SecretStr

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    SourceSettings,
    StoreSettings,
    TransformSettings,
)
from kafka_s3_platform.core.defs.restore.config import (
    ForeignRestoreConfig,
    RestoreConfig,
    RestoreOption,
    find_options,
    list_fields,
)
from kafka_s3_platform.core.defs.restore.form import make_form_metadata
from kafka_s3_platform.core.defs.restore.request import READ_HERE
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.restore.request import Offsets, Outgoing, RecordFilter, RestoreRequest, Thaw
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform_tests.support import connector

OP = "restored__orders_s3_sink"
SHOWN = {
    "what": {"hours": [], "days": [], "everything": False},
    "to": {"create_topic": False},
    "how": {"dry_run": False},
}
"""What the form shows from the start."""


def config(source: SourceSettings | None = None) -> ConnectorConfig:
    made = connector(KafkaSettings(bootstrap_servers="127.0.0.1:1"), StoreSettings(bucket="bucket"), "orders")
    return made.model_copy(update={"name": "orders-s3-sink", "source": source})


def reads_lines(layout: Mapping[str, Any], **changes: Any) -> ConnectorConfig:
    """A sink of lines of JSON, which lie in hourly folders."""
    made = config()
    told = {"format": "json", "codec": "none", "null_values": "fail", **layout}
    lines = made.model_copy(update={"layout": made.layout.model_copy(update=told), **changes})
    return lines.model_copy(update={"reader": lines.model_copy(update={"source": SourceSettings()})})


def restore_job(made: ConnectorConfig) -> dg.JobDefinition:
    return build_definitions([made], autostart=False).resolve_job_def("restore__orders_s3_sink")


def opened(job: dg.JobDefinition) -> Any:
    """The config with which the launchpad opens: GraphQL's `rootDefaultYaml`."""
    snap = job.get_job_snapshot()
    schema = snap.config_schema_snapshot
    root = schema.get_config_snap(str(snap.mode_def_snaps[0].root_config_key))
    return yaml.safe_load(default_values_yaml_from_type_snap(schema, root))


def groups(job: dg.JobDefinition) -> dict[str, dg.Field]:
    schema: Any = job.get_node_named(OP).definition.config_schema
    fields: dict[str, dg.Field] = schema.config_type.fields
    return fields


def test_the_form_opens_with_its_groups_and_lacks_the_target_alone() -> None:
    job = restore_job(config())
    form = opened(job)
    assert form == {"ops": {OP: {"config": SHOWN}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match='Missing required config entry "topic" at path root:ops'):
        ResolvedRunConfig.build(job, form)
    form["ops"][OP]["config"]["to"]["topic"] = "copy"
    assert ResolvedRunConfig.build(job, form)


def test_the_form_of_a_source_lacks_nothing() -> None:
    job = restore_job(config(SourceSettings()))
    assert ResolvedRunConfig.build(job, opened(job))


@pytest.mark.parametrize("source", [None, SourceSettings()])
def test_each_group_and_each_field_is_described(source: SourceSettings | None) -> None:
    found = groups(restore_job(config(source)))
    assert set(found) == {"what", "to", "values", "how"}
    for group in found.values():
        assert group.description
        assert group.config_type.kind is ConfigTypeKind.STRICT_SHAPE
        fields: Any = group.config_type
        assert all(field.description for field in fields.fields.values())


@pytest.mark.parametrize("source", [None, SourceSettings()])
def test_the_sample_in_the_description_is_a_config_of_the_job(source: SourceSettings | None) -> None:
    made = config(source)
    [spec] = [
        s for s in build_definitions([made], autostart=False).resolve_all_asset_specs() if "restored" in s.key.path
    ]
    sample = str(spec.description).split("```yaml\n")[1].removesuffix("```")
    assert ResolvedRunConfig.build(restore_job(made), yaml.safe_load(sample))


def test_the_hour_of_a_sink_of_connect_leads_to_the_form_of_its_own_restore() -> None:
    read = reads_lines({})
    lines = read.model_copy(update={"reader": None})
    run = dg.DagsterRun("archive__orders_s3_sink", "r")
    shown = make_form_metadata(run, TopicAssets(read, "orders"), hours=["2026-01-01-12:00"])
    form = yaml.safe_load(str(shown["restore"].value).removeprefix("```yaml\n").removesuffix("```"))
    assert form["ops"][OP]["config"]["what"] == {"hours": ["2026-01-01-12:00"], "topics": ["orders"]}
    form["ops"][OP]["config"]["to"]["topic"] = "copy"
    assert ResolvedRunConfig.build(restore_job(read), form)
    assert make_form_metadata(run, TopicAssets(lines, "orders"), hours=["2026-01-01-12:00"]) == {}


@pytest.mark.parametrize("topic", ["a..b", "a_b", "a-b", ".-_", "on", "t" * 249])
@pytest.mark.parametrize("place", ["kafka_s3_platform.definitions", "a/b c%&?#@\u00e9"])
def test_an_hours_link_says_job_asset_and_config(topic: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_S3_DAGSTER_URL", "https://example.com/a/dagster/")
    made = config().model_copy(update={"topics": (topic,)})
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(place), "__repository__")
    run = dg.DagsterRun("x", "r", remote_job_origin=RemoteJobOrigin(repository, "x"))
    shown = make_form_metadata(run, TopicAssets(made, topic), hours=["2026-01-01-12:00"])
    link = urlsplit(str(shown["restore"].value))
    [(at, job)] = re.findall(r"\A/a/dagster/locations/([^/]+)/jobs/([^/]+)/playground/setup\Z", link.path)
    query = dict(parse_qsl(link.query, strict_parsing=True))
    picked = [query[f"assetSelection[0][assetKey][path][{n}]"] for n in range(3)]
    assert (unquote(at), picked) == (f"__repository__@{place}", ["orders-s3-sink", "restored", topic])
    found = build_definitions([made], autostart=False).resolve_job_def(job)
    assert dg.AssetKey(picked) in found.asset_layer.executable_asset_keys
    form = yaml.safe_load(query["config"])
    form["ops"][query["assetSelection[0][opNames][0]"]]["config"]["to"]["topic"] = "copy"
    assert ResolvedRunConfig.build(found, form)


ROUTER = TransformSettings(
    alias="r", type="RegexRouter", options={"regex": SecretStr(".*"), "replacement": SecretStr("b")}
)
PARIS = {"timezone": "Europe/Paris"}


@pytest.mark.parametrize(
    ("made", "hour"),
    [
        (config().model_copy(update={"layout": LayoutSettings(timestamp_extractor="Wallclock")}), "2026-01-01-12:00"),
        (reads_lines({"partitioner": "Default"}), "2026-01-01-12:00"),
        (reads_lines({"partitioner": "Daily", "path_format": "YYYY-MM-dd"}), "2026-01-01-12:00"),
        (reads_lines({"partitioner": "Field", "partition_fields": ("f",)}), "2026-01-01-12:00"),
        (reads_lines({"timestamp_extractor": "RecordField", "timestamp_field": "f"}), "2026-01-01-12:00"),
        (reads_lines({"partitioner": "a.user's.Own"}), "2026-01-01-12:00"),
        (reads_lines({"null_values": "write", "keys_format": "json"}), "2026-01-01-12:00"),
        (reads_lines({}, records=RecordSettings(transforms=(ROUTER,))), "2026-01-01-12:00"),
        (reads_lines(PARIS), "2026-10-25-02:00"),
    ],
)
def test_there_is_no_link_from_an_hour_whose_restore_would_be_of_other_records(
    made: ConnectorConfig, hour: str
) -> None:
    """Of those whose timestamps are of the hour, of other hours in the same folders, of another topic."""
    assert make_form_metadata(dg.DagsterRun("x", "r"), TopicAssets(made, "orders"), hours=[hour]) == {}


def test_dagster_warns_of_nothing_before_a_restore_of_unmerged_hours() -> None:
    """It asks "Are you sure?" where an asset on which this one depends was never materialized."""
    specs = {s.key: s for s in build_definitions([config()], autostart=False).resolve_all_asset_specs()}
    restored = specs[dg.AssetKey(["orders-s3-sink", "restored", "orders"])]
    assert [dep.asset_key.path[1] for dep in restored.deps] == ["hourly"]
    assert restored.partitions_def is None


PARTS = {"": RestoreRequest, "records": RecordFilter, "outgoing": Outgoing, "thaw": Thaw}
OPTIONS = find_options(ForeignRestoreConfig)
FIELDS = list_fields(ForeignRestoreConfig)

BY_THE_RUN = {"config", "topic", "to_topic", "restore_id", "run_id", "target", "from_time", "to_time", "windows"}
BY_THE_RUN |= {"connectors", "records", "outgoing", "thaw"}
BY_OUTGOING_KEYS = {f"outgoing.{name}" for name in ("transforms", "key", "value", "target_registry")}
WITHOUT_OPTION = {"what.everything", "values.outgoing", "to.rename_replacement", "what.connectors", "what.topics"}
"""All, where no time is given; `--outgoing` names a file; the second value of `--rename`; `--topic` picks the asset."""


def request_types() -> Iterator[tuple[str, Any]]:
    """The path and the type of every field of a request."""
    for part, kind in PARTS.items():
        types = get_type_hints(kind)
        for field in fields(kind):
            yield f"{part}.{field.name}".lstrip("."), types[field.name]


def without_none(kind: Any) -> set[Any]:
    """`str | None` and `Literal["a"] | None` as what they hold."""
    parts = {part for part in get_args(kind) or (kind,) if part is not type(None)}
    return {value for part in parts for value in (get_args(part) or (part,))}


def filled_by(path: str, option: RestoreOption) -> str:
    return option.into or path.rpartition(".")[2]


def given_type(name: str, option: RestoreOption) -> Any:
    if option.read is not None:
        return get_type_hints(option.read, localns={"Offsets": Offsets})["return"]
    return FIELDS[name].annotation


def test_every_field_of_a_request_comes_from_one_option_or_from_the_run() -> None:
    filled = [filled_by(path, option) for path, option in OPTIONS.items() if path not in READ_HERE]
    assert len(filled) == len(set(filled))
    assert set(filled) | BY_THE_RUN | BY_OUTGOING_KEYS == {path for path, _ in request_types()}
    assert not set(filled) & (BY_THE_RUN | BY_OUTGOING_KEYS)


def test_an_option_gives_values_of_the_type_that_the_request_has() -> None:
    wanted = dict(request_types())
    for name, option in OPTIONS.items():
        if name in READ_HERE:
            continue
        kind = wanted[filled_by(name, option)]
        if option.choices:
            assert without_none(kind) == set(option.choices), name
        else:
            assert given_type(name, option) == kind, name


def test_the_command_line_has_every_option() -> None:
    assert set(FIELDS) - set(OPTIONS) == WITHOUT_OPTION
    native = list_fields(RestoreConfig)
    assert set(FIELDS) - set(native) == {"what.topics", "what.after"}
    command = main.get_command(click.Context(main), "restore")
    assert command is not None
    of_command = {parameter.name for parameter in command.params}
    of_options = {path.replace(".", "__") for path in OPTIONS}
    assert of_command - of_options == {
        *("connectors", "topics", "all_topics", "as_json", "quiet", "verbose"),
        *("to_registry", "with_groups"),
    }
    assert of_options <= of_command
