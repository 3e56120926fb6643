"""`kafka-s3 serve`: a status page, a health check and metrics, of what one look has found."""

import json
import re
import resource
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from html import escape, unescape
from urllib.parse import quote, urljoin

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.plugins import ConnectorHealth
from kafka_s3_platform_tests.cli.conftest import KafkaS3, connect_late_topic, make_environment
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, topic_of
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.serving import Server, serving
from kafka_s3_platform_tests.support import Sent, archived, produce

HOSTILE = "<img src=x onerror=alert(1)>"


class NothingIsWell:
    """A check of a user's."""

    def find_reasons(self, connectors: Sequence[ConnectorHealth]) -> Iterable[str]:
        return [f"{each.connector} has {HOSTILE}" for each in connectors if each.topics]


def serving_in(kafka_s3: KafkaS3, *options: str, **variables: str) -> AbstractContextManager[Server]:
    return serving(kafka_s3.folder, {**make_environment(kafka_s3.folder), **variables}, *options)


@pytest.fixture
def config(kafka_s3_without_spark: KafkaS3, lab: Lab, proxy: FaultyProxy) -> ConnectorConfig:
    """Connector `c`, whose store is behind a proxy. Its topic has a record of 14 hours ago, and one of this hour."""
    store = lab.store.model_copy(update={"endpoint_url": proxy.endpoint})
    return connect_late_topic(kafka_s3_without_spark, lab.kafka, store, lab.create_topic(), 14)


def test_a_new_topic_turns_green_and_an_outage_is_told_at_once(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    topic = config.topics[0]
    with serving_in(kafka_s3_without_spark) as server:
        late = server.wait(lambda found: ("kafka_s3_lag_offsets", topic) in found)
        assert (late["kafka_s3_lag_offsets", topic], late["kafka_s3_at_risk_level", topic]) == (2, 1)
        assert late["kafka_s3_oldest_incomplete_hour_timestamp_seconds", topic] == ago(config, 14).timestamp()
        assert ("kafka_s3_newest_complete_hour_timestamp_seconds", topic) not in late
        status, kind, body = server.get("/health")
        assert (status, kind, json.loads(body)["reasons"]) == (200, "application/json", []), "its first minutes"
        page = server.get("/")[2]
        assert page.index("ended 13 h") < page.index("<h2>Topics</h2>")
        assert "Nothing of this topic is archived yet" in server.get(f"/hours/c/{topic}")[2]

        archived(config)
        well = server.wait(lambda found: found.get(("kafka_s3_at_risk_level", topic)) == 0)
        assert well["kafka_s3_newest_complete_hour_timestamp_seconds", topic] == ago(config, 1).timestamp()
        names = (
            "archived_records_total",
            "archived_bytes_total",
            "segments",
            "late_records_total",
            "dead_letters_total",
        )
        assert [well[f"kafka_s3_{name}", topic] for name in names] == [2, 2, 2, 0, 0]
        assert well["kafka_s3_segment_bytes", topic] > 0
        assert (server.get("/health")[0], "nothing is at risk" in server.get("/")[2]) == (200, True)
        cells = states_of(server.get(f"/hours/c/{topic}")[2])
        assert [cells[topic_of(config).hours.key(ago(config, h))] for h in (14, 13, 1, 0)] == [
            "complete",
            "empty",
            "empty",
            "open",
        ]
        assert len(states_of(server.get(f"/hours/c/{topic}?days=1&kafka_partition=0")[2])) <= 24
        for nowhere in ("c/other", "d/" + topic, f"{topic}?days=0", f"c/{topic}?days=9999", f"c/{topic}?days=%3Cb%3E"):
            assert server.get(f"/hours/{nowhere}")[0] == 404

        proxy.refuse("GET", "", 503, "SlowDown")
        down = server.wait(lambda found: found["kafka_s3_look_success", ""] == 0)
        assert (down["kafka_s3_store_up", ""], down["kafka_s3_kafka_up", ""]) == (0, 1)
        assert down["kafka_s3_last_good_look_timestamp_seconds", ""] < down["kafka_s3_last_look_timestamp_seconds", ""]
        assert not [name for name, _ in down if "newest_complete" in name or "archived" in name]
        told = time.monotonic()
        status, _, body = server.get("/health")
        assert (status, json.loads(body)["reasons"][0]["check"]) == (503, "reachable")
        assert time.monotonic() - told < 4
        proxy.clear()
        server.wait(lambda found: found["kafka_s3_look_success", ""] == 1)


def states_of(page: str) -> dict[str, str]:
    """Hour -> state, as the cells of the page tell screen readers. Each links its hour in Dagster."""
    found = re.findall(
        r'href="http://127\.0\.0\.1:3000/assets/([^"]+)" title="[^"]*" aria-label="([^:]+:\d\d): ([a-z ]+),', page
    )
    assert all(path.endswith(f"view=partitions&amp;partition={quote(hour)}") for path, hour, _ in found)
    return {hour: state for _, hour, state in found}


def links_of(page: str, place: str) -> list[str]:
    """Where the page's links to this server lead from `place`. None of them begins at the server's root."""
    links = [unescape(link) for link in re.findall(r'href="([^"]+)"', page) if not link.startswith("http")]
    assert not [link for link in links if link.startswith("/")]
    return sorted({urljoin(place, link) for link in links})


def test_thresholds_paths_and_checks_of_ones_own_come_from_options_and_the_environment(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    archived(config)
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, 0) + timedelta(seconds=2))] * 3)
    check = f"{__name__}.{NothingIsWell.__name__}"
    options = ("--healthy-lag", "2", "--health-path", "/healthz", "--check", check)
    with serving_in(kafka_s3_without_spark, *options, KAFKA_S3_SERVE_PAGE_PATH="/status") as server:
        server.wait(lambda found: bool(found.get(("kafka_s3_look_success", ""))))
        assert (server.get("/health")[0], server.get("/")[0]) == (404, 404)
        status, _, body = server.get("/healthz")
        reasons = {reason["check"]: reason["reason"] for reason in json.loads(body)["reasons"]}
        assert (status, {*reasons}) == (503, {"lag", check})
        assert "3 offsets behind the latest one, 2 are allowed" in reasons["lag"]
        page = server.get("/status")[2]
        # a proxy may serve all of it below a path of its own
        [hours, closed] = links_of(page, "/status")
        assert (hours, closed) == (f"/status/hours/c/{config.topics[0]}", "/status?open=#c")
        others = [f"{hours}?days={days}" for days in (31, 7, 92)]
        assert links_of(server.get(hours)[2], hours) == ["/status", *others]
        assert HOSTILE in reasons[check]
        assert HOSTILE not in page
        assert "&lt;img" in page


def test_a_page_of_others_and_a_connector_file_cannot_do_harm(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    folder = kafka_s3_without_spark.folder / "connectors"
    given = json.loads((folder / "c.json").read_text())
    for name in (HOSTILE, 'a"b\n\\c', "x\x1b[2J\u202e"):
        hostile = {**given, "name": name, "flush.size": HOSTILE, "topics.dir": "other"}
        (folder / f"{len(name)}.json").write_text(json.dumps(hostile))
    (folder / "c.properties").write_text("no connector")
    with serving_in(kafka_s3_without_spark) as server:
        server.wait(lambda found: ("kafka_s3_lag_offsets", config.topics[0]) in found)
        page = server.get("/")[2]
        assert "<img" not in page
        assert "x\\x1b[2J\\u202e" in page, "names of files are printable, as errors are"
        assert f"<b>{escape(HOSTILE)}</b>: not known" in page, "no name that is allowed could do harm"
        assert given["aws.secret.access.key"] not in page + server.get("/health")[2] + server.get("/metrics")[2]
        assert server.get("/", host="attacker.example")[0] == 403
        families = [*text_string_to_metric_families(server.get("/metrics")[2])]
        labels = [(s.name, *s.labels.items()) for family in families for s in family.samples]
        assert len(labels) == len(set(labels)), "Prometheus refuses a scrape with a series twice"


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process open more files than the server, which was started before, may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def measure_answers(server: Server) -> float:
    """The seconds that the longer one of health check and metrics took, of which each is a whole answer."""
    seconds = []
    for path, word in (("/health", '"reasons"'), ("/metrics", "kafka_s3_look_success")):
        began = time.monotonic()
        assert word in server.get(path)[2]
        seconds.append(time.monotonic() - began)
    return max(seconds)


def test_neither_waiting_pages_nor_open_connections_delay_the_health_check(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    with serving_in(kafka_s3_without_spark, "--interval", "3600") as server, ThreadPoolExecutor(60) as askers:
        server.wait(lambda found: ("kafka_s3_lag_offsets", config.topics[0]) in found)
        proxy.seconds_to_answer = 15
        asked = [askers.submit(server.get, f"/hours/c/{config.topics[0]}?days={n}") for n in range(1, 61)]
        time.sleep(0.5)
        assert measure_answers(server) < 2, "60 pages wait for a store that is silent"
        ended, _ = wait(asked, 6)
        told = [page.result() for page in ended if page.exception() is None]
        assert len(told) >= 50
        assert all(status == 503 and "other pages wait for the store" in text for status, _, text in told)
        address = server.url.removeprefix("http://").split(":")
        with many_files(), ExitStack() as opened:
            for _ in range(1100):
                client = opened.enter_context(socket.create_connection((address[0], int(address[1])), 5))
                with suppress(ConnectionError):
                    client.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
            assert measure_answers(server) < 2, "1,100 connections are open, and none has asked anything"


def test_names_that_people_use_are_allowed_and_no_others(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    with serving_in(kafka_s3_without_spark, "--host", "127.0.0.1", "--allowed-host", "status.example") as server:
        for host in ("status.example", "Status.Example:80", "localhost:1", "127.0.0.1", "[::1]:9000"):
            assert server.get("/none", host=host)[0] == 404, host
        for host in (
            "attacker.example",
            "x.status.example",
            "status",
            "[::1",
            "[",
            "",
            "a b",
            "localhost@attacker.example",
        ):
            assert server.get("/none", host=host)[0] == 403, host


def test_a_class_that_is_not_allowed_and_a_port_in_use_are_refused(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    assert "KAFKA_S3_PLUGINS" in kafka_s3_without_spark("serve", "--check", "os.PathLike", status=1).stderr
    with serving_in(kafka_s3_without_spark) as server:
        port = server.url.rpartition(":")[2]
        assert f"cannot listen on 127.0.0.1:{port}" in kafka_s3_without_spark("serve", "--port", port, status=1).stderr
