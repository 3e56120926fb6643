"""What a connector file says of its store holds for objects and index alike, whatever the environment says.

A server that only records what it is asked is the store of the file, another one that of the environment.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.store.client import find_bucket_url
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_rows import TABLE_SCHEMA
from kafka_s3_platform.core.store.index_table import build_delta_options
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, refusal, running
from kafka_s3_platform_tests.store.servers import forget_clients

KEY = "AKIAOWNOWNOWN123"
OTHER = "the other store's URL"


class EmptyStore(HttpServer):
    """A store that has nothing, and takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[HttpRequest] = []

    def answer(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request)
        if request.method == "PUT":
            return HttpAnswer(200, (("ETag", '"1"'),))
        if "list-type=2" in request.path:
            listing = "<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>"
            return HttpAnswer(200, (("Content-Type", "application/xml"),), listing.encode())
        return HttpAnswer(404) if request.method == "HEAD" else refusal(404, "NoSuchKey")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(no_credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[EmptyStore, EmptyStore]]:
    forget_clients()
    with running(EmptyStore()) as own, running(EmptyStore()) as other:
        yield own, other
    forget_clients()


@pytest.fixture
def own(servers: tuple[EmptyStore, EmptyStore]) -> EmptyStore:
    servers[0].requests.clear()
    return servers[0]


@pytest.fixture
def other(servers: tuple[EmptyStore, EmptyStore]) -> EmptyStore:
    servers[1].requests.clear()
    return servers[1]


def settings(url: str | None, **changes: Any) -> StoreSettings:
    keys: dict[str, Any] = {"access_key_id": SecretStr(KEY), "secret_access_key": SecretStr("s"), "max_retries": 0}
    return StoreSettings(**{"bucket": "own", "region": "eu-central-1", "endpoint_url": url, **keys, **changes})


def describe(request: HttpRequest) -> tuple[object, ...]:
    """What of a request depends on settings. Names of data files and signatures are never the same twice."""
    scope = re.search(r"Credential=(\w+)/\d+/([\w/-]+)", request.headers.get("authorization", ""))
    told = {name: request.headers.get(name) for name in ("content-type", "host", "if-none-match")}
    payload = request.headers.get("x-amz-content-sha256", "") in {"UNSIGNED-PAYLOAD", ""}
    return request.method, request.url, scope and scope.groups(), sorted(request.headers), sorted(told.items()), payload


def use_index(store: StoreSettings, server: EmptyStore) -> list[tuple[object, ...]]:
    """Look for the index and create it. Return what the store was asked."""
    server.requests.clear()
    index = ConnectorIndex(store, "_index", "c")
    assert index.peek() is None
    with suppress(TableNotFoundError):  # not to be seen, though it was written
        DeltaTable.create(index.uri, TABLE_SCHEMA, mode="ignore", storage_options=index.table.options)
    assert any("_delta_log" in request.url for request in server.requests if request.method == "PUT")
    return sorted(map(describe, server.requests), key=repr)


def use_both(store: StoreSettings, server: EmptyStore) -> list[tuple[object, ...]]:
    """Read and write an object and the index, as a new process does. Return what the store was asked."""
    forget_clients()
    asked = use_index(store, server)
    server.requests.clear()
    assert ObjectStore(store).head("a") is None
    ObjectStore(store).put_new("a", b"1")
    return asked + sorted(map(describe, server.requests), key=repr)


OF_OPTIONS = {
    "aws_endpoint": OTHER,
    "aws_endpoint_url": OTHER,
    "aws_region": "us-gov-west-1",
    "aws_default_region": "us-gov-west-1",
    "aws_bucket": "another",
    "aws_bucket_name": "another",
    "aws_access_key_id": "AKIAANOTHER12345",
    "aws_secret_access_key": "another",
    "aws_s3_express": "true",
    "aws_conditional_put": "disabled",
    "aws_copy_if_not_exists": "nonsense",
    "aws_skip_signature": "true",
    "aws_unsigned_payload": "true",
    "aws_checksum_algorithm": "nonsense",
    "aws_virtual_hosted_style_request": "false",
    "aws_request_payer": "true",
    "aws_disable_tagging": "nonsense",
    "aws_disable_bulk_delete": "nonsense",
    "aws_imdsv1_fallback": "nonsense",
    "aws_metadata_endpoint": OTHER,
    "aws_container_credentials_relative_uri": "/credentials",
    "aws_container_credentials_full_uri": OTHER,
    "aws_container_authorization_token_file": "/nonexistent",
    "aws_web_identity_token_file": "/nonexistent",
    "aws_role_arn": "arn:aws:iam::123456789012:role/another",
    "aws_role_session_name": "another",
    "aws_endpoint_url_sts": OTHER,
    "aws_sse_kms_key_id": "another",
    "aws_sse_bucket_key_enabled": "true",
    "aws_sse_customer_key_base64": "another",
    "aws_allow_http": "false",
    "aws_allow_invalid_certificates": "nonsense",
    "aws_disable_system_certificates": "nonsense",
    "aws_connect_timeout": "nonsense",
    "aws_timeout": "nonsense",
    "aws_read_timeout": "nonsense",
    "aws_default_content_type": "text/plain",
    "aws_user_agent": "another",
    "aws_http1_only": "false",
    "aws_http2_only": "true",
    "aws_http2_keep_alive_interval": "nonsense",
    "aws_http2_keep_alive_timeout": "nonsense",
    "aws_http2_keep_alive_while_idle": "nonsense",
    "aws_http2_max_frame_size": "nonsense",
    "aws_pool_idle_timeout": "nonsense",
    "aws_pool_max_idle_per_host": "nonsense",
    "aws_randomize_addresses": "nonsense",
    "aws_proxy_url": OTHER,
    "aws_proxy_ca_certificate": "nonsense",
    "aws_proxy_excludes": "nonsense",
}
"""Every option that delta-rs takes from the environment, with a value that would change or end its requests."""

OF_BOTH = {
    "AWS_ENDPOINT_URL": OTHER,
    "AWS_REGION": "us-gov-west-1",
    "AWS_DEFAULT_REGION": "us-gov-west-1",
    "AWS_ACCESS_KEY_ID": "AKIAANOTHER12345",
    "AWS_ENDPOINT_URL_S3": OTHER,
    "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    "AWS_IAM_ROLE_ARN": "arn:aws:iam::123456789012:role/another",
    "AWS_S3_ASSUME_ROLE_ARN": "arn:aws:iam::123456789012:role/another",
    "AWS_PROFILE": "of nobody",
    "AWS_DEFAULT_PROFILE": "of nobody",
    "AWS_CONFIG_FILE": __file__,
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_USE_DUALSTACK_ENDPOINT": "true",
    "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "legacy",
    "AWS_S3_USE_ARN_REGION": "true",
    "AWS_AUTH_SCHEME_PREFERENCE": "sigv4a",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "nonsense",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "nonsense",
    "AWS_DEFAULTS_MODE": "mobile",
    "AWS_MAX_ATTEMPTS": "9",
    "AWS_RETRY_MODE": "adaptive",
}
"""What else delta-rs, or boto3, reads."""


@pytest.mark.parametrize(
    ("use", "variables"),
    [
        (use_index, {name.upper(): value for name, value in OF_OPTIONS.items()}),
        (use_index, {name.removeprefix("aws_").upper(): value for name, value in OF_OPTIONS.items()}),
        (use_both, OF_BOTH),
    ],
    ids=["of options", "of options, in short", "of both"],
)
def test_no_variable_changes_what_is_asked_for(
    own: EmptyStore,
    other: EmptyStore,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[StoreSettings, EmptyStore], object],
    variables: dict[str, str],
) -> None:
    """All are set at once: none has an effect, so none hides another's."""
    store = settings(own.endpoint)
    expected = use(store, own)

    def check_unchanged(names: Collection[str]) -> None:
        with monkeypatch.context() as patch:
            for name in names:
                patch.setenv(name, other.endpoint if variables[name] == OTHER else variables[name])
            assert use(store, own) == expected, names
            assert not other.requests, names

    try:
        check_unchanged(variables)
    except Exception:
        for name in variables:
            check_unchanged([name])
        raise


def test_a_profile_changes_nothing_either(own: EmptyStore, other: EmptyStore, tmp_path: Path) -> None:
    store = settings(own.endpoint)
    expected = use_both(store, own)
    endpoint = f"endpoint_url = {other.endpoint}\n"
    (tmp_path / "config").write_text(
        f"[default]\nservices = all\nregion = us-gov-west-1\nuse_fips_endpoint = true\n{endpoint}"
        "s3 =\n  addressing_style = virtual\n  use_accelerate_endpoint = true\n  signature_version = s3\n"
        "  payload_signing_enabled = false\n"
        f"[services all]\ns3 =\n  {endpoint}"
    )
    assert use_both(store, own) == expected
    assert not other.requests


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("AWS_SESSION_TOKEN", "another's", "session token of an access key that has none"),
        ("token", "another's", "session token of an access key that has none"),
        ("SERVER_SIDE_ENCRYPTION", "AES256", "the connector file does not set it"),
        ("AWS_FORCE_CREDENTIAL_LOAD", "true", "the connector file does not set it"),
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb", "the connector file does not set it"),
    ],
)
def test_a_variable_that_no_setting_can_outdo_is_refused(
    own: EmptyStore, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"environment variable {name} .*{why}.*Unset it"):
        ConnectorIndex(settings(own.endpoint), "_index", "c").peek()
    assert not own.requests


@pytest.mark.parametrize("name", ["AWS_SSE_KMS_KEY_ID", "SSE_BUCKET_KEY_ENABLED"])
def test_a_variable_of_encryption_is_refused_where_it_would_count(
    own: EmptyStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "true")
    with pytest.raises(ConfigError, match=rf"environment variable {name} .*Unset it"):
        ConnectorIndex(settings(own.endpoint, encryption="AES256"), "_index", "c").peek()


def test_a_variable_that_boto3_cannot_read_is_told_and_what_to_correct(
    own: EmptyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_clients()
    monkeypatch.setenv("AWS_DEFAULTS_MODE", "nonsense")
    for use in (lambda store: ObjectStore(store).get("key"), lambda store: ConnectorIndex(store, "_index", "c").peek()):
        with pytest.raises(ConfigError, match=r"nonsense.*Correct the environment's variables"):
            use(settings(own.endpoint))


def test_a_session_token_of_the_file_wins(own: EmptyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = settings(own.endpoint, session_token=SecretStr("own"))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    use_both(store, own)
    assert {request.headers.get("x-amz-security-token") for request in own.requests} == {"own"}


# One address for both


@pytest.mark.parametrize(
    ("variables", "changes", "url"),
    [
        ({}, {}, "https://s3.eu-central-1.amazonaws.com/own"),
        ({}, {"path_style": False}, "https://own.s3.eu-central-1.amazonaws.com"),
        ({}, {"region": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn/own"),
        ({}, {"accelerate": True, "path_style": False}, "https://own.s3-accelerate.amazonaws.com"),
        ({}, {"endpoint_url": "http://127.0.0.1:9000", "path_style": False}, "http://127.0.0.1:9000/own"),
        ({}, {"endpoint_url": "https://s3.example.com", "path_style": False}, "https://own.s3.example.com"),
        ({"AWS_ENDPOINT_URL_S3": "http://other:1"}, {}, "https://s3.eu-central-1.amazonaws.com/own"),
        ({"AWS_ENDPOINT_URL": "http://other:1"}, {}, "https://s3.eu-central-1.amazonaws.com/own"),
        (
            {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "legacy"},
            {"region": "us-east-1"},
            "https://s3.us-east-1.amazonaws.com/own",
        ),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, {}, "https://s3-fips.eu-central-1.amazonaws.com/own"),
    ],
)
def test_the_index_is_where_the_objects_are(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], changes: dict[str, Any], url: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    forget_clients()
    store = settings(None, **changes)
    options = build_delta_options(store)
    assert find_bucket_url(store) == options["aws_endpoint"] == options["aws_endpoint_url_s3"] == url
    assert options["allow_http"] == str(url.startswith("http:")).lower()


@pytest.mark.parametrize("secured", ["http", "https"])
def test_a_proxy_of_the_environment_is_the_objects_and_the_indexs(
    monkeypatch: pytest.MonkeyPatch, secured: str
) -> None:
    monkeypatch.setenv(f"{secured}_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", "inside.example.com")
    assert build_delta_options(settings(f"{secured}://s3.example.com"))["proxy_url"] == "http://proxy.example.com:3128"
    for direct in (f"{secured}://inside.example.com", f"{'http' if secured == 'https' else 'https'}://s3.example.com"):
        assert build_delta_options(settings(direct))["proxy_excludes"].startswith("*")


def test_a_proxy_of_the_file_is_used_whatever_the_environment_leaves_out(
    own: EmptyStore, other: EmptyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_EXCLUDES", "*,0.0.0.0/0")
    monkeypatch.setenv("no_proxy", "*")
    store = settings(own.endpoint, proxy_url=SecretStr(other.endpoint))
    use_both(store, other)
    assert not own.requests


def test_each_put_carries_a_checksum_as_a_bucket_with_object_lock_asks_for(own: EmptyStore) -> None:
    forget_clients()
    use_index(settings(own.endpoint), own)
    ObjectStore(settings(own.endpoint)).put_new("a", b"1")
    puts = [request for request in own.requests if request.method == "PUT"]
    assert len(puts) > 1
    for request in puts:
        assert any(name.startswith("x-amz-checksum-") for name in request.headers), request.url


def test_each_request_for_an_index_is_for_its_folder_whatever_a_file_may_call_it(own: EmptyStore) -> None:
    folder = "a!b/$&'()+,-.c/:;=@_D9"
    index = ConnectorIndex(settings(own.endpoint), folder, "c")
    assert index.peek() is None
    with suppress(TableNotFoundError):
        DeltaTable.create(index.uri, TABLE_SCHEMA, mode="ignore", storage_options=index.table.options)
    listed = f"/own?list-type=2&prefix={folder}/connector=c/_delta_log/"
    assert {request.method for request in own.requests} == {"GET", "PUT"}
    for request in own.requests:
        assert request.target.startswith((listed, f"/own/{folder}/connector=c/_delta_log/")), request.target
