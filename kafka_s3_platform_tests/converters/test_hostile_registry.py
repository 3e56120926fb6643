"""What is no registry, or a hostile one: it is named, costs less than 300 MB, and no more than its time."""

import gc
import gzip
import json
import socket
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.converters import registry
from kafka_s3_platform.connect.converters.base import ConvertedPayload
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, RegistryUnavailableError
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.hostile.servers import MIB, costing, drips, sends, serving
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, running

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def whole(body: bytes, head: bytes = OK) -> Callable[[socket.socket], None]:
    return sends(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def endless(peer: socket.socket) -> None:
    peer.sendall(OK + b"\r\n")
    while True:
        peer.sendall(b" " * MIB)


def converted(port: int, answer_seconds: int = 9, **more: str) -> ConvertedPayload:
    """A record in JSON with a schema of the registry at `port`, which it is asked for once."""
    given = {"timeout": str(answer_seconds), "max.retries": "0", **more}
    properties = {name: SecretStr(text) for name, text in given.items()}
    registry = RegistrySettings(url=f"http://127.0.0.1:{port}", properties=properties)
    settings = ConverterSettings.model_validate({"format": "JSON_SR", "registry": registry})
    return convert_rows(settings, [b"\0\0\0\0\1{}"])


@pytest.mark.parametrize(
    "build",
    [
        lambda: endless,
        lambda: whole(gzip.compress(bytes(100 * MIB)), OK + b"Content-Encoding: gzip\r\n"),
        lambda: whole(b"[" * 7 * MIB),
        lambda: whole(b"[" + b"[]," * MIB + b"[]]"),
        lambda: whole(b"7"),
        lambda: whole(b'{"schema":[],"references":7}'),
        lambda: whole(b'{"error_code":[],"message":"' + b"x" * 7 * MIB + b'"}', b"HTTP/1.1 422 No\r\n"),
    ],
    ids=["without an end", "a bomb", "deep", "many things", "a number", "other types", "a long error"],
)
def test_what_no_registry_answers_is_named_and_costs_little(
    build: Callable[[], Callable[[socket.socket], None]],
) -> None:
    answer = build()
    with serving(answer) as port, costing(300, 10), pytest.raises(ConfigError, match=f"127.0.0.1:{port}") as refused:
        converted(port)
    assert len(str(refused.value)) < 2_000


@pytest.mark.parametrize("head", [OK, OK + b"Content-Length: 1000\r\n\r\n"], ids=["in the head", "in the body"])
def test_a_registry_that_sends_a_byte_now_and_then_is_given_the_time_of_one_answer(head: bytes) -> None:
    late = pytest.raises(RegistryUnavailableError, match="no whole answer after 1 s")
    with serving(drips(head)) as port, costing(100, 5), late:
        converted(port, answer_seconds=1)


def given_tokens(port: int) -> ConvertedPayload:
    """`converted`, with a token from `port`."""
    bearer = {
        "credentials.source": "OAUTHBEARER",
        "logical.cluster": "l",
        "client.id": "i",
        "client.secret": "s",
        "scope": "o",
        "issuer.endpoint.url": f"http://127.0.0.1:{port}",
    }
    return converted(port, answer_seconds=1, **{f"bearer.auth.{name}": text for name, text in bearer.items()})


@pytest.mark.parametrize(
    ("answer", "said"),
    [(endless, "the answer has more than 8,388,608 bytes"), (drips(OK), "no whole answer after 1 s")],
    ids=["without an end", "now and then"],
)
def test_who_gives_tokens_for_a_registry_has_the_limits_of_a_registry(
    answer: Callable[[socket.socket], None], said: str
) -> None:
    with serving(answer) as port, costing(300, 10), pytest.raises(RegistryUnavailableError, match=said):
        given_tokens(port)


class LongError(HttpServer):
    """Gives no token, and says why in 7 MiB."""

    def answer(self, request: HttpRequest) -> HttpAnswer:  # noqa: ARG002
        return HttpAnswer(400, body=b'{"error":"' + b"x" * 7 * MIB + b'"}')


def test_why_there_is_no_token_for_a_registry_is_cut() -> None:
    with running(LongError()) as server, pytest.raises(RegistryUnavailableError, match="no token") as refused:
        given_tokens(server.server_port)
    assert len(str(refused.value)) < 2_000


class Registry(HttpServer):
    """One schema with `width` references; each of these has as many again where they are `deep`."""

    def __init__(self, width: int, *, deep: bool) -> None:
        super().__init__()
        self.width, self.deep, self.asked = width, deep, 0

    def answer(self, request: HttpRequest) -> HttpAnswer:
        if request.path.partition("?")[0].endswith("/versions"):
            return HttpAnswer(200, body=b'[{"subject":"s","version":1}]')
        self.asked += 1
        names = [f"{self.asked}-{n}" for n in range(self.width if self.deep or self.asked == 1 else 0)]
        references = [{"name": name, "subject": name, "version": 1} for name in names]
        found = {"schema": json.dumps({"title": self.asked}), "schemaType": "JSON", "references": references}
        return HttpAnswer(200, body=json.dumps({**found, "subject": "s", "version": 1, "id": self.asked}).encode())


@pytest.mark.parametrize(
    ("width", "deep", "said"),
    [(300, False, "more than 100 references"), (60, True, "refers to schemas that refer to others, more than")],
)
def test_a_schema_that_leads_to_very_many_schemas_fails_its_records_alone(
    width: int, deep: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.connect.converters.registry.MOST_REFERENCES", 100)
    with running(Registry(width, deep=deep)) as server, costing(300, 20):
        done = converted(server.server_port)
    assert said in done.failures[0].message
    assert server.asked <= 101


def test_a_registry_that_nobody_uses_any_more_closes_its_connection() -> None:
    """A process keeps those that it used last. A socket that nobody closes is a warning, which fails a test."""
    with running(Registry(0, deep=False)) as server:
        opened = registry.Registry(f"http://127.0.0.1:{server.server_port}", {})
        assert opened.compile_once(1, "s", lambda schema: schema.text)
        del opened
        gc.collect()
