"""Each key that is known as secret, alone and with others, right and wrong: no command that reads files shows it.

The keys are those of the tables: one that is added there is planted here.
"""

import json
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafka_s3_platform.cli import main
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.connect.config.keys import clients
from kafka_s3_platform.connect.config.keys.config_file import is_secret
from kafka_s3_platform.connect.config.keys.converters import OPTION_KEYS
from kafka_s3_platform.connect.config.keys.table import Key, Support
from kafka_s3_platform.connect.config.mapping import ALL_KEYS
from kafka_s3_platform_tests.secrets.world import MARK, all_found, found_in, mark

MINIMAL = {"name": "c", "topics": "t", "s3.bucket.name": "b", "s3.region": "eu-central-1"}
CLIENTS = (
    *clients.CLIENT_PROPERTIES,
    *clients.WITHOUT_MEANING_PROPERTIES,
    *clients.REFUSED_PROPERTIES,
    *clients.PAIRED_PROPERTIES,
)
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{}";'


def secret(keys: tuple[Key, ...], *prefixes: str) -> list[str]:
    """The keys of a table that are known as secret, behind each of the prefixes that they may have."""
    return [prefix + key.name for key in keys for prefix in prefixes if not key.is_family and is_secret(key.name)]


CONVERTERS = [f"{side}.converter.{more}" for side in ("key", "value") for more in ("", "schema.registry.")]
OF_CONNECTORS = [
    *secret(ALL_KEYS, ""),
    *secret(CLIENTS, "consumer.override.", "producer.override.", "admin.override."),
    *secret(OPTION_KEYS, *CONVERTERS),
    *secret(tuple(clients.select_security({key.name: key for key in clients.CLIENT_PROPERTIES}).values()), *CONVERTERS),
]
OF_WORKERS = [
    *secret(CLIENTS, "", "consumer.", "producer.", "admin."),
    *secret(OPTION_KEYS, *CONVERTERS),
]


def value(key: str) -> str:
    """A marked value that the key takes, where it takes any text."""
    return JAAS.format(mark(key)) if key.endswith("sasl.jaas.config") else mark(key)


class Folder:
    """A folder of connector files, and what is written about it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown: list[tuple[str, str]] = []

    def look(
        self,
        connector: Mapping[str, str] | str,
        worker: str = "",
        env: Mapping[str, str] = {},
        *,
        settings: bool = True,
    ) -> None:
        """Have every command that reads the files say what it says, and the library its errors and reprs."""
        text = connector if isinstance(connector, str) else json.dumps({**MINIMAL, **connector})
        (self.path / "c.json").write_text(text)
        (self.path / "worker.properties").write_text(f"bootstrap.servers=127.0.0.1:1\n{worker}")
        about = text + worker
        for arguments in (
            ["check", str(self.path / "c.json"), "--json"],
            ["check", str(self.path / "c.json")],
            ["list"],
        ):
            told = CliRunner().invoke(main, arguments, env={"KAFKA_S3_CONNECTORS": str(self.path), **env})
            self.shown.append((f"{arguments[0]} of {about}", written(told)))
        files = load_connectors(self.path, env)
        if not settings:
            self.shown.append((f"what is wrong with {about}", repr(files.broken)))
            return
        self.shown.append((f"the files of {about}", repr(files)))
        for config in files.connectors:
            texts = [
                str(config),
                str(config.model_dump()),
                config.model_dump_json(),
                str(config.model_dump(mode="json")),
            ]
            self.shown += [(f"the settings of {about}", text) for text in texts]


def written(told: Result) -> str:
    """What a command wrote, with the whole chain of an error that nobody caught."""
    error = "" if told.exception is None else "".join(traceback.format_exception(told.exception))
    return told.output + error


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """The commands stand in it: in the repository, each of them would open the instance of Dagster that is there."""
    monkeypatch.chdir(tmp_path)
    found = Folder(tmp_path)
    yield found
    assert len(found.shown) > 3, "nothing was looked at"
    hits = all_found((name.replace(MARK, "MARK"), text) for name, text in found.shown)
    assert hits == [], "\n".join(hits)


AVRO = {"value.converter": "AvroConverter", "key.converter": "AvroConverter", "format.class": "AvroFormat"}
REGISTRY = {f"{side}.converter.schema.registry.url": "http://registry:8081" for side in ("key", "value")}


def test_no_key_of_a_connector_that_is_known_as_secret_is_shown(folder: Folder) -> None:
    assert len(OF_CONNECTORS) > 50
    for key in OF_CONNECTORS:
        folder.look({**(AVRO | REGISTRY if ".converter." in key else {}), key: value(key)})
    folder.look({key: value(key) for key in OF_CONNECTORS})


def test_no_parameter_of_a_config_provider_that_is_secret_is_shown(folder: Folder) -> None:
    parameter = "config.providers.aws.param.aws"
    for class_name in ("com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider", "com.example.Vault"):
        worker = f"config.providers=aws\nconfig.providers.aws.class={class_name}\n"
        worker += "".join(f"{parameter}.{name}={mark(name)}\n" for name in ("access.key", "secret.key", "secrt.kye"))
        folder.look({}, worker=worker)


def test_no_key_of_a_worker_that_is_known_as_secret_is_shown(folder: Folder) -> None:
    for key in OF_WORKERS:
        folder.look({}, worker=f"{key}={value(key)}\n")
    folder.look({}, worker="".join(f"{key}={value(key)}\n" for key in OF_WORKERS))


NAMES = frozenset({"name", "topics", "topics.regex", "transforms", "predicates"})
"""What is shown because it names what is worked on, and is looked for by it."""


def test_no_value_of_a_config_provider_is_shown_by_the_key_that_refuses_it(folder: Folder) -> None:
    """Whatever the key: what stands elsewhere is there because it is not to be in the file."""
    worker = "config.providers=dir\nconfig.providers.dir.class=DirectoryConfigProvider\n"
    for key in ALL_KEYS:
        if key.support is Support.HONOURED and key.name not in NAMES and not key.is_family:
            for text in (mark(key.name), f"{mark(key.name)} %\\,{mark('two')}"):
                folder.look({key.name: "${env:SECRET}"}, env={"SECRET": text}, settings=False)
                (folder.path / "secret").write_text(text)
                folder.look({key.name: f"${{dir:{folder.path}:secret}}"}, worker, settings=False)


URLS = (
    "http://me:{}@host:80",
    "http://me:{}/x@host:80",
    "http://me:x/{}@host:80",
    "http://me:{}#x@host",
    "http://me:x?{}@host",
    "http://me:x@{}@host",
    "http://{}@host",
    "http://:{}@host",
    "//me:{}@host",
    "me:{}@host:80",
    "http://me:{}@[host",
    "http://me:{}@host:port",
    "http://me:{}@host/path?a=b#c",
    "ftp://me:{}@host",
    "http://me:x y{}@host",
    "http://one:1,http://me:{}@two:2",
    "http://host/?apikey={}",
    "http://host:80/path?apikey={}",
    "http://host#{}",
    "host?apikey={}",
    "http://one:1,http://two:2/?apikey={}",
)


@pytest.mark.parametrize(
    "key",
    [
        "store.url",
        "s3.endpoint",
        "s3.proxy.url",
        "aws.sts.config.endpoint",
        "value.converter.schema.registry.url",
        "schema.registry.url",
        "consumer.override.sasl.oauthbearer.token.endpoint.url",
        "value.converter.bearer.auth.issuer.endpoint.url",
        "kafka.endpoint",
    ],
)
def test_no_password_or_query_of_a_url_is_shown_however_it_is_written(folder: Folder, key: str) -> None:
    role = {"sts.role.arn": "arn:aws:iam::1:role/a", "sts.role.session.name": "me"} if "sts" in key else {}
    for url in URLS:
        folder.look({**AVRO, **role, key: url.format(mark(key))})


BROKEN = (
    '{"name": "c", "aws.secret.access.key": "SECRET"',
    '{"name": "c", "aws.secret.access.key": "SECRET" "x": 1}',
    '{"name": "c", "aws.secret.access.key": ["SECRET"]}',
    '{"name": "c", "aws.secret.access.key": {"a": "SECRET"}}',
    '{"name": "c", "aws.secret.access.key": "SECRET", "aws.secret.access.key": "SECRET"}',
    '{"name": "c", "aws.secret.access.key": NaN, "x": "SECRET"}',
    '{"name": "c", "aws.secret.access.key": "\\uSECRET"}',
    '["SECRET"]',
    '"SECRET"',
    "aws.secret.access.key=SECRET",
    '{"name": "c", "config": {"aws.secret.access.key": ["SECRET"]}}',
    '{"name": "c", "config": "SECRET"}',
    '{"name": "c", "aws.secret.access.key": "${env:SECRET-NOT-SET"}',
)


def test_no_line_of_a_file_that_is_broken_is_shown(folder: Folder) -> None:
    for text in BROKEN:
        folder.look(text.replace("SECRET", mark("broken")))
    for line in ("x=\\u{}", "sasl.password={0}\nsasl.password={0}", "sasl.password={}\\", "sasl.pasword={}"):
        folder.look({}, worker=line.format(mark("line")) + "\n")


def test_no_line_of_variables_that_are_converted_is_shown(tmp_path: Path) -> None:
    variables = {"KAFKA_HOST": "k:1", "SOURCE_KAFKA_TOPIC": "t", "S3_BUCKET_NAME": "b", "PLAY_SECRET_KEY": mark("play")}
    secrets = {"S3_ACCESS_KEY": mark("id"), "S3_SECRET_KEY": mark("key"), "S3_ENDPOINT": f"http://me:{mark('url')}@s3"}
    given = "".join(f"export {name}='{text}'\n" for name, text in {**variables, **secrets}.items())
    env, made = tmp_path / "env", tmp_path / "made.json"
    for wrong in ("", f"export S3_SECRET_KEY = {mark('blank')}", mark("word"), f"S3_SECRET_KEY='{mark('quote')}"):
        env.write_text(f"{given}{wrong}\n")
        for arguments in ([str(env)], [str(env), "--json"], [str(env), "-o", str(made)]):
            assert found_in(f"convert {wrong}", written(CliRunner().invoke(main, ["convert", *arguments]))) == []
    assert found_in("the file", made.read_text()) == []
    assert json.loads(made.read_text())["store.url"] == "${env:S3_ENDPOINT}"


def test_the_mark_is_found_in_whatever_it_is_wrapped_in() -> None:
    import base64
    import gzip
    import zlib

    text = f"a {mark('x')} b".encode()
    for wrapped in (text, gzip.compress(text), zlib.compress(text), base64.b64encode(zlib.compress(text)), text.hex()):
        assert found_in("it", wrapped)
    for before in ("", "m", "me", "me:"):
        header = base64.b64encode(f"{before}{mark('x')}".encode()).decode()
        assert found_in("a header", f"Authorization: Basic {header}")
    assert not found_in("it", "MARK")
