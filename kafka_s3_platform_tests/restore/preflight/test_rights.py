"""Every run with the rights that docs/rights.md names, on a broker that asks for rights, and with one right less."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from kafka_s3_platform.cli.connector_files.connect import try_connector
from kafka_s3_platform.cli.connector_files.findings import Judgement
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, ErrorSettings, StoreSettings
from kafka_s3_platform.core.errors import AuthorizationError, PlatformError, PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.groups import publish_offsets, read_committed_offsets
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import TopicAcl
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.verify.against_topic import compare_with_topic
from kafka_s3_platform.operate.groups.group_commit import apply_translations, roll_back_groups
from kafka_s3_platform.operate.groups.group_offsets import read_finished_restore, translate_groups
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, own_stack, store_of
from kafka_s3_platform_tests.kafka.guarded import TABLE, Guarded, Right, guarded_properties, rights
from kafka_s3_platform_tests.kafka.topics import delete_group, values
from kafka_s3_platform_tests.restore.own import numbered, request, restored
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, connector, produce, snapshot

SENT = [b"%d" % n for n in range(20)]
SOURCE = """\
name=lines
connector.class=io.confluent.connect.s3.source.S3SourceConnector
format.class=io.confluent.connect.s3.format.json.JsonFormat
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""


@pytest.fixture(scope="module")
def settings(stack_settings: StackSettings) -> Iterator[StackSettings]:
    ports = free_port_settings()
    [sasl] = free_ports(1)
    guarded = guarded_properties(ports["kafka_port"], ports["kafka_controller_port"], sasl)
    with own_stack(stack_settings, kafka_properties={**stack_settings.kafka_properties, **guarded}, **ports) as own:
        embedded.start_stack(own)
        yield own


@pytest.fixture(scope="module")
def guarded(settings: StackSettings) -> Guarded:
    return Guarded(settings)


@pytest.fixture(scope="module")
def store(settings: StackSettings) -> StoreSettings:
    return store_of(settings, settings.bucket)


@pytest.fixture(scope="module")
def config(guarded: Guarded, store: StoreSettings) -> ConnectorConfig:
    """A topic with an ACL and a group, archived with both."""
    with ClusterAdmin(guarded.anyone) as admin:
        admin.create_topic("source", 2)
        produce(guarded.anyone, "source", [*numbered(20), *numbered(20, kafka_partition=1)])
        admin.create_topic_acls("source", [TopicAcl("User:alice", "*", "READ", "ALLOW")])
        publish_offsets(admin, "app", "source", {0: 5, 1: 7})
    made = connector(guarded.anyone, store, "source", consumer_groups=("app",))
    archived(made)
    return made


@pytest.fixture
def target(guarded: Guarded, topic_name: str) -> str:
    with ClusterAdmin(guarded.anyone) as admin:
        admin.create_topic(topic_name, 2)
    return topic_name


def of_its_own(
    guarded: Guarded, store: StoreSettings, topic: str, user: Iterable[Right], **given: object
) -> ConnectorConfig:
    """A connector of a user with these rights; its topic holds five records, the last of them no JSON."""
    with ClusterAdmin(guarded.anyone) as admin:
        admin.create_topic(topic, 1)
    produce(guarded.anyone, topic, [*numbered(4), Sent(b"{")])
    return connector(guarded.user_with(user), store, topic, **given)  # type: ignore[arg-type]


def test_archiving(guarded: Guarded, store: StoreSettings, topic_name: str) -> None:
    config = of_its_own(guarded, store, topic_name, rights("archive", SOURCE=topic_name))
    assert archived(config).record_count == 5
    assert snapshot(config).state.topic.acls is None  # type: ignore[union-attr]


def test_what_archiving_lacks_is_told_before_it_is_tried(
    guarded: Guarded, store: StoreSettings, topic_name: str
) -> None:
    dead = f"{topic_name}-dead"
    with ClusterAdmin(guarded.anyone) as admin:
        admin.create_topic(dead, 1)
    needed = rights("archive", SOURCE=topic_name)
    seen = [*needed, Right("topic", topic_name, "DESCRIBE"), Right("topic", dead, "DESCRIBE")]
    seen.append(Right("topic", dead, "DESCRIBE_CONFIGS"))
    letters = {"records": {"errors": ErrorSettings(tolerance="all", dead_letter_topic=dead)}}
    config = of_its_own(guarded, store, topic_name, seen, **letters)
    assert judge_topics(config) == {"topics": Judgement.OK, f"dead letter topic {dead}": Judgement.WRONG}

    for missing in ("READ", "DESCRIBE_CONFIGS"):
        user = guarded.user_with(right for right in seen if right != Right("topic", topic_name, missing))
        found = judge_topics(config.model_copy(update={"kafka": user}))
        assert found[f"topic {topic_name}"] is Judgement.WRONG, missing


def judge_topics(config: ConnectorConfig) -> dict[str, Judgement]:
    """What was tried of topics -> how it is."""
    return {each.what: each.judgement for each in try_connector(config) if each.what.startswith(("topic", "dead"))}


def test_archiving_with_groups_offsets_acls_and_dead_letters(
    guarded: Guarded, store: StoreSettings, topic_name: str
) -> None:
    runs = [row[0].replace("`", "") for row in TABLE]
    runs = runs[runs.index("archive") : runs.index("take-over")]
    dead, app = f"{topic_name}-dead", f"{topic_name}-app"
    errors = ErrorSettings(tolerance="all", dead_letter_topic=dead, dead_letter_replication_factor=1)
    config = of_its_own(
        guarded,
        store,
        topic_name,
        rights(*runs, SOURCE=topic_name, GROUP=app, CONNECTOR="c", DEAD_LETTERS=dead),
        layout={"format": "json"},
        records={"value": ConverterSettings(format="JSON"), "errors": errors},
        consumer_groups=(".*-app",),
        publish_offsets=True,
    )
    with ClusterAdmin(guarded.anyone) as admin:
        publish_offsets(admin, app, topic_name, {0: 3})
        report = archived(config)
        assert read_committed_offsets(admin, "connect-c", topic_name) == {0: 5}

    assert (report.record_count, report.dead_letter_count) == (4, 1)
    assert values(guarded.anyone, dead) == [b"{"]
    state = snapshot(config).state
    assert [(g.group_id, g.committed_offset) for g in state.groups] == [(app, 3)]
    assert state.topic is not None
    assert state.topic.acls


def test_archiving_without_the_right_to_read_names_the_topic(
    guarded: Guarded, store: StoreSettings, topic_name: str
) -> None:
    config = of_its_own(guarded, store, topic_name, rights("restore --dry-run", TARGET=topic_name))
    with pytest.raises(AuthorizationError, match=f"reading topic {topic_name}.*TOPIC_AUTHORIZATION_FAILED"):
        archived(config)


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"security.protocol": "PLAINTEXT"}, "set security.protocol to SASL_PLAINTEXT, and sasl.mechanism"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "supported mechanisms: PLAIN.* Set sasl.mechanism to one of those"),
        ({"sasl.password": "none-of-ours"}, "Correct sasl.username and sasl.password"),
    ],
)
def test_a_login_that_is_missing_or_refused_is_told_with_what_to_set(
    guarded: Guarded, changed: dict[str, str], advice: str
) -> None:
    user = guarded.user_with([])
    given = {**user.common, **{name: SecretStr(value) for name, value in changed.items()}}
    settings = user.model_copy(update={"common": given})
    with pytest.raises(PlatformError, match=advice) as raised, ClusterAdmin(settings, 1.5) as admin:
        admin.list_topics()
    assert given["sasl.password"].get_secret_value() not in str(raised.value)


def test_taking_over(guarded: Guarded, store: StoreSettings, topic_name: str) -> None:
    app = f"{topic_name}-app"
    config = of_its_own(guarded, store, topic_name, rights("take-over", SOURCE=topic_name, GROUP=app))
    with ClusterAdmin(guarded.anyone) as admin:
        publish_offsets(admin, app, topic_name, {0: 3})
    assert record_takeover(config, topic_name, app, "run").offsets == {0: 3}


def test_the_reader_of_last_resort_needs_no_right_on_the_group_that_it_has_to_name(
    guarded: Guarded, config: ConnectorConfig
) -> None:
    user = guarded.user_with(rights("archive", SOURCE="source"))
    with ConfluentReader(user, "source", answer_seconds=20.0) as reader:
        for leader_epoch in (None, 0):
            read = reader.read(0, OffsetRange(10, 20), leader_epoch)
            assert sum(batch.num_rows for batch in read) == 10


def test_a_whole_restore_by_a_user_with_the_least_rights(
    guarded: Guarded, config: ConnectorConfig, target: str
) -> None:
    user = guarded.user_with(rights("restore", TARGET=target))
    report = restored(config, to_topic=target, restore_id=target, create_topic=False, target=user)
    assert report.verified
    assert [values(guarded.anyone, target, p) for p in (0, 1)] == [SENT, SENT]


MISSING: list[tuple[str, str, type[PlatformError], str]] = [
    ("topic", "READ", PreflightError, "lack READ on TARGET"),
    ("topic", "WRITE", PreflightError, "lack WRITE on TARGET"),
    ("topic", "DESCRIBE_CONFIGS", AuthorizationError, r"configs of topic TARGET \(DESCRIBE_CONFIGS\)"),
    (
        "transactional id",
        "WRITE",
        AuthorizationError,
        r"as restore\.TARGET: .*TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    ("group", "READ", AuthorizationError, r"group restore\.TARGET@\w+\.0 .*GROUP_AUTHORIZATION_FAILED"),
]


def test_no_right_of_a_restore_is_left_untested() -> None:
    assert [(r.resource, r.operation) for r in rights("restore")] == [(m[0], m[1]) for m in MISSING]


@pytest.mark.parametrize(("resource", "operation", "error", "said"), MISSING)
def test_a_restore_without_one_right_says_which_and_goes_on_when_it_is_given(
    guarded: Guarded,
    config: ConnectorConfig,
    target: str,
    resource: str,
    operation: str,
    error: type[PlatformError],
    said: str,
) -> None:
    whole = rights("restore", TARGET=target)
    lacking = [r for r in whole if (r.resource, r.operation) != (resource, operation)]
    asked = {"to_topic": target, "restore_id": target, "create_topic": False}

    with pytest.raises(error, match=said.replace("TARGET", target)):
        restored(config, **asked, target=guarded.user_with(lacking))
    assert [values(guarded.anyone, target, p) for p in (0, 1)] == [[], []]

    report = restored(config, **asked, target=guarded.user_with(whole))
    assert report.verified
    assert [values(guarded.anyone, target, p) for p in (0, 1)] == [SENT, SENT]


def test_a_restore_at_least_once_and_a_dry_run(guarded: Guarded, config: ConnectorConfig, target: str) -> None:
    asked = {"to_topic": target, "restore_id": target, "create_topic": False}
    dry = guarded.user_with(rights("restore --dry-run", TARGET=target))
    planned = restored(config, **asked, target=dry, dry_run=True)
    assert "lack WRITE and READ on" in planned.refusals[0]
    assert any("bytes of keys, values and headers" in note for note in planned.notes)

    user = guarded.user_with(rights("restore --delivery at_least_once", TARGET=target))
    assert restored(config, **asked, target=user, delivery="at_least_once").verified


def test_a_restore_that_creates_its_target_and_its_acls(
    guarded: Guarded, config: ConnectorConfig, topic_name: str
) -> None:
    names = {"TARGET": topic_name}
    asked = {"to_topic": topic_name, "restore_id": topic_name, "restore_acls": True}
    own = rights("restore", "and --create-topic", **names)
    with pytest.raises(PreflightError, match="DESCRIBE and DESCRIBE_CONFIGS on the cluster"):
        restored(config, **asked, target=guarded.user_with(own))

    acls = rights("restore", "and --create-topic", "and --restore-acls", **names)
    assert restored(config, **asked, target=guarded.user_with(acls)).verified

    with ClusterAdmin(guarded.anyone) as admin:
        assert TopicAcl("User:alice", "*", "READ", "ALLOW") in (admin.read_topic_acls([topic_name])[topic_name] or ())


def test_a_target_that_may_not_be_created_is_named(guarded: Guarded, config: ConnectorConfig, topic_name: str) -> None:
    user = guarded.user_with(rights("restore", TARGET=topic_name))
    with pytest.raises(
        PreflightError, match=f"would not create {topic_name}: .*creating topic {topic_name}.*AUTHORIZATION_FAILED"
    ):
        restored(config, to_topic=topic_name, restore_id=topic_name, target=user)


def test_a_restore_of_what_others_wrote(guarded: Guarded, settings: StackSettings, target: str, tmp_path: Path) -> None:
    worker, path = tmp_path / "worker.properties", tmp_path / "lines.properties"
    worker.write_text(f"bootstrap.servers={guarded.anyone.bootstrap_servers}\n")
    path.write_text(
        f"{SOURCE}s3.bucket.name={settings.bucket}\ntopics.dir=others\nstore.url={settings.s3_endpoint}\n"
        f"s3.region=us-east-1\naws.access.key.id={settings.aws_access_key_id}\n"
        f"aws.secret.access.key={settings.aws_secret_access_key}\n"
    )
    lines = b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(3))
    client = SeaweedFS(settings).client()
    client.put_object(Bucket=settings.bucket, Key=f"others/{target}/partition=0/{target}+0+0000000000.json", Body=lines)
    client.close()
    source = load_connector(path, worker, {})
    user = guarded.user_with(rights("restore", TARGET=target))
    asked = RestoreRequest(config=source, topic="", to_topic="", restore_id=target, run_id="run", target=user)

    report = restore(ForeignSource(asked), InProcessRunner())

    assert (report.verified, report.record_count) == (True, 3)
    assert len(values(guarded.anyone, target)) == 3


def test_verifying_against_a_topic_and_committing_groups_and_setting_them_back(
    guarded: Guarded, config: ConnectorConfig, target: str
) -> None:
    restored(config, to_topic=target, restore_id=target, create_topic=False, target=guarded.anyone)
    reader = guarded.user_with(rights("verify --against", TARGET=target))
    assert compare_with_topic(request(config, to_topic=target, target=reader), InProcessRunner()).ok
    documents = read_finished_restore(config, target)
    assert documents is not None
    names = {"TARGET": target, "GROUP": "app"}

    with ClusterAdmin(guarded.user_with(rights("groups", **names))) as admin:
        [found] = translate_groups(config, *documents, admin)
        with pytest.raises(AuthorizationError, match=r"group app.*GROUP_AUTHORIZATION_FAILED"):
            apply_translations(admin, [found], lambda _: None)
    with ClusterAdmin(guarded.anyone) as admin:
        delete_group(admin, "app")
    rollback_of_new = "and groups --rollback where a group had committed nothing before"
    with ClusterAdmin(guarded.user_with(rights("groups --apply", rollback_of_new, **names))) as admin:
        rollback = apply_translations(admin, [found], lambda _: None)
        assert read_committed_offsets(admin, "app", target) == {0: 5, 1: 7}
    with ClusterAdmin(guarded.anyone) as admin:
        # of this one the user is shown nothing
        publish_offsets(admin, "app", config.topics[0], {0: 3})
    with ClusterAdmin(guarded.user_with(rights("groups --apply", **names))) as admin:
        [line] = roll_back_groups(admin, rollback)
        assert "their offsets stay" in line
        assert "GROUP_AUTHORIZATION_FAILED" in line
    with ClusterAdmin(guarded.user_with(rights("groups --apply", rollback_of_new, **names))) as admin:
        [line] = roll_back_groups(admin, rollback)
        assert line.endswith("their offsets are removed")
    with ClusterAdmin(guarded.anyone) as admin:
        assert read_committed_offsets(admin, "app", target) == {}
        assert read_committed_offsets(admin, "app", config.topics[0]) == {0: 3}
