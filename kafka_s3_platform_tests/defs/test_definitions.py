import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.system_config.objects import ResolvedRunConfig
from dagster._serdes import serialize_value
from syrupy.assertion import SnapshotAssertion

from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.defs.resources import NoValues, SparkResource, read_deployed_conf
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.operate.defs.warm_spark import choose_runner

PARIS = {"timezone": "Europe/Paris", "archive.start.hour": "2024-03-05T14:00", "archive.allowed.lateness.ms": "900000"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two connectors; both archive `flights`, and topics whose names differ in a dot and an underscore only."""
    (tmp_path / "worker.properties").write_text("bootstrap.servers=broker.invalid:9092\n")
    write(tmp_path, "first", "flights, a.b, a_b", **PARIS)
    write(tmp_path, "second.one", "flights", **{"topics.dir": "second"})
    return tmp_path


def write(folder: Path, name: str, topics: str, **more: str) -> None:
    keys = {"connector.class": "S3SinkConnector", "topics": topics, "s3.bucket.name": "bucket"}
    config = {**keys, "aws.access.key.id": "id", "aws.secret.access.key": "hidden", **more}
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "config": config}))


def keys_of(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_all_asset_keys()}


def sink(folder: Path, **layout: str) -> dg.Definitions:
    """A connector `sink` of topic `t` with that layout."""
    write(folder, "sink", "t")
    (folder / "first.json").unlink()
    (folder / "second.one.json").unlink()
    [config] = load_connectors(folder, {}).connectors
    return build_definitions(
        [config.model_copy(update={"layout": config.layout.model_copy(update=layout)})], autostart=False
    )


def load(folder: Path, *, autostart: bool = False) -> dg.Definitions:
    return build_definitions(load_connectors(folder, {}).connectors, autostart=autostart)


def asset(spec: dg.AssetSpec) -> dict[str, Any]:
    return {
        "deps": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
        "group": spec.group_name,
        "tags": {name: value for name, value in spec.tags.items() if not name.startswith("dagster/kind/")},
        "kinds": sorted(spec.kinds),
        "partitions": None if spec.partitions_def is None else repr(spec.partitions_def),
        "skippable": spec.skippable,
    }


def op(assets: dg.AssetsDefinition) -> dict[str, Any]:
    policy = assets.backfill_policy
    return {
        "keys": sorted(key.to_user_string() for key in assets.keys),
        "pools": sorted(assets.op.pools) if assets.is_executable else [],
        "one run a backfill": policy is not None and policy.max_partitions_per_run is None,
    }


def graph(definitions: dg.Definitions) -> dict[str, Any]:
    repository = definitions.get_repository_def()
    specs = sorted(definitions.resolve_all_asset_specs(), key=lambda s: s.key.to_user_string())
    executable = [a for a in repository.asset_graph.assets_defs if a.is_executable and a.keys]
    checks = sorted(key.to_user_string() for key in repository.asset_graph.asset_check_keys)
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    return {
        "assets": {spec.key.to_user_string(): asset(spec) for spec in specs},
        "ops": {a.op.name: op(a) for a in sorted(executable, key=lambda a: a.op.name)},
        "checks": checks,
        "jobs": {job.name: entities(job) for job in sorted(jobs, key=lambda j: j.name)},
        "schedules": {
            s.name: (s.cron_schedule, s.execution_timezone, s.job_name, s.default_status.value)
            for s in sorted(repository.schedule_defs, key=lambda s: s.name)
        },
        "sensors": {
            s.name: (s.minimum_interval_seconds, s.job_name if s.targets else None, s.default_status.value)
            for s in sorted(repository.sensor_defs, key=lambda s: s.name)
        },
    }


def entities(job: dg.JobDefinition) -> list[str]:
    layer = job.asset_layer
    checks = [key.to_user_string() for key in layer.asset_graph.asset_check_keys]
    return sorted([*(key.to_user_string() for key in layer.executable_asset_keys), *checks])


def test_the_whole_graph(folder: Path, snapshot: SnapshotAssertion) -> None:
    assert graph(load(folder)) == snapshot


def test_each_asset_has_its_owners_and_all_that_runs_by_itself_is_described(folder: Path) -> None:
    write(folder, "second.one", "flights", **{"topics.dir": "second", "archive.owners": "team:data, a.b@example.com"})
    definitions = load(folder)
    owners = {str(s.group_name).split("/")[0]: tuple(s.owners) for s in definitions.resolve_all_asset_specs()}
    assert owners == {"first": (), "second_one___p": ("team:data", "a.b@example.com")}
    repository = definitions.get_repository_def()
    assert all(sensor.description for sensor in repository.sensor_defs)
    assert all(schedule.description for schedule in repository.schedule_defs)


def test_topics_that_differ_in_a_dot_only_live_side_by_side(folder: Path) -> None:
    definitions = load(folder)
    dg.Definitions.validate_loadable(definitions)
    assert {"first/hourly/a.b", "first/hourly/a_b", "first/kafka/a.b", "first/kafka/a_b"} <= keys_of(definitions)


def test_sensors_and_schedules_wait_to_be_turned_on_unless_told_otherwise(folder: Path) -> None:
    for autostart, status in ((False, "STOPPED"), (True, "RUNNING")):
        repository = load(folder, autostart=autostart).get_repository_def()
        assert {s.default_status.value for s in repository.schedule_defs} == {status}
        assert {s.default_status.value for s in repository.sensor_defs} == {status}


def test_objects_that_are_not_the_native_envelope_stay_as_they_are(folder: Path) -> None:
    definitions = sink(folder, format="json", codec="gzip")
    dg.Definitions.validate_loadable(definitions)
    repository = definitions.get_repository_def()
    assert keys_of(definitions) == {"sink/kafka/t", "sink/hourly/t"}
    assert {c.to_user_string().split(":")[0] for c in repository.asset_graph.asset_check_keys} == {
        "sink/hourly/t",
        "sink/kafka/t",
    }
    assert {s.name for s in repository.schedule_defs} == {"hourly__sink", "upkeep__sink", "verify__sink"}
    assert {s.name for s in repository.sensor_defs} == {"lag__sink"}
    assert {j.name for j in repository.get_all_jobs() if not j.name.startswith("__")} == {
        "archive__sink",
        "upkeep__sink",
        "verify__sink",
    }


def test_the_config_of_a_run_names_no_program_for_spark(folder: Path) -> None:
    """Whoever could launch a run chose what runs as Python, by `spark.pyspark.python`."""
    hostile = {"spark": {"config": {"spark_config": {"spark.pyspark.python": "/bin/hostile"}}}}
    for job in load(folder).resolve_all_job_defs():
        with dg.build_resources({"spark": job.resource_defs["spark"]}, resource_config=hostile) as resources:
            assert isinstance(resources.spark, SparkResource)
            assert [*vars(resources.spark).values()] == [choose_runner], "all else that it knows is of the deployment"


def test_the_config_of_a_run_names_no_module_to_import_and_no_folder(folder: Path) -> None:
    start = {"start_method": {"forkserver": {"preload_modules": ["hostile_module"]}}}
    hostile: dict[str, Any] = {
        "execution": {"config": {"multiprocess": start}},
        "resources": {"io_manager": {"config": {"base_dir": "/hostile"}}},
    }
    target = {"config": {"to": {"topic": "a"}}}
    manager = load(folder).resolve_all_job_defs()[0].resource_defs["io_manager"]
    for job in load(folder).resolve_all_job_defs():
        assert job.executor_def.name == "in_process", "no process imports anything for a step"
        ops = {node.name: target for node in job.nodes if node.name.startswith(("restored__", "replay__"))}
        found = ResolvedRunConfig.build(job, {**hostile, "ops": ops})
        assert "hostile" not in repr(found.execution)
        with dg.build_resources({"m": manager}, resource_config={"m": hostile["resources"]["io_manager"]}) as made:
            assert isinstance(made.m, NoValues)
            assert vars(made.m) == {}, "it has no folder"


def test_spark_is_told_by_a_file_of_the_deployment(tmp_path: Path) -> None:
    path = tmp_path / "spark.properties"
    path.write_text("spark.master spark://host:7077\nspark.executor.memory=4g\n")
    assert read_deployed_conf({"KAFKA_S3_SPARK_CONF": str(path)}) == {
        "spark.master": "spark://host:7077",
        "spark.executor.memory": "4g",
    }
    assert read_deployed_conf({}) == {}
    with pytest.raises(ConfigError, match=r"gone\.properties: cannot be read"):
        read_deployed_conf({"KAFKA_S3_SPARK_CONF": str(tmp_path / "gone.properties")})


def test_loading_opens_no_connection_imports_no_spark_and_warns_of_nothing(folder: Path) -> None:
    script = """
        import socket, sys, warnings

        class Refused(socket.socket):
            def connect(self, address):
                raise AssertionError(f"connected to {address}")
            connect_ex = connect

        socket.socket = Refused
        warnings.simplefilter("error")
        from kafka_s3_platform.definitions import defs
        import dagster as dg

        dg.Definitions.validate_loadable(defs())
        assert not [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "dagster_pyspark")]
        packages = ("duckdb", "numba", "pandas", "confluent_kafka.schema_registry")
        runs = ("core.archive.run", "core.restore.run", "core.upkeep.compact.run")
        heavy = (*packages, *(f"kafka_s3_platform.{name}" for name in runs))
        assert not [name for name in heavy if name in sys.modules], "needed by runs alone"
    """
    env = {**os.environ, "KAFKA_S3_CONNECTORS": str(folder), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("topics", [{}, {"topics": "flights"}, {"topics.regex": "fl.*"}], ids=["all", "named", "regex"])
def test_a_source_connector_gets_an_asset_to_restore_and_a_sensor_alone(folder: Path, topics: dict[str, str]) -> None:
    without = graph(load(folder, autostart=True))
    keys = {"connector.class": "io.confluent.connect.s3.source.S3SourceConnector", "s3.bucket.name": "bucket"}
    given = {**keys, **topics, "format.class": "JsonFormat", "value.converter": "JsonConverter"}
    given |= {"value.converter.schemas.enable": "false"}
    (folder / "third.json").write_text(json.dumps({"name": "third", "config": given}))
    definitions = load(folder, autostart=True)
    dg.Definitions.validate_loadable(definitions)
    found = graph(definitions)
    objects = {"third/objects/flights"} if "topics" in topics else set()
    assert set(found["assets"]) - set(without["assets"]) == {"third/restored", *objects}
    assert found["jobs"]["restore__third"] == ["third/restored", "third/restored:restored"]
    assert found["ops"]["restored__third"]["pools"] == ["third/restore"]
    assert found["sensors"].pop("poll__third") == (60, "restore__third", "STOPPED")
    if objects:
        assert found["jobs"]["verify__third"] == ["third/objects/flights:readable"]
        found["checks"].remove("third/objects/flights:readable")
    assert found["sensors"].pop("folders__third") == (300, None, "RUNNING")
    found["checks"].remove("third/restored:restored")
    same = ("checks", "schedules", "sensors")
    assert {name: found[name] for name in same} == {name: without[name] for name in same}


SECRET_VARIABLE = "SOME_SECRET_OF_THE_PROCESS"


def test_the_config_of_a_run_reads_no_variable_of_the_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a config class of Dagster says str, int or bool, a run could say `{"env": NAME}` and be told the value."""
    keys = {"connector.class": "S3SourceConnector", "topics": "a", "s3.bucket.name": "bucket"}
    (folder / "source.json").write_text(json.dumps({"name": "source", "config": keys}))
    monkeypatch.setenv(SECRET_VARIABLE, "hunter2")
    looked_up = {"env": SECRET_VARIABLE}
    looked_at = 0
    for job in load(folder).resolve_all_job_defs():
        for node in job.nodes:
            schema: Any = node.definition.config_schema
            for path in paths_of(schema.config_type):
                looked_at += 1
                for hostile in (looked_up, [looked_up], {"all": looked_up}):
                    config: Any = {"to": {"topic": "a"}} if len(path) > 1 else {}
                    *groups, name = path
                    inner = config
                    for group in groups:
                        inner = inner.setdefault(group, {})
                    inner[name] = hostile
                    assert "hunter2" not in resolved(job, {"ops": {node.name: {"config": config}}})
    assert looked_at > 100, "each job was looked at"


def paths_of(kind: Any) -> Iterator[tuple[str, ...]]:
    """The paths of all fields of a config, through its groups."""
    for name, field in getattr(kind, "fields", {}).items():
        inner = [(name, *path) for path in paths_of(field.config_type)]
        yield from inner or [(name,)]


def resolved(job: dg.JobDefinition, given: dict[str, Any]) -> str:
    """What Dagster makes of a run's config, or says of it."""
    try:
        return repr(ResolvedRunConfig.build(job, given).ops)
    except dg.DagsterInvalidConfigError as err:
        return str(err)


def count_definitions(folder: Path, topics: int) -> dict[str, int]:
    """How many parts a connector of so many topics has, and the size of the snapshot that a code server sends."""
    write(folder, "first", ", ".join(f"t{n:04}" for n in range(topics)))
    repository = load(folder).get_repository_def()
    jobs = repository.get_all_jobs()
    restored = next(job for job in jobs if job.name == "restore__first")
    return {
        "jobs": len(jobs),
        "ops of days, restores and objects": sum(
            node.name.startswith(("daily__", "restored__", "check__objects__")) for job in jobs for node in job.nodes
        ),
        "ops of a restore job": len(restored.nodes),
        "bytes": len(serialize_value(RepositorySnap.from_def(repository))),
    }


@pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars`")  # Dagster reads it itself
def test_what_is_defined_does_not_grow_with_the_square_of_the_topics(folder: Path) -> None:
    """There was a restore job for each topic, in which Dagster listed every op: 500 topics took 20 CPU seconds."""
    few, many = (count_definitions(folder, topics) for topics in (25, 100))
    size_of_few, size_of_many = few.pop("bytes"), many.pop("bytes")
    assert few == many
    assert size_of_many < 4 * size_of_few
