"""Where credentials come from, and that they are refreshed: with a Security Token Service and S3 on real sockets.

SeaweedFS knows one fixed identity, so a gate stands before it, which lets pass what a valid session of the service
has signed, and refuses what has expired as AWS does.
"""

import gc
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import RefreshableCredentials
from botocore.utils import parse_timestamp
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ProviderSettings, RoleSettings, StoreSettings
from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, IndexConflictError, StoreUnavailableError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.credentials import (
    ADVISORY_SECONDS,
    Credentials,
    describe_credentials,
    find_credentials,
    parse_time,
)
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import RowPredicate, match_row
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.store.servers import Recorder, Sts, StsServer, forget_clients, session_gate

ARN = "arn:aws:iam::123456789012:role/archive"

pytestmark = pytest.mark.usefixtures("no_credentials")


@pytest.fixture
def sts() -> Sts:
    return Sts()


@pytest.fixture
def sts_server(sts: Sts) -> Iterator[StsServer]:
    with running(StsServer(sts)) as server:
        yield server


@pytest.fixture
def gate(store_settings: StoreSettings, sts: Sts) -> Iterator[Recorder]:
    with session_gate(store_settings, sts) as server:
        yield server


def role(server: StsServer, **changes: Any) -> RoleSettings:
    given = {"arn": ARN, "session_name": "kafka", "endpoint_url": server.endpoint}
    return RoleSettings(**{**given, **changes})


def settings(**changes: Any) -> StoreSettings:
    return StoreSettings(**{"bucket": "bucket", "region": "us-east-1", **changes})


def of_role(server: StsServer, **changes: Any) -> StoreSettings:
    keys = {"access_key_id": SecretStr("AKIASOURCESOURCE"), "secret_access_key": SecretStr("s")}
    return settings(role=role(server), **keys, **changes)


# The ways


def test_an_access_key_of_the_file_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    own = settings(access_key_id=SecretStr("AKIAOWNOWNOWN123"), secret_access_key=SecretStr("secret"))
    assert find_credentials(own) == Credentials("AKIAOWNOWNOWN123", "secret")
    assert describe_credentials(own) == "aws.access.key.id; access key id AKIA****N123"
    assert "secret" not in repr(find_credentials(own))


def test_the_environment_is_the_default_chains_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert find_credentials(settings()) == Credentials("AKIAENVIRONMENT1", "x", "t")
    assert describe_credentials(settings()) == "AWS's default chain: environment variables; access key id AKIA****ENT1"


def test_a_member_of_the_chain_is_asked_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = "[default]\naws_access_key_id = AKIAPROFILE12345\naws_secret_access_key = x\n"
    (tmp_path / "credentials").write_text(profile)
    own = settings(chain=("env",))
    with pytest.raises(
        AuthorizationError, match=r"provider\.class names only environment variables, and there are none"
    ):
        find_credentials(own)
    monkeypatch.setenv("AWS_ACCESS_KEY", "AKIAJAVAJAVAJAVA")
    monkeypatch.setenv("AWS_SECRET_KEY", "y")
    forget_clients()
    assert find_credentials(own) == Credentials("AKIAJAVAJAVAJAVA", "y")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    forget_clients()
    assert describe_credentials(own).startswith(
        "s3.credentials.provider.class: environment variables; access key id AKIA****"
    )
    assert find_credentials(settings(chain=("shared-credentials-file", "config-file"))).access_key == "AKIAPROFILE12345"


def test_without_any_credentials_it_is_said_what_to_set() -> None:
    with pytest.raises(AuthorizationError, match=r"no AWS credentials: .* Set aws\.access\.key\.id"):
        find_credentials(settings())


def test_a_role_is_assumed_with_the_access_key_of_the_file(sts: Sts, sts_server: StsServer) -> None:
    own = of_role(sts_server).model_copy(update={"role": role(sts_server, external_id=SecretStr("ext"))})
    found = find_credentials(own)
    assert found.access_key in sts.sessions
    [call] = sts.calls
    assert (call["caller"], call["RoleArn"], call["RoleSessionName"]) == ("AKIASOURCESOURCE", ARN, "kafka")
    assert (call["ExternalId"], call["DurationSeconds"]) == ("ext", "3600")
    assert describe_credentials(own).startswith(f"sts.role.arn {ARN}, session kafka; access key id ASIA****")
    assert len(sts.calls) == 1, "one session serves all"


def test_a_role_is_assumed_with_the_default_chain(
    sts: Sts, sts_server: StsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    find_credentials(settings(role=role(sts_server)))
    assert [call["caller"] for call in sts.calls] == ["AKIAENVIRONMENT1"]


@pytest.mark.parametrize(
    ("source", "caller"),
    [
        ("source_profile = base", "AKIASOURCESOURCE"),
        ("credential_source = Environment", "AKIAENVIRONMENT1"),
        ("credential_source = EcsContainer", "ASIA"),
        ("credential_source = Ec2InstanceMetadata", "ASIA"),
    ],
)
def test_a_profile_that_assumes_a_role_is_honoured(
    sts: Sts, sts_server: StsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, caller: str
) -> None:
    (tmp_path / "config").write_text(
        f"[profile archive]\nrole_arn = {ARN}\nrole_session_name = kafka\nexternal_id = ext\n{source}\n"
    )
    (tmp_path / "credentials").write_text("[base]\naws_access_key_id = AKIASOURCESOURCE\naws_secret_access_key = s\n")
    if "Environment" in source:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT1")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    on_a_container(monkeypatch, sts_server)
    on_an_instance(monkeypatch, sts_server)
    monkeypatch.setenv("AWS_PROFILE", "archive")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts_server.endpoint)
    assert find_credentials(settings()).access_key in sts.sessions
    call = sts.calls[-1]
    assert (call["RoleArn"], call["ExternalId"]) == (ARN, "ext")
    assert call["caller"].startswith(caller)
    assert describe_credentials(settings()).startswith(
        "AWS's default chain: a profile with role_arn; access key id ASIA****"
    )


def on_a_container(monkeypatch: pytest.MonkeyPatch, server: StsServer) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/container")


def on_an_instance(monkeypatch: pytest.MonkeyPatch, server: StsServer) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.endpoint)


@pytest.mark.parametrize(("place", "name"), [(on_a_container, "the container"), (on_an_instance, "the instance")])
def test_the_chain_ends_with_the_container_and_the_instance(
    sts: Sts, sts_server: StsServer, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    place(monkeypatch, sts_server)
    assert find_credentials(settings()).access_key in sts.sessions
    assert describe_credentials(settings()).startswith(f"AWS's default chain: {name}; access key id ASIA****")


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AuthorizationError, match=r"profile.*nobody"):
        find_credentials(settings())


def test_a_refused_role_says_which_and_what_to_check(sts: Sts, sts_server: StsServer) -> None:
    sts.refuse = True
    own = of_role(sts_server)
    for use in (
        find_credentials,
        describe_credentials,
        lambda s: ObjectStore(s).get("key"),
        lambda s: TopicIndex(ConnectorIndex(s, "i", "c"), "t").open(),
    ):
        with pytest.raises(AuthorizationError, match=rf"AssumeRole of {ARN} .* 403 AccessDenied.* trust policy"):
            use(own)


def test_an_sts_that_does_not_answer_is_transient_and_told_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    gone = RoleSettings(arn=ARN, session_name="kafka", endpoint_url="http://127.0.0.1:1")
    own = settings(role=gone, access_key_id=SecretStr("a"), secret_access_key=SecretStr("s"))
    with pytest.raises(StoreUnavailableError, match=r"AssumeRole .* no answer"):
        find_credentials(own)
    assert not [record for record in caplog.records if record.name.startswith("botocore")]


def test_a_session_that_is_not_renewed_in_time_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise OSError("the network is down")
    except OSError:
        told = "Refreshing temporary credentials failed during %s refresh period."
        logging.getLogger("botocore.credentials").warning(told, "advisory", exc_info=True)
    [record] = caplog.records
    assert record.getMessage() == f"{told % 'advisory'} the network is down"
    assert record.exc_info is None


# A user's own class


class Counting:
    """A provider as a user writes one: counts, and gives short sessions of a service."""

    made: list["Counting"] = []  # noqa: RUF012 - what was made, for the tests to look at

    def __init__(self, options: dict[str, str]) -> None:
        self.options, self.asked = options, 0
        Counting.made.append(self)

    def credentials(self) -> Credentials:
        self.asked += 1
        lasts = self.options.get("lasts")
        expiry = datetime.now(timezone.utc) + timedelta(seconds=float(lasts)) if lasts else None
        return Credentials(f"{self.options['vault']}-{self.asked}", "secret", "token", expiry)


class Naive(Counting):
    def credentials(self) -> Credentials:
        return Credentials("a", "s", None, datetime(2100, 1, 1))  # noqa: DTZ001 - the fault


class Failing(Counting):
    def credentials(self) -> Credentials:
        raise {"timeout": TimeoutError, "refused": KeyError}[self.options["fault"]]("vault")


class NoProvider:
    def __init__(self, options: dict[str, str]) -> None: ...


def own_class(cls: type, **options: str) -> StoreSettings:
    given = tuple((name, SecretStr(value)) for name, value in options.items())
    return settings(provider=ProviderSettings(class_name=f"{__name__}.{cls.__name__}", options=given))


@pytest.fixture
def made() -> Iterator[list[Counting]]:
    Counting.made.clear()
    yield Counting.made
    Counting.made.clear()


def test_a_class_of_ones_own_is_called_with_its_options_and_once_while_they_hold(made: list[Counting]) -> None:
    own = own_class(Counting, vault="v", lasts="3600")
    assert [find_credentials(own).access_key for _ in range(3)] == ["v-1"] * 3
    assert [m.options for m in made] == [{"vault": "v", "lasts": "3600"}]
    assert describe_credentials(own).startswith("s3.credentials.provider.class ")


def test_credentials_that_never_expire_are_asked_for_once(made: list[Counting]) -> None:
    own = own_class(Counting, vault="v")
    assert [find_credentials(own).access_key for _ in range(3)] == ["v-1"] * 3


def test_a_class_of_ones_own_is_asked_again_before_its_credentials_expire(made: list[Counting]) -> None:
    own = own_class(Counting, vault="v", lasts="1.5")
    assert find_credentials(own) != find_credentials(own)


@pytest.mark.parametrize(
    ("provider", "options", "error", "words"),
    [
        (Naive, {}, ConfigError, "no timezone"),
        (Failing, {"fault": "timeout"}, StoreUnavailableError, "no credentials: TimeoutError: vault"),
        (Failing, {"fault": "refused"}, AuthorizationError, "no credentials: KeyError"),
        (NoProvider, {}, ConfigError, r"has to have credentials\(\)"),
        (Counting, {"vault": "v", "lasts": "-1"}, AuthorizationError, "expired at"),
    ],
)
def test_a_class_that_gives_no_credentials_is_named(
    provider: type, options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=rf"{provider.__name__}.*{words}"):
        find_credentials(own_class(provider, **options))


# Long runs


@pytest.fixture
def short(sts: Sts, sts_server: StsServer, gate: Recorder, store_settings: StoreSettings) -> StoreSettings:
    """Settings of a role whose sessions a test may let expire."""
    changes = {"bucket": store_settings.bucket, "endpoint_url": gate.endpoint}
    return of_role(sts_server).model_copy(update=changes)


def expire(sts: Sts) -> None:
    """Let all sessions issued so far become due for a refresh, and refuse them from then on."""
    now = datetime.now(timezone.utc)
    soon = now + timedelta(seconds=ADVISORY_SECONDS - 1)
    for kept in gc.get_objects():
        if type(kept) is RefreshableCredentials:
            kept._expiry_time = soon  # type: ignore[attr-defined]  # noqa: SLF001
    sts.sessions.update({key: (token, now - timedelta(seconds=1)) for key, (token, _) in sts.sessions.items()})


def test_a_stores_client_outlives_its_session(short: StoreSettings, sts: Sts, gate: Recorder) -> None:
    store = ObjectStore(short)
    store.put_new("a", b"1")
    expire(sts)
    store.put_new("b", b"2")
    assert store.get("a") == b"1"
    assert len({r.access_key for r in gate.requests}) == len(sts.calls) == 2


def test_a_kept_snapshot_reads_and_commits_after_its_session_expired(
    short: StoreSettings, sts: Sts, gate: Recorder
) -> None:
    index = TopicIndex(ConnectorIndex(short, "_index", "c"), "t")
    index.open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    kept = index.open()
    expire(sts)
    version = kept.commit(Change((Scan(0, 5, 9, 4, None, 1),)))
    assert version == kept.version + 1
    assert len(index.open().state.scans) == 2
    assert len({r.access_key for r in gate.requests}) == len(sts.calls) == 2


@pytest.mark.parametrize("removed", [(), (match_row("reservation", {}),)])
def test_a_snapshot_opened_again_is_still_a_compare_and_swap(
    short: StoreSettings, sts: Sts, removed: tuple[RowPredicate, ...]
) -> None:
    index = TopicIndex(ConnectorIndex(short, "_index", "c"), "t")
    index.open().commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    kept, other = index.open(), TopicIndex(ConnectorIndex(short, "_index", "c"), "t").open()
    other.commit(Change((Scan(0, 5, 9, 4, None, 1),)))
    expire(sts)
    with pytest.raises(IndexConflictError, match="committed by another run"):
        kept.commit(Change((Scan(0, 5, 9, 4, None, 1),), removed=removed))
    assert len(index.open().state.scans) == 2


def test_a_snapshot_that_committed_commits_no_more_also_when_opened_again(short: StoreSettings, sts: Sts) -> None:
    kept = TopicIndex(ConnectorIndex(short, "_index", "c"), "t").open()
    kept.commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    expire(sts)
    with pytest.raises(IndexConflictError, match="committed on before"):
        kept.commit(Change((Scan(0, 5, 9, 4, None, 1),)))


def test_one_session_serves_the_store_and_the_index(short: StoreSettings, sts: Sts, gate: Recorder) -> None:
    ObjectStore(short).put_new("a", b"1")
    TopicIndex(ConnectorIndex(short, "_index", "c"), "t").open()
    TopicIndex(ConnectorIndex(short, "_index", "c"), "u").open()
    assert len(sts.calls) == 1
    assert {r.access_key for r in gate.requests} == set(sts.sessions)


def test_an_index_whose_session_was_revoked_is_an_authorization_error(short: StoreSettings, sts: Sts) -> None:
    index = TopicIndex(ConnectorIndex(short, "_index", "c"), "t")
    index.open()
    sts.sessions.clear()
    with pytest.raises(AuthorizationError, match=r"InvalidAccessKeyId.*knows no such access key"):
        index.open()


@pytest.mark.parametrize(
    "told",
    [
        "2026-01-01T23:59:59Z",
        "2026-01-01T23:59:59.5Z",
        "2026-01-01T23:59:59.123Z",
        "2026-01-01T23:59:59.123456789Z",
        "2026-01-01T23:59:59+02:00",
        "20260101T235959Z",
        "Thu, 01 Jan 2026 23:59:59 GMT",
        "Thursday, 01-Jan-26 23:59:59 GMT",
        "Thu, 01 Jan 2026 23:59:59 +0100",
        "1767311999",
        "1767311999.25",
        1767311999,
    ],
)
def test_a_time_of_an_answer_is_what_botocore_takes_it_for(told: Any) -> None:
    assert parse_time(told) == parse_timestamp(told)


@pytest.mark.parametrize(
    "told", ["", "Z", " GMT", "yesterday", "2026-13-01T00:00:00Z", "Thu, 99 Foo 2026 00:00:00 GMT"]
)
def test_what_botocore_takes_for_no_time_is_none(told: str) -> None:
    with pytest.raises(ValueError, match="Invalid timestamp"):
        parse_timestamp(told)
    with pytest.raises(ValueError, match="Invalid timestamp"):
        parse_time(told)
