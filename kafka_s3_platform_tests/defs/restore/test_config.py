"""What a run's config asks of a restore, without any server."""

from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest

from kafka_s3_platform.cli.restore import add_restore_options, read_terms
from kafka_s3_platform.connect.defs.restore.foreign_request import make_foreign_request
from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, SourceSettings, StoreSettings
from kafka_s3_platform.core.defs.restore.config import ForeignRestoreConfig, RestoreConfig
from kafka_s3_platform.core.defs.restore.request import make_archive_source
from kafka_s3_platform.core.defs.restore.values import allow_paths
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.restore.filters.stage import check_filter
from kafka_s3_platform.core.restore.outgoing.partitioning import new_kafka_partitioner
from kafka_s3_platform.core.restore.request import RecordFilter, RestoreRequest, Thaw
from kafka_s3_platform_tests.defs.running import group_terms
from kafka_s3_platform_tests.support import HOUR, NOON, connector

ROUTER = {
    "transforms": "AddPrefix",
    "transforms.AddPrefix.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.AddPrefix.regex": ".*",
    "transforms.AddPrefix.replacement": "copy_of_$0",
}


def config(layout: dict[str, Any] | None = None) -> ConnectorConfig:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    return connector(kafka, StoreSettings(bucket="bucket"), "orders", layout=layout)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of connector files of the test's own."""
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(tmp_path))
    return tmp_path


def asked(given: dict[str, Any], layout: dict[str, Any] | None = None) -> RestoreRequest:
    topic = TopicAssets(config(layout), "orders")
    terms = group_terms({"what.everything": True, **given})
    return make_archive_source([topic], RestoreConfig(**terms), "r1", "x").request


def asked_of_source(given: dict[str, Any], source: SourceSettings) -> ForeignSource:
    topics = TopicAssets(config().model_copy(update={"source": source}), "every topic")
    terms = group_terms({"what.everything": True, **given})
    return make_foreign_request(topics, ForeignRestoreConfig(**terms), "r1", "x")


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"to.topic": "other"}, "other"),
        ({"to.topic": "copy_of_{topic}"}, "copy_of_orders"),
        ({"to.topic": "", "values.outgoing": ROUTER}, "copy_of_orders"),
    ],
)
def test_the_target_is_named_by_a_name_or_a_router(given: dict[str, Any], target: str) -> None:
    assert asked(given).to_topic == target


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"to.topic": "copy_of_{topic}"}, "copy_of_orders"),
        ({"to.rename_regex": "o(.*)", "to.rename_replacement": "x$1"}, "xrders"),
        ({"to.topic_map": {"orders": "a", "flights": "b"}}, "a"),
        ({"to.topic_map": {"regex": "a", "replacement": "b", "orders": "c"}}, "c"),
    ],
)
def test_the_targets_of_a_source_are_named_by_a_template_a_rule_or_a_map(given: dict[str, Any], target: str) -> None:
    rename = asked_of_source(given, SourceSettings()).rename
    assert rename is not None
    assert rename.target("orders") == target


@pytest.mark.parametrize(("given", "of_source"), [(None, "ignore"), ("fail", "fail"), ("log", "log")])
def test_what_becomes_of_bad_objects_is_asked_for_or_the_restore_fails(given: str | None, of_source: str) -> None:
    assert asked({"to.topic": "other", "how.behavior_on_error": given}).on_error == (given or "fail")
    made = asked_of_source({"how.behavior_on_error": given}, SourceSettings(behavior_on_error="ignore"))
    assert made.request.on_error == of_source


@pytest.mark.parametrize(
    ("given", "of_sink", "of_source"),
    [
        ({}, Thaw(), Thaw(3, "Bulk")),
        (
            {"how.thaw_days": 5, "how.thaw_tier": "Expedited", "how.thaw_seconds": 60.0},
            Thaw(5, "Expedited", 60.0),
            None,
        ),
        ({"how.thaw_tier": "Standard"}, Thaw(None, "Standard"), Thaw(3, "Standard")),
    ],
)
def test_what_is_thawed_is_asked_for_or_said_by_a_sources_file(
    given: dict[str, Any], of_sink: Thaw, of_source: Thaw | None
) -> None:
    assert asked({"to.topic": "other", **given}).thawing == of_sink
    made = asked_of_source(given, SourceSettings(thaw_days=3, thaw_tier="Bulk"))
    assert made.request.thawing == (of_source or of_sink)


@pytest.mark.parametrize(
    "given", [{"what.days": ["1999-03-28"]}, {"what.hours": ["1999-03-28-00:00", "1999-03-28T05:00"]}]
)
def test_what_was_archived_before_the_start_hour_was_moved_can_be_picked(given: dict[str, Any]) -> None:
    [(first, last), *_] = asked({"to.topic": "a", **given}).windows
    assert first == datetime(1999, 3, 28, tzinfo=timezone.utc)
    assert last is not None
    assert last > first


def test_copies_from_cold_storage_are_waited_for_no_longer_than_any_takes() -> None:
    with pytest.raises(ValueError, match=r"how\.thaw_seconds[\s\S]*less than or equal to 2592000"):
        asked({"to.topic": "other", "how.thaw_seconds": 1e18})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to.topic": ""}, r"to\.topic is empty, and no RegexRouter names the target"),
        ({"to.topic": "a", "what.everything": False}, r"what: nothing says which records .*what\.hours"),
        ({"to.topic": "a", "values.outgoing": {"transform": "x"}}, "transform: not a key .*did you mean transforms"),
        ({"to.topic": "a", "values.outgoing": {"transforms": "a"}}, r"transforms\.a\.type is missing"),
        ({"to.topic": "a", "values.outgoing": {"value.converter": "no.Such"}}, r"value\.converter: "),
        ({"to.topic": "a", "what.record_keys": ["hex:zz"]}, r"what\.record_keys 'hex:zz'"),
        ({"to.topic": "a", "how.delivery": "once"}, r"how\.delivery 'once' is none of exactly_once, at_least_once"),
        ({"to.topic": "a", "how.thaw_tier": "Slow"}, r"how\.thaw_tier 'Slow' is none of Standard, Bulk, Expedited"),
        (
            {"to.topic": "a", "how.behavior_on_error": "skip"},
            r"how\.behavior_on_error 'skip' is none of fail, ignore, log",
        ),
        ({"to.topic": "a", "what.hours": ["2026-01-01T12:30"]}, r"what\.hours '2026-01-01T12:30' is no start"),
        ({"to.topic": "a", "what.days": ["2999-01-01"]}, r"what\.days '2999-01-01' is no start"),
        ({"to.topic": "a", "what.days": ["1969-12-31"]}, r"what\.days '1969-12-31' is no start"),
        ({"to.topic": "a", "what.hours": ["noon"]}, "no ISO 8601 time"),
        (
            {"to.topic": "a", "what.hours": ["0001-01-01T00:00+12:00"]},
            r"what\.hours .* is outside of the years 1 to 9999",
        ),
        ({"to.topic": "a", "what.hours": ["2026-01-01-12:30"]}, "no start of one: it is within 2026-01-01-12:00"),
        ({"to.topic": "a", "what.hours": ["2026-01-01-12:59"]}, "it is within 2026-01-01-12:00"),
        ({"to.topic": "a", "what.days": ["2026-01-01T12:00"]}, "no start of one: it is within 2026-01-01"),
        ({"to.topic": "a", "what.from_offset": {"0": 5, "00": 7}}, "names a kafka partition twice"),
        ({"to.topic": "a", "what.key_prefixes": ["eu-", ""]}, r"what\.key_prefixes has an empty text"),
        (
            {"to.topic": "a", "what.everything": False, "what.to_offset": {"1": 5}},
            "are of kafka partitions 1, and others would be restored whole: name .*what.kafka_partitions",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_the_path_of_its_field(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to.topic": "a", "to.topic_map": {"orders": "b"}}, "each name the target: keep one"),
        ({"to.rename_regex": ".*"}, "are a pair"),
    ],
)
def test_two_rules_or_half_of_one_for_the_targets_of_a_source_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_of_source(given, SourceSettings())


def test_of_a_source_too_everything_has_to_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="what: nothing says which records"):
        asked_of_source({"what.everything": False}, SourceSettings())
    assert asked_of_source({"what.everything": False, "what.topics": ["orders"]}, SourceSettings()).topics == (
        "orders",
    )


@pytest.mark.parametrize(
    ("hour", "start"),
    [
        ("2025-10-26T02:00+02:00", 0),
        ("2025-10-26T02:00+01:00", 1),
        ("2025-10-26T01:00Z", 1),
        ("2025-10-26-02:00", 0),
        ("2025-10-26-02:00+0100", 1),
    ],
)
def test_each_of_two_hours_of_one_name_can_be_named_when_the_clocks_go_back(hour: str, start: int) -> None:
    of_paris = {"timezone": "Europe/Paris"}
    [(first, last)] = asked({"to.topic": "a", "what.hours": [hour]}, of_paris).windows
    assert [moment.hour for moment in (first, last)] == [start, start + 1]
    window = {"what.from_time": "2025-10-26T02:30+02:00", "what.to_time": "2025-10-26T02:15+01:00"}
    assert asked({"to.topic": "a", **window}, of_paris).to_time == datetime(2025, 10, 26, 1, 15, tzinfo=timezone.utc)


def test_an_hour_that_the_clocks_skip_is_not_another_one() -> None:
    with pytest.raises(ConfigError, match="no start of one: it is within 2025-03-30-03:00"):
        asked({"to.topic": "a", "what.hours": ["2025-03-30-02:00"]}, {"timezone": "Europe/Paris"})


POPEN = "subprocess.Popen"


def begin(given: dict[str, Any]) -> None:
    """What a restore does first with its request, before any server is asked."""
    found = asked(given)
    check_filter(found.records)
    new_kafka_partitioner(found.outgoing.partitioning, 3)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {
            "values.outgoing": {
                "transforms": "x",
                "transforms.x.type": POPEN,
                "transforms.x.touch": "",
                "transforms.x.{}": "",
            }
        },
        {"values.outgoing": {"transforms": "x", "transforms.x.type": "hostile_module.Thing"}},
        {"to.partitioning": "os.abort"},
        {"to.partitioning": "hostile_module.Thing"},
        {"what.predicate": "os.remove"},
        {"what.predicate": "hostile_module.f"},
    ],
)
def test_whoever_may_launch_a_run_can_neither_import_nor_call_what_nobody_allowed(
    given: dict[str, Any], dry_run: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Option names became the arguments of Popen: a restore's run config was a shell."""
    mark = folder / "mark"
    (folder / "hostile_module.py").write_text(f"open({str(mark)!r}, 'w')\ndef f(batch): ...\nclass Thing: ...\n")
    monkeypatch.syspath_prepend(str(folder))
    if "values.outgoing" in given:
        keys = {name.format(mark): value for name, value in given["values.outgoing"].items()}
        given = {**given, "values.outgoing": keys}
    with pytest.raises(ConfigError, match="no plug-in that this installation allows"):
        begin({"to.topic": "a", "how.dry_run": dry_run, **given})
    assert not mark.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-10-25T02:30", "is twice in Europe/Berlin.*2026-10-25T02:30:00\\+02:00 or 2026-10-25T02:30:00\\+01:00"),
        ("2026-03-29T02:30", "does not exist in Europe/Berlin"),
    ],
)
def test_a_time_that_clocks_show_twice_or_never_is_refused_with_the_moments(text: str, said: str) -> None:
    for field in ("what.from_time", "what.to_time"):
        with pytest.raises(ConfigError, match=f"{field} '{text}': .*{said}"):
            asked({"to.topic": "a", field: text}, layout={"timezone": "Europe/Berlin"})


def test_any_hours_and_days_are_windows() -> None:
    found = asked(
        {"to.topic": "a", "what.hours": ["2026-01-01-15:00", "2026-01-01T12:00:00Z"], "what.days": ["2026-01-03"]}
    )
    day = NOON.replace(hour=0) + timedelta(days=2)
    assert found.windows == ((NOON + 3 * HOUR, NOON + 4 * HOUR), (NOON, NOON + HOUR), (day, day + 24 * HOUR))
    assert (found.from_time, found.to_time) == (None, None)


def test_a_day_is_one_of_the_connectors_timezone_whatever_the_clocks_do() -> None:
    found = asked({"to.topic": "a", "what.days": ["2026-03-29"]}, layout={"timezone": "Europe/Berlin"})
    [(start, end)] = found.windows
    assert end - start == 23 * HOUR


def test_filters_come_through_as_bytes() -> None:
    found = asked(
        {
            "to.topic": "a",
            "what.record_keys": ["é", "hex:ff00"],
            "what.key_prefixes": ["eu-"],
            "what.latest_per_key": True,
        }
    )
    assert found.records == RecordFilter(keys=("é".encode(), b"\xff\x00"), key_prefixes=(b"eu-",), latest_per_key=True)


def test_another_cluster_is_a_worker_file_and_secrets_come_from_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hidden")
    (folder / "restore").mkdir()
    worker, keys = folder / "restore" / "other.properties", folder / "restore" / "outgoing.properties"
    worker.write_text("bootstrap.servers=other:9092\nclient.id=me\n")
    keys.write_text(
        "value.converter=io.confluent.connect.avro.AvroConverter\n"
        "schema.registry.url=http://registry:8081\n"
        "schema.registry.basic.auth.credentials.source=USER_INFO\n"
        "schema.registry.basic.auth.user.info=me:${env:REGISTRY_PASSWORD}\n"
    )
    found = asked(
        {"to.topic": "a", "to.worker": worker.name, "values.outgoing_file": keys.name, "values.map_schema_ids": True}
    )

    assert found.target_kafka.properties("consumer") == {"bootstrap.servers": "other:9092", "client.id": "me"}
    value, registry = found.outgoing.value, found.outgoing.target_registry
    assert value is not None
    assert registry is not None
    assert (value.format, value.registry, found.outgoing.key) == ("AVRO", registry, None)
    assert registry.properties["basic.auth.user.info"].get_secret_value() == "me:hidden"
    assert "hidden" not in repr(found.outgoing)
    worker.write_text("client.id=me\n")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        asked({"to.topic": "a", "to.worker": worker.name})


FILES = ("to.worker", "values.outgoing_file")


@pytest.mark.parametrize("key", FILES)
@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "/etc/../etc/passwd",
        "{folder}/restore/inside.properties",
        "../secret.properties",
        "./inside.properties",
        "sub/inside.properties",
        "..",
        ".",
        "",
        "secret.properties",
        "out.properties",
        "around.properties",
        "loop.properties",
        "hidden\0.properties",
        ".hidden.properties",
        "folder.properties",
        "inside.txt",
        "~/.pgpass",
        "file:///etc/passwd",
    ],
)
def test_a_run_reads_no_file_but_those_that_were_put_there_for_runs(folder: Path, key: str, name: str) -> None:
    files = folder / "restore"
    (files / "sub").mkdir(parents=True)
    (files / "folder.properties").mkdir()
    (files / "out.properties").symlink_to("/etc/passwd")
    (files / "around.properties").symlink_to("../secret.properties")
    (files / "loop.properties").symlink_to("loop.properties")
    for path in (
        "secret.properties",
        "restore/sub/inside.properties",
        "restore/inside.txt",
        "restore/.hidden.properties",
    ):
        (folder / path).write_text("hunter2:x\n")
    (files / "inside.properties").write_text("bootstrap.servers=b:1\n")
    with pytest.raises(
        ConfigError, match=rf"{key} .* is no file of .*restore: .*there are: inside\.properties\)"
    ) as told:
        asked({"to.topic": "a", key: name.format(folder=folder)})
    assert "root" not in str(told.value).replace(str(folder), "")
    assert "hunter2" not in str(told.value)


def test_a_file_for_runs_may_be_a_link_that_stays_as_in_a_mounted_config_map(folder: Path) -> None:
    (folder / "restore" / "..data").mkdir(parents=True)
    (folder / "restore" / "..data" / "other.properties").write_text("bootstrap.servers=other:9092\n")
    (folder / "restore" / "other.properties").symlink_to("..data/other.properties")
    found = asked({"to.topic": "a", "to.worker": "other.properties"})
    assert found.target_kafka.bootstrap_servers == "other:9092"


@pytest.mark.parametrize("key", FILES)
@pytest.mark.parametrize("by_path", [False, True])
def test_what_is_in_a_file_that_was_not_meant_is_not_told(folder: Path, key: str, by_path: bool) -> None:
    """The beginnings of its lines were: a restore of /etc/passwd named the users."""
    (folder / "restore").mkdir()
    path = folder / "restore" / "other.properties"
    for text in (
        "hunter1:x:0:0:hunter2:/root:/bin/sh\nhunter3 = hunter4\n",
        "# nothing\nhunter1\nhunter1\n",
        "hunter1: a\nhunter1=b\n",
        "-----BEGIN hunter1 KEY-----\nhunter2==\n",
        "hunter1 \\uXYZW\n",
        '{"hunter1": "hunter2",\n "hunter3": 1}\n',
        "consumer.hunter1=hunter2\n",
        "confluent.hunter1=hunter2\nhunter3=1\n",
    ):
        path.write_text(text)
        with allow_paths() if by_path else nullcontext(), pytest.raises(ConfigError, match=r"line \d") as told:
            asked({"to.topic": "a", key: str(path) if by_path else path.name})
        assert "hunter" not in str(told.value)
        assert not told.value.__cause__
        assert not told.value.__context__ or "hunter" not in str(told.value.__context__)


@pytest.mark.parametrize("prefix", ["", "key.converter.", "value.converter."])
@pytest.mark.parametrize("name", ["ca", "certificate", "key", "truststore", "keystore"])
def test_the_keys_of_a_run_name_no_files(prefix: str, name: str) -> None:
    key = f"{prefix}schema.registry.ssl.{name}.location"
    keys = {"value.converter": "AvroConverter", "key.converter": "AvroConverter", "schema.registry.url": "http://r"}
    with pytest.raises(ConfigError, match=f"values.outgoing {key} names a file of the machine".replace(".", r"\.")):
        asked({"to.topic": "a", "values.outgoing": {**keys, key: "/etc/passwd"}})


AVRO_WITH_PASSWORD = """
value.converter=io.confluent.connect.avro.AvroConverter
schema.registry.url=http://registry:8081
schema.registry.basic.auth.credentials.source=USER_INFO
schema.registry.basic.auth.user.info=me:hunter2
"""


@pytest.mark.parametrize("prefix", ["", "key.converter.", "value.converter."])
@pytest.mark.parametrize(
    "name",
    ["url", "bearer.auth.issuer.endpoint.url", "basic.auth.user.info", "ssl.endpoint.identification.algorithm"],
)
@pytest.mark.parametrize("file", [True, False])
def test_a_runs_keys_send_no_password_to_another_registry(folder: Path, prefix: str, name: str, file: bool) -> None:
    """Whoever could launch a run named a host of theirs as the registry, and was sent the password of the file."""
    (folder / "restore").mkdir()
    (folder / "restore" / "target.properties").write_text(AVRO_WITH_PASSWORD)
    of_file = {"values.outgoing_file": "target.properties"} if file else {}
    keys = {"key.converter": "AvroConverter", "value.converter": "AvroConverter"}
    short = [f"{prefix}{name}"] if prefix and name != "url" else []
    for key in (f"{prefix}schema.registry.{name}", *short):
        with pytest.raises(
            ConfigError, match=f"values.outgoing {key}: the config of a run cannot set a registry".replace(".", r"\.")
        ):
            asked({"to.topic": "a", **of_file, "values.outgoing": {**keys, key: "http://attacker"}})
    if file:
        found = asked({"to.topic": "a", **of_file, "values.outgoing": keys}).outgoing.key
        assert found is not None
        assert found.registry is not None
        assert found.registry.url == "http://registry:8081", "the file's own may be used"


@pytest.mark.parametrize("key", ["transforms.tag.type", "transforms.tag.header", "predicates.old.type"])
def test_the_keys_of_a_run_change_no_step_of_a_file(folder: Path, key: str) -> None:
    """A step of a file may be given a secret, and where to go with it."""
    (folder / "restore").mkdir()
    (folder / "restore" / "steps.properties").write_text(
        "transforms=tag\ntransforms.tag.type=org.apache.kafka.connect.transforms.InsertHeader\n"
        "transforms.tag.header=token\ntransforms.tag.value.literal=hunter2\n"
        "predicates=old\npredicates.old.type=org.apache.kafka.connect.transforms.predicates.RecordIsTombstone\n"
    )
    asking = {"to.topic": "a", "values.outgoing_file": "steps.properties"}
    with pytest.raises(ConfigError, match=rf"values\.outgoing {key}: .* belongs to values\.outgoing_file") as told:
        asked({**asking, "values.outgoing": {key: "other"}})
    assert "hunter2" not in str(told.value)
    more = {"transforms": "tag,Add", "transforms.Add.type": ROUTER["transforms.AddPrefix.type"]}
    more |= {"transforms.Add.regex": ".*", "transforms.Add.replacement": "a"}
    assert len(asked({**asking, "values.outgoing": more}).outgoing.transforms) == 2


def test_a_person_at_the_machine_names_any_file(tmp_path: Path) -> None:
    path = tmp_path / "anywhere"
    path.write_text("bootstrap.servers=other:9092\n")
    with allow_paths():
        found = asked({"to.topic": "a", "to.worker": str(path)})
    assert found.target_kafka.bootstrap_servers == "other:9092"
    with pytest.raises(ConfigError, match="is no file of"):
        asked({"to.topic": "a", "to.worker": str(path)})


def test_connectors_that_are_known_come_along_and_broken_files_do_not_stop_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "worker.properties").write_text("bootstrap.servers=127.0.0.1:1\n")
    (folder / "good.properties").write_text(
        "name=good\ntopics.regex=copy_of_.*\nconnector.class=kafka_s3_platform.S3Archive\ns3.bucket.name=bucket\n"
    )
    (folder / "bad.properties").write_text("name=bad\n")

    assert [c.name for c in asked({"to.topic": "a"}).connectors] == ["good"]
    assert "bad.properties" in caplog.text


def given_on_the_command_line(*options: str) -> ForeignSource:
    """What `kafka-s3 restore` asks of a source connector."""

    @click.command
    @add_restore_options
    def command(**given: Any) -> ForeignSource:
        topics = TopicAssets(config().model_copy(update={"source": SourceSettings()}), "every topic")
        return make_foreign_request(topics, read_terms(given, ()), "r1", "x")

    found: ForeignSource = command.main(list(options), standalone_mode=False)
    return found


@pytest.mark.parametrize("option", ["--from-offset", "--to-offset"])
def test_with_offsets_of_some_kafka_partitions_others_have_to_be_named(option: str) -> None:
    with pytest.raises(ConfigError, match=r"are of kafka partitions 0, 3, and others .*\(--kafka-partitions, what"):
        given_on_the_command_line(option, "0:15", option, "3:20")
    assert given_on_the_command_line(option, "0:15", "--kafka-partitions", "0,1").request.kafka_partitions == (0, 1)
    assert given_on_the_command_line(option, "15").request.kafka_partitions is None
    assert given_on_the_command_line("--key", "k").request.from_offset is None
