"""What is told of checks and runs: once when it begins and once when it is over, whatever becomes of the receivers.

Mail over TLS with a login, and settings that cannot be used. No error tells a secret.
"""

import html
import json
import logging
import os
import re
import socket
import ssl
import traceback
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster import DagsterEventType
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.defs.archive.checks import HOURLY_CHECK, LOST_METADATA, RISK_CHECK
from kafka_s3_platform.core.errors import ConfigError, TransientError
from kafka_s3_platform.core.instance.work import FAILURE_TAG, make_failed_tags
from kafka_s3_platform.operate.alerts.message import Message
from kafka_s3_platform.operate.alerts.receivers import make_receivers
from kafka_s3_platform.operate.alerts.settings import read_alert_settings
from kafka_s3_platform_tests.defs.alerts.deployment import Deployment
from kafka_s3_platform_tests.defs.alerts.servers import Mailbox, Webhook, mailbox
from kafka_s3_platform_tests.tls.authority import Authority, new_authority

TOPICS = tuple(f"t{n}" for n in range(7))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The connectors `c`, of seven topics, and `other`."""
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "worker.properties").write_text("bootstrap.servers=broker.invalid:9092\n")
    write(folder, "c", ",".join(TOPICS))
    write(folder, "other", "t0")
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return folder


def write(folder: Path, name: str, topics: str, **more: str) -> None:
    keys = {"name": name, "topics": topics, "s3.bucket.name": "bucket", "topics.dir": name, **more}
    (folder / f"{name}.json").write_text(json.dumps(keys))


@pytest.fixture
def deployment(folder: Path, instance: dg.DagsterInstance) -> Deployment:
    return Deployment(instance)


def expect_loss(deployment: Deployment, minutes: float) -> None:
    """What the lag sensor says of a topic whose records Kafka deletes in so many minutes."""
    lost_at = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    report_risk(deployment, f"Kafka keeps the oldest for {minutes} min more", dg.MetadataValue.timestamp(lost_at))


def report_risk(deployment: Deployment, says: str, lost_at: dg.MetadataValue[Any]) -> None:
    deployment.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(["c", "kafka", "t0"]),
            check_name=RISK_CHECK,
            passed=False,
            description=says,
            metadata={LOST_METADATA: lost_at},
            severity=dg.AssetCheckSeverity.ERROR,
        )
    )


def evaluate(deployment: Deployment, topic: str, passed: bool, says: str = "why", **more: object) -> None:
    """What a run or a sensor says of the check `archived` of a topic."""
    deployment.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(["c", "hourly", topic]),
            check_name=HOURLY_CHECK,
            passed=passed,
            description=says,
            metadata={},
            severity=dg.AssetCheckSeverity.ERROR,
        )
    )


def end_run(
    deployment: Deployment, job: str, kind: DagsterEventType, *topics: str, group: str = "hourly", **tags: str
) -> str:
    """A run that began and ended so, of these topics' hours, or of its whole job."""
    selection = frozenset(dg.AssetKey(["c", group, topic]) for topic in topics) or None
    run = dg.DagsterRun(job_name=job, status=dg.DagsterRunStatus.STARTED, asset_selection=selection, tags=tags)
    deployment.instance.add_run(run)
    for each in (DagsterEventType.RUN_START, kind):
        event = dg.DagsterEvent(event_type_value=each.value, job_name=job, message=f"{each.value} of {job}")
        deployment.instance.report_dagster_event(event, run.run_id)
    return run.run_id


def told(deployment: Deployment, hook: Webhook) -> list[tuple[str, str, list[str]]]:
    """What one tick tells: stage, title and names of each message."""
    before = len(hook.taken)
    deployment.tick()
    return [(each["event"], each["title"], each["names"]) for each in hook.taken[before:]]


FAILED, SUCCEEDED = DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_SUCCESS
PERMANENT, TRANSIENT = {FAILURE_TAG: "permanent"}, {FAILURE_TAG: "transient"}
ARCHIVE = "connector c: archive fails"
CHECK = "connector c: check archived fails"


def test_a_check_that_fails_is_one_incident_of_all_its_topics(deployment: Deployment, hook: Webhook) -> None:
    for topic in TOPICS:
        evaluate(deployment, topic, passed=False, says=f"7 offsets of {topic} <!channel> are lost")
    assert told(deployment, hook) == [("began", CHECK, ["t0", "t1", "t2", "t3", "t4"])]
    [alert] = hook.taken
    assert alert["name_count"] == 7
    assert not alert["heals_by_itself"]
    assert "t4 and 2 more" in alert["text"]
    assert "<!channel>" in alert["error"]
    assert "<!channel>" not in alert["text"], "Slack would call everybody"
    evaluate(deployment, "t0", passed=True)
    assert told(deployment, hook) == [], "six topics are left"
    for topic in TOPICS[1:]:
        evaluate(deployment, topic, passed=True)
    assert told(deployment, hook) == [("over", CHECK, ["t0", "t1", "t2", "t3", "t4"])]
    assert told(deployment, hook) == []
    evaluate(deployment, "t6", passed=False)
    assert told(deployment, hook) == [("began", CHECK, ["t6"])], "another incident"
    assert hook.taken[-1]["id"] != alert["id"]


def test_a_result_that_anybody_reported_keeps_no_alert_of_others(deployment: Deployment, hook: Webhook) -> None:
    report_risk(deployment, "forged", dg.MetadataValue.text("soon"))
    evaluate(deployment, "t0", passed=False)
    assert sorted(title for _, title, _ in told(deployment, hook)) == [CHECK, "connector c: topics are at risk"]


def test_an_incident_is_told_again_at_each_half_of_the_time_left(
    deployment: Deployment, hook: Webhook, mailed: Mailbox
) -> None:
    stages = []
    for minutes in (600, 400, 299, 299, 200, 149, 80, 74, 40, 36, 20, 17, 10, 8, 5, 3, 0, 0):
        expect_loss(deployment, minutes)
        stages += [(minutes, stage) for stage, _, _ in told(deployment, hook)]
    nearer = [(minutes, "nearer") for minutes in (299, 149, 74, 36, 17, 8, 0)]
    assert stages == [(600, "began"), *nearer]
    assert hook.taken[1]["text"].startswith("Nearer to a loss: connector c: topics are at risk\n")
    assert "error: Kafka keeps the oldest for 299 min more" in hook.taken[1]["text"]
    assert {alert["id"] for alert in hook.taken} == {hook.taken[0]["id"]}
    assert [alert["number"] for alert in hook.taken] == [*range(8)]
    assert len({mail["Message-ID"] for mail in mailed.mails}) == 8


def test_a_loss_that_comes_and_goes_is_no_storm_of_messages(deployment: Deployment, hook: Webhook) -> None:
    expect_loss(deployment, 100)
    assert [stage for stage, _, _ in told(deployment, hook)] == ["began"]
    for minutes in (300, 90, 300, 60, 300, 51):
        expect_loss(deployment, minutes)
        assert told(deployment, hook) == []


def test_a_topic_that_fails_for_good_is_not_over_because_another_one_succeeds(
    deployment: Deployment, hook: Webhook
) -> None:
    assert told(deployment, hook) == []
    key = dg.AssetKey(["c", "hourly", "t1"])
    failed = end_run(deployment, "archive__c", FAILED, "t0", "t1", **PERMANENT, **make_failed_tags({key: "permanent"}))
    assert told(deployment, hook) == [("began", ARCHIVE, ["t1"])]
    assert (hook.taken[0]["run_id"], hook.taken[0]["heals_by_itself"]) == (failed, False)
    end_run(deployment, "archive__c", SUCCEEDED, "t0")
    end_run(deployment, "compact__c", SUCCEEDED)
    end_run(deployment, "archive__c", DagsterEventType.RUN_CANCELED, "t1")
    assert told(deployment, hook) == []
    end_run(deployment, "archive__c", SUCCEEDED, "t1", "t2")
    assert told(deployment, hook) == [("over", ARCHIVE, ["t1"])]


@pytest.mark.parametrize("tags", [TRANSIENT, {}], ids=["transient", "killed"])
def test_what_may_heal_by_itself_is_told_when_it_has_failed_twice(
    deployment: Deployment, hook: Webhook, tags: dict[str, str]
) -> None:
    for end in (FAILED, SUCCEEDED, FAILED):
        end_run(deployment, "archive__c", end, "t0", **tags)
        assert told(deployment, hook) == []
    assert told(deployment, hook) == [], "a run that was seen before is no second one"
    end_run(deployment, "archive__c", FAILED, "t1", **tags)
    assert told(deployment, hook) == [], "another topic"
    end_run(deployment, "archive__c", FAILED, "t0", **tags)
    assert told(deployment, hook) == [("began", ARCHIVE, ["t0"])]
    end_run(deployment, "archive__c", FAILED, "t0", **PERMANENT)
    assert told(deployment, hook) == [("began", ARCHIVE, ["t0"])], "whoever thought that nobody has to act"
    assert [alert["heals_by_itself"] for alert in hook.taken] == [True, False]
    end_run(deployment, "archive__c", SUCCEEDED)
    assert told(deployment, hook) == [("over", ARCHIVE, ["t0"])]


def test_a_restore_is_told_at_once_unless_somebody_waits_for_its_command(
    deployment: Deployment, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_S3_DAGSTER_URL", "https://example.com/dagster/")
    end_run(deployment, "restore__c", FAILED, **{**PERMANENT, ".dagster/kafka_s3.retries": "0"})
    assert told(deployment, hook) == []
    failed = end_run(deployment, "restore__c", FAILED, **TRANSIENT)
    [(stage, title, _)] = told(deployment, hook)
    assert (stage, title) == ("began", "connector c: restore fails")
    assert not hook.taken[0]["heals_by_itself"], "nobody asks for a restore again"
    assert hook.taken[0]["run_url"] == f"https://example.com/dagster/runs/{failed}"


def test_a_receiver_that_is_down_hears_each_thing_once_when_it_is_back(
    deployment: Deployment, hook: Webhook, mailed: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers_with = 503
    evaluate(deployment, "t0", passed=False)
    with caplog.at_level(logging.DEBUG):
        found = deployment.tick()
        assert "webhook at 127.0.0.1: answered 503" in str(found.skip_reason)
        assert len(mailed.mails) == 1, "one receiver does not wait for the other"
        for _ in range(2):
            with pytest.raises(TransientError, match="answered 503") as raised:
                deployment.tick()  # red: the cursor holds all that is known
    assert "token-of-the-hook" not in caplog.text + str(found.skip_reason) + str(raised.value)
    hook.answers_with = 200
    mailed.refuses = "451 no room"
    assert told(deployment, hook) == [("began", CHECK, ["t0"])]
    assert len(mailed.mails) == 1

    evaluate(deployment, "t0", passed=True)
    assert told(deployment, hook) == [("over", CHECK, ["t0"])]
    mailed.refuses = ""
    assert told(deployment, hook) == []
    assert [str(mail["Subject"]).partition(" connector")[0] for mail in mailed.mails] == [
        "[kafka-s3]",
        "[kafka-s3] Over:",
    ]
    assert [mail["To"] for mail in mailed.mails] == ["one@example.com, two@example.com"] * 2
    assert json.loads(deployment.cursors["alerts"])["incidents"] == {}


def test_an_address_that_is_refused_is_told_and_the_others_get_each_mail_once(
    deployment: Deployment, mailed: Mailbox
) -> None:
    mailed.unknown = "two@example.com"
    evaluate(deployment, "t0", passed=False)
    refusal = "takes no mail for two@example.com (550 5.1.1)"
    assert refusal in str(deployment.tick().skip_reason)
    deployment.tick()
    assert len(mailed.mails) == 1
    tested = CliRunner().invoke(main, ["test-alert"])
    assert (tested.exit_code, refusal in tested.output) == (1, True)


def test_what_begins_and_ends_while_nobody_can_be_told_is_one_message(deployment: Deployment, hook: Webhook) -> None:
    hook.answers_with = 503
    for passed in (False, True, False, True):
        evaluate(deployment, "t0", passed=passed)
        deployment.tick()
    hook.answers_with = 200
    assert told(deployment, hook) == [("over", CHECK, ["t0"])]
    assert told(deployment, hook) == []


def end_restore(deployment: Deployment, kind: DagsterEventType, topic: str) -> str:
    """A restore of a topic that ended so. Nobody waits for it."""
    return end_run(deployment, "restore__c", kind, topic, group="restored", **(PERMANENT if kind is FAILED else {}))


def test_a_restore_of_another_topic_that_fails_too_is_told(deployment: Deployment, hook: Webhook) -> None:
    """Nobody asks for it again, so it is no part of what was told before."""
    title = "connector c: restore fails"
    end_restore(deployment, FAILED, "t0")
    assert told(deployment, hook) == [("began", title, ["t0"])]
    end_restore(deployment, FAILED, "t0")
    assert told(deployment, hook) == [], "it was tried again, and whoever did knows"
    end_restore(deployment, FAILED, "t1")
    assert told(deployment, hook) == [("began", title, ["t0", "t1"])]
    assert hook.taken[0]["id"] != hook.taken[1]["id"]
    end_restore(deployment, SUCCEEDED, "t0")
    assert told(deployment, hook) == []
    end_restore(deployment, FAILED, "t2")
    assert told(deployment, hook) == [("began", title, ["t1", "t2"])]
    for topic in ("t1", "t2"):
        end_restore(deployment, SUCCEEDED, topic)
    assert told(deployment, hook) == [("over", title, ["t1", "t2"])]


def test_a_topic_that_joins_an_incident_of_long_ago_is_told(
    deployment: Deployment, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody left open for days must not hide what fails now."""
    for topic in ("t0", "t1"):
        evaluate(deployment, topic, passed=False)
        found = told(deployment, hook)
    assert found == [], "both at once are one incident"
    monkeypatch.setattr("kafka_s3_platform.operate.alerts.incidents.CALM_SECONDS", 0.0)
    assert told(deployment, hook) == [("began", CHECK, ["t0", "t1"])]
    evaluate(deployment, "t0", passed=True)
    assert told(deployment, hook) == []
    evaluate(deployment, "t0", passed=False)
    assert told(deployment, hook) == [], "it was told already"
    evaluate(deployment, "t0", passed=True)
    evaluate(deployment, "t2", passed=False)
    assert told(deployment, hook) == [("began", CHECK, ["t1", "t2"])]
    assert len({document["id"] for document in hook.taken}) == len(hook.taken)


def test_a_failed_run_that_is_deleted_is_over(deployment: Deployment, hook: Webhook) -> None:
    """As `kafka-s3 health` says: of a restore that nobody needs any more, nobody would ever hear that it is over."""
    mistyped = end_restore(deployment, FAILED, "t0")
    assert told(deployment, hook) == [("began", "connector c: restore fails", ["t0"])]
    deployment.instance.delete_run(mistyped)
    assert told(deployment, hook) == [("over", "connector c: restore fails", ["t0"])]
    assert told(deployment, hook) == []


@pytest.mark.parametrize("status", [302, 404])
def test_only_an_answer_that_the_webhook_took_it_counts(deployment: Deployment, hook: Webhook, status: int) -> None:
    hook.answers_with = status
    evaluate(deployment, "t0", passed=False)
    assert f"answered {status}" in str(deployment.tick().skip_reason)
    hook.answers_with = 200
    assert len(told(deployment, hook)) == 1


def test_a_receiver_that_hangs_ends_no_tick(
    deployment: Deployment, hook: Webhook, mailed: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.operate.alerts.receivers.SEND_SECONDS", 1.5)
    hook.seconds = 4.0
    evaluate(deployment, "t0", passed=False)
    assert "no answer after 1.5 s" in str(deployment.tick().skip_reason)
    assert len(mailed.mails) == 1


def test_a_broken_connector_file_is_told_and_its_connector_is_no_longer_watched(
    deployment: Deployment, folder: Path, hook: Webhook
) -> None:
    evaluate(deployment, "t0", passed=False)
    deployment.tick("connector_files")
    assert told(deployment, hook) == [("began", CHECK, ["t0"])]
    write(folder, "c", "t0", **{"flush.sise": "3"})
    reason = "1 key refused: flush.sise: unknown key; did you mean flush.size?"
    broken = f"[KS-CONFIG] {folder / 'c.json'}: {reason}"
    deployment.tick("connector_files")
    assert told(deployment, hook) == [
        ("began", f"a connector file does not load: {broken}", []),
        ("gone", CHECK, ["t0"]),
    ]
    assert "did you mean flush.size?" in hook.taken[1]["error"]
    write(folder, "c", ",".join(TOPICS))
    deployment.tick("connector_files")
    assert told(deployment, hook) == [
        ("began", CHECK, ["t0"]),
        ("over", f"a connector file does not load: {broken}", []),
    ]


def test_without_a_receiver_nothing_is_done_and_with_a_mistyped_one_the_tick_fails(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(deployment, "t0", passed=False)
    assert deployment.tick().skip_reason is not None
    assert deployment.cursors == {}
    monkeypatch.setenv("KAFKA_S3_ALERT_WEBHOOK", "http://127.0.0.1/token")
    with pytest.raises(ConfigError, match="KAFKA_S3_ALERT_WEBHOOK: is unknown"):
        deployment.tick()


@pytest.fixture
def deployed(dagster_yaml: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """On the storage of development, and on that of servers."""
    (tmp_path / "dagster.yaml").write_text(dagster_yaml)
    monkeypatch.setenv("DAGSTER_COMPUTE_LOGS_BUCKET", "logs")
    with dg.DagsterInstance.get() as found:
        yield Deployment(found)


def test_a_check_that_a_run_is_about_to_evaluate_is_as_it_was(deployed: Deployment, hook: Webhook) -> None:
    evaluate(deployed, "t0", passed=False)
    evaluate(deployed, "t1", passed=True)
    assert told(deployed, hook) == [("began", CHECK, ["t0"])]
    run = dg.DagsterRun(job_name="archive__c", status=dg.DagsterRunStatus.STARTED)
    deployed.instance.add_run(run)
    for topic in ("t0", "t1"):
        planned = dg.DagsterEvent(
            event_type_value=DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
            job_name="archive__c",
            event_specific_data=AssetCheckEvaluationPlanned(
                asset_key=dg.AssetKey(["c", "hourly", topic]), check_name=HOURLY_CHECK
            ),
        )
        deployed.instance.report_dagster_event(planned, run.run_id)
    assert told(deployed, hook) == []
    end_run(deployed, "archive__c", FAILED, **PERMANENT)
    assert [title for _, title, _ in told(deployed, hook)] == [ARCHIVE]


EMAIL = {"EMAIL_TO": "one@example.com", "EMAIL_FROM": "archive@example.com", "SMTP_HOST": "localhost"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secured(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server with TLS and a login, whose authority this process trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.both)
    with mailbox(context) as (found, port):
        own = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(port), "SMTP_USER": "archive", "SMTP_PASSWORD": "right-word"}
        set_alerts(monkeypatch, **{**EMAIL, **own})
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        yield found


def set_alerts(monkeypatch: pytest.MonkeyPatch, **env: str) -> None:
    for name, value in env.items():
        monkeypatch.setenv(f"KAFKA_S3_ALERT_{name}", value)


def test_the_command_shows_that_each_receiver_takes_a_message(secured: Mailbox, hook: Webhook) -> None:
    told = CliRunner().invoke(main, ["test-alert"])
    # the mail server logs there, too
    said = told.output.splitlines()[-2:]
    assert (told.exit_code, said) == (0, ["webhook: took the test message", "email: took the test message"])
    [mail] = secured.mails
    assert (secured.logins, secured.was_secret) == ([(b"archive", b"right-word")], [True])
    assert (mail["From"], mail["To"]) == ("archive@example.com", "one@example.com")
    assert hook.taken[0]["event"] == "test"
    assert hook.taken[0]["text"].splitlines() == mail.get_content().splitlines()


def test_what_goes_wrong_is_told_without_secrets(
    secured: Mailbox, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.answers_with = 403
    set_alerts(monkeypatch, SMTP_PASSWORD="wrong-word")
    told = CliRunner().invoke(main, ["test-alert"])
    assert told.exit_code == 1
    assert "webhook at 127.0.0.1: answered 403" in told.output
    assert "answered 535 5.7.8 (SMTPAuthenticationError); its own log says why" in told.output
    # as it is, and as AUTH PLAIN and AUTH LOGIN send it
    login = [b64encode(text).decode() for text in (b"\0archive\0wrong-word", b"wrong-word")]
    for secret in ("token-of-the-hook", "wrong-word", *login, "says no"):
        assert secret not in told.output + "".join(traceback.format_exception(told.exception))
    tried = len(secured.logins)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "CERTIFICATE_VERIFY_FAILED" in CliRunner().invoke(main, ["test-alert"]).output
    assert len(secured.logins) == tried > 0, "no password is sent to a server that nobody knows"


def test_a_reason_phrase_that_is_the_url_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/services/token-of-the-hook"
        set_alerts(monkeypatch, WEBHOOK_URL=url)
        threads.submit(answer, server, f"HTTP/1.1 404 no handler for {url} {'x' * 3000}\r\nContent-Length: 0\r\n\r\n")
        told = CliRunner().invoke(main, ["test-alert"])
    assert "webhook at 127.0.0.1: answered 404 Not Found. Check" in told.output
    trace = "".join(traceback.format_exception(told.exception))
    assert "token-of-the-hook" not in told.output + trace
    assert "xxx" not in told.output + trace


def answer(server: socket.socket, text: str) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(text.encode())


def test_mentions_and_links_of_an_error_do_nothing_in_slack_and_mattermost(hook: Webhook) -> None:
    hostile = "@all x @channel (@here) [a](https://b.example) [a][b] [b]: https://b.example <!channel> kafka@EXAMPLE"
    [receiver] = make_receivers(read_alert_settings(os.environ))
    receiver.send(Message("id", "began", "subject", hostile))
    text = hook.taken[0]["text"]
    assert not re.search(r"@(all|channel|here)|\]\(|\]\[|\]:|<", text)
    assert text.replace("\N{WORD JOINER}", "") == html.escape(hostile)
    assert "kafka@EXAMPLE" in text, "only what is a mention is changed"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"WEBHOOK_URL": "hooks.example.com/secret-path"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK_URL": "https://me:secret-path@hooks.example.com"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK_URL": "https://hooks.example.com:port/secret-path"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK": "secret-path"}, r"WEBHOOK: is unknown"),
        ({**EMAIL, "EMAIL_TO": "one@example.com, two"}, r"EMAIL_TO: .*'two' is no address"),
        ({**EMAIL, "EMAIL_FROM": ""}, r"set KAFKA_S3_ALERT_EMAIL_FROM"),
        ({**EMAIL, "SMTP_HOST": ""}, r"set KAFKA_S3_ALERT_SMTP_HOST"),
        ({**EMAIL, "SMTP_PORT": "smtp"}, r"SMTP_PORT: "),
        ({**EMAIL, "SMTP_SECURITY": "ssl"}, r"SMTP_SECURITY: .*'starttls', 'tls' or 'none'"),
        ({**EMAIL, "SMTP_PASSWORD": "secret-path"}, r"set both .*SMTP_USER"),
        (
            {**EMAIL, "SMTP_USER": "me", "SMTP_PASSWORD": "secret-path", "SMTP_SECURITY": "none"},
            r"would send the password in clear text",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read_alert_settings({f"KAFKA_S3_ALERT_{name}": value for name, value in env.items()})
    assert "secret-path" not in "".join(traceback.format_exception(raised.value))
