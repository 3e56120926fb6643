"""Variables of config providers in files, as files of Connect have them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from kafka_s3_platform.connect.registries.archive import read_registry_file
from kafka_s3_platform.connect.restore.outgoing.keys import read_outgoing_file
from kafka_s3_platform.core.config.folder import hash_connector_files
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load

KAFKA = "org.apache.kafka.common.config.provider"
LOGIN = {"aws.access.key": "key", "aws.secret.key": "secret"}


def declare(name: str, class_name: str, **parameters: str) -> str:
    lines = [f"config.providers={name}", f"config.providers.{name}.class={class_name}"]
    lines += [f"config.providers.{name}.param.{key.replace('_', '.')}={text}" for key, text in parameters.items()]
    return "\n".join(lines) + "\n"


def test_a_key_of_a_properties_file_is_a_value(load: Load, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets" / "kafka.properties"
    secrets.parent.mkdir()
    secrets.write_text("bucket=of-the-file\nuser=me\npassword=p$w\\\\d\n")
    worker = declare("file", f"{KAFKA}.FileConfigProvider", allowed_paths=f"/nowhere,{secrets.parent}")
    worker += f"sasl.password=${{file:{secrets}:password}}\nsasl.username=a-${{file:{secrets}:user}}\n"
    config = load({"s3.bucket.name": f"${{file:{secrets}:bucket}}"}, worker=worker).config
    assert config.store.bucket == "of-the-file"
    properties = config.kafka.properties("consumer")
    assert (properties["sasl.username"], properties["sasl.password"]) == ("a-me", "p$w\\d")


def test_a_file_of_a_directory_is_a_value(load: Load, tmp_path: Path) -> None:
    """Kubernetes mounts a Secret so, behind links."""
    mounted = tmp_path / "..2026"
    mounted.mkdir()
    (mounted / "bucket").write_text("of-the-mount\n")
    (tmp_path / "bucket").symlink_to(mounted / "bucket")
    worker = declare("dir", f"{KAFKA}.DirectoryConfigProvider", allowed_paths=str(tmp_path))
    assert load({"s3.bucket.name": f"${{dir:{tmp_path}:bucket}}"}, worker=worker).config.store.bucket == "of-the-mount"


def test_variables_of_the_environment_need_no_declaration_and_may_have_a_list(load: Load) -> None:
    env = {"BUCKET": "of-the-variable"}
    for worker in ("", declare("env", f"{KAFKA}.EnvVarConfigProvider", allowlist_pattern="BUCK.*")):
        assert load({"s3.bucket.name": "${env:BUCKET}"}, env, worker).config.store.bucket == "of-the-variable"
    worker = declare("env", f"{KAFKA}.EnvVarConfigProvider", allowlist_pattern="BUCK")
    with pytest.raises(ConfigError, match=r"allowlist\.pattern, BUCK, allows no variable 'BUCKET'"):
        load({"s3.bucket.name": "${env:BUCKET}"}, env, worker)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("${vault:a:b}", "no config provider 'vault' is declared; .* set config.providers.vault.class to one of "),
        ("${file:FOLDER/a.properties:absent}", "a.properties has no key 'absent'"),
        ("${file:FOLDER/absent:key}", "absent: cannot be read"),
        ("${file:FOLDER/../secret:key}", "is no absolute path without .."),
        ("${file:/etc/passwd:root}", "/etc/passwd is in none of the provider's allowed.paths: FOLDER"),
        ("${file:FOLDER-2/a:root}", "is in none of the provider's allowed.paths: FOLDER"),
        ("${file:key}", "'' is no absolute path"),
        ("${env:ABSENT}", "the environment variable 'ABSENT' is not set"),
    ],
)
def test_a_variable_without_a_value_is_refused_with_what_to_do(
    load: Load, tmp_path: Path, variable: str, message: str
) -> None:
    (tmp_path / "a.properties").write_text("key=hidden\n")
    worker = declare("file", f"{KAFKA}.FileConfigProvider", allowed_paths=str(tmp_path))
    with pytest.raises(ConfigError, match=message.replace("FOLDER", str(tmp_path))) as refusal:
        load({"s3.bucket.name": variable.replace("FOLDER", str(tmp_path))}, worker=worker)
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        ("config.providers=file\n", "config.providers.file.class: .*there are org.apache.kafka"),
        (declare("file", f"{KAFKA}.FileConfigProvidr"), "did you mean .*FileConfigProvider"),
        (declare("k", "io.strimzi.kafka.KubernetesSecretConfigProvider"), "mount the Secret or ConfigMap"),
        (declare("v", "io.lenses.connect.secrets.providers.VaultSecretProvider"), "have it written to files"),
        (declare("file", f"{KAFKA}.FileConfigProvider", x="1"), "no parameter of this class; there are allowed.paths"),
        ("config.providers.file.class=X\n", "config.providers names no 'file'"),
        (
            declare(
                "aws", "com.amazonaws.kafka.config.providers.SsmParamStoreConfigProvider", NotFoundStrategy="ignore"
            ),
            "is none of fail",
        ),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused_with_what_to_do(load: Load, worker: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(worker=worker)


def test_files_for_restores_use_the_providers_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "worker.properties").write_text(declare("file", f"{KAFKA}.FileConfigProvider"))
    (tmp_path / "secret").write_text("url=http://registry:1\n")
    path = tmp_path / "target"
    path.write_text(f"schema.registry.url=${{file:{tmp_path}/secret:url}}\n")
    env = {"KAFKA_S3_CONNECTORS": str(tmp_path)}
    assert read_outgoing_file(path, env) == {"schema.registry.url": "http://registry:1"}
    assert read_registry_file(path, env).url == "http://registry:1"


def test_a_secret_or_key_store_that_changes_is_noticed_as_a_file_that_changes(tmp_path: Path) -> None:
    (tmp_path / "worker.properties").write_text(declare("dir", f"{KAFKA}.DirectoryConfigProvider"))
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "s3.bucket.name": f"${{dir:{tmp_path}:bucket}}"}))
    digests = [hash_connector_files(tmp_path)]
    for text in ("one", "two", "two"):
        (tmp_path / "bucket").write_text(text)
        digests.append(hash_connector_files(tmp_path))
    assert len(set(digests)) == 3
    assert digests[-1] == digests[-2]
    with (tmp_path / "worker.properties").open("a") as worker:
        worker.write(f"ssl.truststore.location={tmp_path}/trust.jks\n")
    digests = [hash_connector_files(tmp_path)]
    (tmp_path / "trust.jks").write_text("renewed")
    assert hash_connector_files(tmp_path) not in digests


class Aws:
    """Secrets Manager and the Parameter Store of moto, with a secret and a parameter."""

    def __init__(self) -> None:
        self.server = ThreadedMotoServer("127.0.0.1", 0)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        # moto keeps the state of earlier servers of the process
        urlopen(f"{self.url}/moto-api/reset", data=b"").close()  # noqa: S310 - it is this process
        self.secrets = self._open("secretsmanager")
        self.secrets.create_secret(Name="prod/kafka", SecretString='{"bucket": "of-secrets-manager", "port": 9092}')
        self._open("ssm").put_parameter(Name="/prod/bucket", Value="of-the-parameter-store", Type="SecureString")

    def _open(self, service: str) -> Any:
        session: Any = boto3.session.Session("key", "secret", region_name="eu-central-1")
        return session.client(service, endpoint_url=self.url)


@pytest.fixture
def aws() -> Iterator[Aws]:
    simulated = Aws()
    yield simulated
    simulated.server.stop()


MANAGER = "com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider"
CLASSES = {
    MANAGER: ("region", "endpoint"),
    "com.github.jcustenborder.kafka.config.aws.SecretsManagerConfigProvider": ("aws.region", "aws.endpoint.url"),
    "io.confluent.csid.config.provider.aws.SecretsManagerConfigProvider": ("aws.region", "aws.endpoint.url"),
    "io.lenses.connect.secrets.providers.AWSSecretProvider": ("aws.region", "aws.endpoint.override"),
    "com.amazonaws.kafka.config.providers.SsmParamStoreConfigProvider": ("region", "endpoint"),
}


@pytest.mark.parametrize("class_name", CLASSES)
def test_a_secret_of_aws_is_a_value_by_the_classes_that_users_have(load: Load, aws: Aws, class_name: str) -> None:
    region, endpoint = CLASSES[class_name]
    worker = declare("aws", class_name, **{region: "eu-central-1", endpoint: aws.url}, **LOGIN)
    variable, bucket = "${aws:prod/kafka:bucket}", "of-secrets-manager"
    if "Ssm" in class_name:
        variable, bucket = "${aws::/prod/bucket}", "of-the-parameter-store"
    assert load({"s3.bucket.name": variable}, worker=worker).config.store.bucket == bucket


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("${aws:absent:bucket}", "'absent' at http.*AWS answered ResourceNotFoundException; check the name"),
        ("${aws:prod/kafka:absent}", "'prod/kafka' of AWS Secrets Manager is no JSON object with a value of 'absent'"),
    ],
)
def test_a_secret_that_aws_does_not_have_is_refused(load: Load, aws: Aws, variable: str, message: str) -> None:
    worker = declare("aws", MANAGER, region="eu-central-1", endpoint=aws.url, **LOGIN)
    with pytest.raises(ConfigError, match=message):
        load({"s3.bucket.name": variable}, worker=worker)


def test_a_secret_that_was_rotated_is_read_anew_and_an_aws_that_is_down_costs_nothing(
    load: Load, aws: Aws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = declare("aws", MANAGER, region="eu-central-1", endpoint=aws.url, **LOGIN, secret_ttl_ms="1000")
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("kafka_s3_platform.connect.aws_secrets.time", clock)

    def bucket() -> str:
        return load({"s3.bucket.name": "${aws:prod%2Fkafka:bucket?ttl=5}"}, worker=worker).config.store.bucket

    assert bucket() == "of-secrets-manager"
    aws.secrets.put_secret_value(SecretId="prod/kafka", SecretString='{"bucket": "rotated"}')
    clock.now = 0.999
    assert bucket() == "of-secrets-manager"
    clock.now = 1.0
    assert bucket() == "rotated"
    aws.server.stop()
    clock.now = 2.0
    assert bucket() == "rotated"
    assert "no answer (EndpointConnectionError); its last answer is used" in caplog.text
    worker = worker.replace("eu-central-1", "eu-west-1")
    with pytest.raises(ConfigError, match=r"'prod/kafka' at http.*: no answer"):
        bucket()


def test_an_account_that_asks_aws_too_fast_goes_on_with_the_last_answer(
    load: Load, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ['{"bucket": "archive"}']

    def get_secret_value(SecretId: str) -> dict[str, str]:  # noqa: N803 - boto3's name
        if answers:
            return {"SecretString": answers.pop()}
        answer = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        raise ClientError(answer, "GetSecretValue")  # type: ignore[arg-type]

    client = SimpleNamespace(get_secret_value=get_secret_value, meta=SimpleNamespace(endpoint_url="http://aws"))
    monkeypatch.setattr("kafka_s3_platform.connect.aws_secrets._open_client", lambda *_: client)
    monkeypatch.setattr("kafka_s3_platform.connect.aws_secrets.DEFAULT_TTL_MS", "0")
    worker = declare("aws", MANAGER, region="eu-central-1", **LOGIN)
    for _ in range(2):
        assert load({"s3.bucket.name": "${aws:asked-too-fast:bucket}"}, worker=worker).config.store.bucket == "archive"
    assert "AWS answered ThrottlingException; its last answer is used" in caplog.text
