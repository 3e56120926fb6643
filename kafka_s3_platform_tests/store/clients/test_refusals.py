"""What a store refuses for good is no outage, for objects and index alike, and is told with what to do."""

from collections.abc import Iterator
from functools import partial

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ClockError,
    ConfigError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.store.errors import RefusedRequestError
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, refusal, running


class RefusingStore(HttpServer):
    """Refuses everything, as it is told to. A HEAD's answer has no body, and so no code."""

    status, code = 0, ""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(self.status) if request.method == "HEAD" else refusal(self.status, self.code)


@pytest.fixture(scope="module")
def server() -> Iterator[RefusingStore]:
    with running(RefusingStore()) as server:
        yield server


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice"),
    [
        (400, "AuthorizationHeaderMalformed", ConfigError, r"expects another region.*correct s3\.region"),
        (400, "IllegalLocationConstraintException", ConfigError, r"another region.*correct s3\.region or store\.url"),
        (400, "InvalidRequest", RefusedRequestError, "by the test's proxy.*refused the request itself"),
        (400, "ExpiredToken", AuthorizationError, "session token has expired"),
        (403, "AccessDenied", AuthorizationError, r"lacks .*docs/iam\.md"),
        (403, "RequestTimeTooSkewed", ClockError, "clock"),
        (405, "MethodNotAllowed", RefusedRequestError, "by the test's proxy.*refused the request itself"),
        (501, "NotImplemented", ConfigError, "does not know this request"),
        (400, "RequestTimeout", StoreUnavailableError, "run again"),
        (429, "SlowDown", StoreUnavailableError, "run again"),
        (400, "ThrottlingException", StoreUnavailableError, "run again"),
        (503, "SlowDown", StoreUnavailableError, "run again"),
    ],
)
def test_an_answer_is_the_same_kind_of_error_for_objects_and_index(
    server: RefusingStore, status: int, code: str, kind: type[PlatformError], advice: str
) -> None:
    server.status, server.code = status, code
    with pytest.raises(PlatformError, match=rf"answered {status} {code}\b.*{advice}") as of_object:
        ObjectStore(settings(server)).get("key")
    with pytest.raises(PlatformError, match=rf"answered {status} {code}\b.*{advice}") as of_index:
        ConnectorIndex(settings(server), "_index", "c").peek()
    assert type(of_object.value) is type(of_index.value) is kind


def test_an_index_in_another_region_is_told_as_that(server: RefusingStore) -> None:
    server.status, server.code = 301, "PermanentRedirect"
    with pytest.raises(ConfigError, match=r"another region.*correct s3\.region or store\.url"):
        ConnectorIndex(settings(server), "_index", "c").peek()


class ExpectsTls(HttpServer):
    """Answers plain HTTP as servers of Go do at a port for TLS."""

    def answer(self, request: HttpRequest) -> HttpAnswer:  # noqa: ARG002
        return HttpAnswer(400, (("Content-Type", "text/plain"),), b"Client sent an HTTP request to an HTTPS server.\n")


def test_a_server_that_expected_tls_is_suspected_of_it() -> None:
    with running(ExpectsTls()) as server:
        store = settings(server)
        for use in (partial(ObjectStore(store).get, "key"), ConnectorIndex(store, "_index", "c").peek):
            with pytest.raises(RefusedRequestError, match=r"answered 400.*speaks TLS, write https://"):
                use()


def settings(server: HttpServer) -> StoreSettings:
    keys = {"access_key_id": SecretStr("a"), "secret_access_key": SecretStr("s")}
    return StoreSettings(bucket="own", region="eu-central-1", endpoint_url=server.endpoint, max_retries=0).model_copy(
        update=keys
    )
