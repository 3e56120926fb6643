"""The keys of S3: what each comes to, and what is refused and why."""

import base64
from collections.abc import Mapping

import botocore.session
import pytest

from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.config.settings import RoleSettings, StoreSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.store.credentials import Credentials
from kafka_s3_platform_tests.config.conftest import Check, Load, finding
from kafka_s3_platform_tests.conftest import present

ARN = "arn:aws:iam::123456789012:role/archive"
ROLE = {"sts.role.arn": ARN, "sts.role.session.name": "kafka"}
KEYS = {"aws.access.key.id": "id", "aws.secret.access.key": "secret"}
CUSTOMER_KEY = base64.b64encode(bytes(32)).decode()


class OwnProvider:
    """A credentials provider as a user names it in a file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    def credentials(self) -> Credentials:
        return Credentials("id", "secret")


PROFILE = ("assume-role", "sso", "shared-credentials-file", "login", "custom-process", "config-file")
OWN = {"s3.credentials.provider.class": f"{__name__}.OwnProvider"}


def store(load: Load, keys: Mapping[str, object]) -> StoreSettings:
    settings: StoreSettings = load(keys).config.store
    return settings


def test_what_a_file_leaves_out_is_as_in_confluents_sink(load: Load) -> None:
    found = store(load, {})
    assert found == StoreSettings(bucket="archive")
    assert (found.region, found.part_size, found.max_retries) == ("us-west-2", 26_214_400, 3)
    assert (found.retry_backoff_ms, found.path_style, found.ignore_tagging_errors) == (200, True, True)


def test_every_key_of_writing_is_honoured(load: Load) -> None:
    found = store(
        load,
        {
            "s3.part.retries": 7,
            "s3.retry.backoff.ms": 50,
            "s3.acl.canned": "bucket-owner-full-control",
            "s3.ssea.name": "aws:kms",
            "s3.sse.kms.key.id": "arn:aws:kms:eu-west-1:123456789012:key/1",
            "s3.object.tagging": True,
            "s3.object.tagging.key.value.pairs": "team:data, cost:a:b",
            "s3.object.behavior.on.tagging.error": "fail",
        },
    )
    assert (found.max_retries, found.retry_backoff_ms) == (7, 50)
    assert found.canned_acl == "bucket-owner-full-control"
    assert (found.encryption, found.kms_key_id) == ("aws:kms", "arn:aws:kms:eu-west-1:123456789012:key/1")
    assert (found.tagging, found.tags) == (True, (("team", "data"), ("cost", "a:b")))
    assert not found.ignore_tagging_errors


def test_a_customers_key_is_honoured_and_never_shown(load: Load, check: Check) -> None:
    keys = {"s3.ssea.name": "AES256", "s3.sse.customer.key": CUSTOMER_KEY}
    found = store(load, keys)
    assert present(found.customer_key).get_secret_value() == CUSTOMER_KEY
    assert CUSTOMER_KEY not in repr(found) + repr(check(keys))


@pytest.mark.parametrize(
    ("written", "endpoint"),
    [
        ("http://minio:9000/", "http://minio:9000"),
        ("https://storage.example.com", "https://storage.example.com"),
        ("storage.example.com:8443", "https://storage.example.com:8443"),
    ],
)
def test_any_store_is_reached_by_its_url(load: Load, written: str, endpoint: str) -> None:
    assert store(load, {"store.url": written}).endpoint_url == endpoint


def test_the_accelerated_endpoint_names_the_bucket_in_the_host(load: Load) -> None:
    found = store(load, {"s3.wan.mode": "true"})
    assert (found.accelerate, found.path_style) == (True, False)


@pytest.mark.parametrize(
    ("keys", "proxy"),
    [
        ({"s3.proxy.url": "http://proxy:3128"}, "http://proxy:3128"),
        ({"s3.proxy.url": "proxy:3128"}, "http://proxy:3128"),
        ({"s3.proxy.url": "http://me:pw@proxy:3128"}, "http://me:pw@proxy:3128"),
        (
            {"s3.proxy.url": "http://proxy:3128", "s3.proxy.user": "m/e", "s3.proxy.password": "p@w"},
            "http://m%2Fe:p%40w@proxy:3128",
        ),
    ],
)
def test_a_proxy_may_ask_for_a_login(load: Load, check: Check, keys: dict[str, str], proxy: str) -> None:
    found = store(load, keys)
    assert present(found.proxy_url).get_secret_value() == proxy
    assert "p@w" not in repr(found) + repr(check(keys))
    assert "me:pw" not in repr(found) + repr(check(keys))


def test_expect_continue_is_without_meaning(check: Check) -> None:
    report = check({"s3.http.send.expect.continue": "true"})
    assert finding(report.findings, "s3.http.send.expect.continue").support is Support.WITHOUT_MEANING


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"s3.acl.canned": "public"}, r"s3\.acl\.canned: 'public' is none of private, public-read"),
        ({"s3.ssea.name": "AES128"}, r"s3\.ssea\.name: 'AES128' is none of AES256, aws:kms"),
        ({"s3.sse.kms.key.id": "1"}, r"s3\.sse\.kms\.key\.id: without s3\.ssea\.name aws:kms"),
        (
            {"s3.sse.kms.key.id": "1", "s3.ssea.name": "AES256"},
            r"s3\.sse\.kms\.key\.id: without s3\.ssea\.name aws:kms",
        ),
        ({"s3.sse.customer.key": CUSTOMER_KEY}, r"s3\.sse\.customer\.key: without s3\.ssea\.name AES256"),
        ({"s3.sse.customer.key": "c2hvcnQ=", "s3.ssea.name": "AES256"}, r"s3\.sse\.customer\.key: is not 32 bytes"),
        ({"s3.retry.backoff.ms": -1}, r"s3\.retry\.backoff\.ms: -1 is not between 0"),
        ({"s3.region": "Mars 1"}, r"s3\.region: 'Mars 1' is no region"),
        ({"s3.object.tagging.key.value.pairs": "a:b"}, r"objects are not tagged; set s3\.object\.tagging"),
        ({"s3.object.tagging": True, "s3.object.tagging.key.value.pairs": "a"}, "'a' is no tag: name:value"),
        ({"s3.object.tagging": True, "s3.object.tagging.key.value.pairs": "a:b,a:c"}, "2 tags; up to 7 of different"),
        (
            {"s3.object.tagging": True, "s3.object.tagging.key.value.pairs": ",".join(f"k{n}:v" for n in range(8))},
            "8 tags; up to 7",
        ),
        ({"s3.object.behavior.on.tagging.error": "log"}, "'log' is none of ignore, fail"),
        ({"s3.proxy.user": "me"}, r"s3\.proxy\.user: there is no proxy; set s3\.proxy\.url"),
        ({"s3.proxy.url": "proxy:1", "s3.proxy.password": "pw"}, r"s3\.proxy\.password: whose\? set s3\.proxy\.user"),
        ({"s3.proxy.url": "http://a:b@proxy:1", "s3.proxy.user": "me"}, "names a user itself; keep one"),
        ({"s3.proxy.url": "socks5://proxy:1"}, "is no proxy such as"),
        ({"s3.wan.mode": True, "store.url": "http://minio:9000"}, r"s3\.wan\.mode: only AWS has an accelerated"),
        ({"s3.wan.mode": True, "s3.bucket.name": "a.b.c"}, "takes no bucket with a dot in its name, as a.b.c"),
        (
            {"s3.wan.mode": True, "s3.path.style.access.enabled": True},
            r"s3\.path\.style\.access\.enabled: s3\.wan\.mode needs the bucket in the host name",
        ),
        ({**ROLE, **KEYS}, r"sts\.role\.arn: aws\.access\.key\.id says where .* keep one, or, .* write it as s3\.cred"),
        ({**OWN, **KEYS}, r"s3\.credentials\.provider\.class: aws\.access\.key\.id says .* keep one"),
        ({**OWN, **ROLE}, r"s3\.credentials\.provider\.class: sts\.role\.arn says .* keep one"),
        ({"sts.role.arn": ARN}, r"sts\.role\.session\.name: required"),
        ({"s3.credentials.provider.class": "AwsAssumeRoleCredentialsProvider"}, r"sts\.role\.arn: required"),
        ({"sts.role.external.id": "x"}, r"sts\.role\.external\.id: there is no role to assume"),
        ({**ROLE, "sts.role.arn": "archive"}, r"sts\.role\.arn: 'archive' is no role such as arn:aws:iam"),
        ({**ROLE, "sts.role.session.name": "a b"}, "'a b' is no session name"),
        ({**ROLE, "aws.sts.role.session.duration": 60}, "60 is not between 900"),
        (
            {"s3.credentials.provider.class": "com.example.VaultProvider"},
            r"'com\.example\.VaultProvider' is a Java class.* leave the key out for AWS's default chain",
        ),
        (
            {"s3.credentials.provider.class": "SystemPropertiesCredentialsProvider"},
            "there is none; set AWS_ACCESS_KEY_ID",
        ),
        (
            {"s3.credentials.provider.class": "InstanceProfileCredentialsProvider", **KEYS},
            r"s3\.credentials\.provider\.class: aws\.access\.key\.id says .* keep one",
        ),
        ({"s3.credentials.provider.class": "no_such_package.Provider"}, "is no plug-in that this installation allows"),
        ({"s3.credentials.provider.vault.path": "x"}, r"vault\.path: no provider reads it"),
        ({"authentication.method": "IAM Roles"}, r"authentication\.method: provider integrations exist in Confluent"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(load: Load, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(keys)


# Credentials


@pytest.mark.parametrize(
    "name",
    [
        "DefaultAWSCredentialsProviderChain",
        "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
        "com.amazon.auth.DefaultAWSCredentialsProviderChain",
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    ],
)
def test_the_default_chains_class_may_be_named(load: Load, name: str) -> None:
    found = store(load, {"s3.credentials.provider.class": name, **KEYS})
    assert (found.role, found.provider, found.chain) == (None, None, ())
    assert found.access_key_id, "Confluent's sink takes the key pair, where there is one"


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("com.amazonaws.auth.EnvironmentVariableCredentialsProvider", ("env",)),
        ("com.amazonaws.auth.profile.ProfileCredentialsProvider", PROFILE),
        ("ProfileCredentialsProvider", PROFILE),
        ("com.amazonaws.auth.ContainerCredentialsProvider", ("container-role",)),
        ("com.amazonaws.auth.EC2ContainerCredentialsProviderWrapper", ("container-role", "iam-role")),
        ("com.amazonaws.auth.InstanceProfileCredentialsProvider", ("iam-role",)),
        ("com.amazon.auth.InstanceProfileCredentialsProvider", ("iam-role",)),
        ("WebIdentityTokenFileCredentialsProvider", ("assume-role-with-web-identity",)),
        ("software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider", ("env",)),
    ],
)
def test_a_member_of_the_default_chain_may_be_named_alone(load: Load, name: str, chain: tuple[str, ...]) -> None:
    found = store(load, {"s3.credentials.provider.class": name})
    assert (found.role, found.provider, found.chain) == (None, None, chain)
    members = botocore.session.Session().get_component("credential_provider").providers
    assert set(chain) <= {member.METHOD for member in members}


@pytest.mark.parametrize(
    "keys",
    [
        ROLE,
        {**ROLE, "s3.credentials.provider.class": "AwsAssumeRoleCredentialsProvider"},
        {
            "s3.credentials.provider.class": "io.confluent.connect.s3.auth.AwsAssumeRoleCredentialsProvider",
            "s3.credentials.provider.sts.role.arn": ARN,
            "s3.credentials.provider.sts.role.session.name": "kafka",
        },
        {"aws.sts.role.arn": ARN, "aws.sts.role.session.name": "kafka"},
    ],
    ids=["bare", "with the class", "Confluent's", "Aiven's"],
)
def test_a_role_is_named_in_the_words_of_each_sink(load: Load, keys: dict[str, object]) -> None:
    found = store(load, {"s3.region": "eu-west-1", **keys})
    assert found.role == RoleSettings(arn=ARN, session_name="kafka", region="eu-west-1")


def test_a_role_has_an_external_id_a_region_a_duration_and_an_endpoint(load: Load) -> None:
    own = {"sts.role.external.id": "ext", "sts.region": "us-east-2"}
    aivens = {"aws.sts.role.session.duration": 900, "aws.sts.config.endpoint": "sts.example.com"}
    role = store(load, {**ROLE, **own, **aivens}).role
    assert role
    assert present(role.external_id).get_secret_value() == "ext"
    assert (role.region, role.duration_s, role.endpoint_url) == ("us-east-2", 900, "https://sts.example.com")


def test_the_key_that_assumes_a_role_is_the_providers_own(load: Load) -> None:
    keys = {f"s3.credentials.provider.{name}": value for name, value in KEYS.items()}
    found = store(load, {**ROLE, **keys})
    assert found.role
    assert present(found.access_key_id).get_secret_value() == "id"


def test_a_class_of_ones_own_gets_its_options(load: Load, check: Check) -> None:
    keys = {**OWN, "s3.credentials.provider.vault.path": "secret/archive"}
    provider = store(load, keys).provider
    assert provider
    assert provider.class_name == OWN["s3.credentials.provider.class"]
    assert {name: value.get_secret_value() for name, value in provider.options} == {"vault.path": "secret/archive"}
    assert "secret/archive" not in repr(provider) + repr(check(keys))


@pytest.mark.parametrize(
    "keys",
    [
        {
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_s3_bucket": "bucket",
            "aws_s3_region": "eu-west-1",
        },
        {"aws.s3.bucket.name": "bucket", "aws.s3.sse.algorithm": "AES256", "aws.s3.backoff.max.retries": 5},
        {"s3.bucket": "bucket", "s3.endpoint": "http://minio:9000", "s3.path_style": "true"},
    ],
)
def test_the_words_of_other_sinks_are_honoured(check: Check, keys: dict[str, object]) -> None:
    report = check({"s3.bucket.name": "", **keys})
    assert all(finding(report.findings, key).support is Support.HONOURED for key in keys)
