"""Templates are Aiven's; one that would give two objects the same key is refused when the file is loaded.

Names in files as an attacker would choose them: refused, or a part of a key that leads nowhere else.
"""

import re

import pytest

from kafka_s3_platform.connect.config.keys.names import Variable, compile_template
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import SegmentKey
from kafka_s3_platform.core.model.object_key import explain_bad_folders
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform_tests.config.conftest import Load
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.hostile.names import ODD

REST = "{{topic}}-{{partition}}-{{start_offset}}"


def test_a_template_is_its_texts_and_variables() -> None:
    parts = compile_template("a/{{ topic }}-{{partition:padding=false}}-{{start_offset:padding=true}}.gz").parts
    topic, partition, offset = Variable("topic"), Variable("partition"), Variable("start_offset", "padded")
    assert parts == ("a/", topic, "-", partition, "-", offset, ".gz")


def test_a_timestamp_has_a_unit_and_yyyy_may_be_written_in_capitals() -> None:
    parts = compile_template("{{timestamp:unit=YYYY}}/{{timestamp:unit=HH}}/" + REST).parts
    assert (parts[0], parts[2]) == (Variable("timestamp", "yyyy"), Variable("timestamp", "HH"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs {{topic}}"),
        ("{{topic}}-{{start_offset}}", "needs {{partition}}"),
        ("{{topic}}-{{partition}}", "needs {{start_offset}}"),
        ("{{partition}}-{{start_offset}}", "needs {{topic}}"),
        ("k{{key}}", "{{key}} keeps the newest record"),
        ("{{topic}}-{{partition}}-{{key}}", "{{key}} keeps the newest record"),
        (REST + "-{{offset}}", "'{{offset}}' is not known"),
        (REST + "-{{timestamp}}", "'{{timestamp}}' is not known"),
        (REST + "-{{timestamp:unit=mm}}", "'{{timestamp:unit=mm}}' is not known"),
        (REST + "-{{topic:padding=true}}", "'{{topic:padding=true}}' is not known"),
        (REST + "-{{partition:padding=maybe}}", "'{{partition:padding=maybe}}' is not known"),
        (REST + "-{{start_offset:}}", "'{{start_offset:}}' is not known"),
        (REST + "-{{}}", "'{{}}' is not known"),
        (REST + "-{{topic", "'-{{topic' is no variable"),
        (REST + "}}", "'}}' is no variable"),
        (REST + "\n", "holds a control character"),
        ("/" + REST, "is empty, '.' or '..'"),
        ("a//" + REST, "is empty, '.' or '..'"),
        ("../" + REST, "is empty, '.' or '..'"),
        (REST + "/", "is empty, '.' or '..'"),
        ("{{topic}}{{partition}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{topic}}-{{partition}}{{start_offset}}", "where {{start_offset}} begins or ends"),
        ("{{topic}}-1{{partition}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{partition}}1-{{topic}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{topic}}-{{topic}}-{{partition}}-{{start_offset}}", "holds {{topic}} twice"),
        ("{{partition}}-{{start_offset}}-{{topic}}", "cannot end in {{topic}}"),
        ("{{partition}}/{{start_offset}}/{{topic}}.gz", "cannot end in {{topic}}"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("{", r"\{")):
        compile_template(text)


STEPS = ["..", ".", "a/../b", "..\\..\\a", "a/..\\b", "a//b", "a\0b", "a\nb", "a\x1b[2Jb", "a\ud800"]
"""What leads out of a folder, or cannot be listed."""

NAMES = [name for name in ODD if name != "NULL"]
"""Which no plain name is among."""

FOLDERS = ("topics.dir", "archive.index.dir", "archive.restore.dir")


@pytest.mark.parametrize("key", FOLDERS)
@pytest.mark.parametrize("name", STEPS)
def test_no_folder_of_a_file_leads_out_of_itself(load: Load, key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        load({key: name})


@pytest.mark.parametrize("character", ' "#%*<>?[\\]^`{|}~ü日\u00a0')
def test_the_folder_of_an_index_holds_nothing_that_a_url_takes_for_its_own(load: Load, character: str) -> None:
    """Two connectors had one index: of its folder, what followed a `#` was cut off."""
    with pytest.raises(
        ConfigError, match=rf"archive\.index\.dir: .* holds {re.escape(repr(character))}, and .*letters"
    ):
        load({"archive.index.dir": f"_he/team{character}1"})


@pytest.mark.parametrize("name", [*(step for step in STEPS if "//" not in step), "../", "a/../", "a/b/..", "./a"])
@pytest.mark.parametrize("key", ["aws.s3.prefix", "aws_s3_prefix", "file.name.prefix"])
def test_no_prefix_of_aiven_s_leads_out_of_its_folder(load: Load, key: str, name: str) -> None:
    """Its folder was looked at by nobody: `a/../` began the keys."""
    with pytest.raises(ConfigError, match=r"prefix: .* is no beginning of keys"):
        load({"connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector", key: name})


@pytest.mark.parametrize("name", STEPS)
def test_no_text_of_a_pattern_or_template_leads_out_of_its_folder(load: Load, name: str) -> None:
    quoted = name.replace("'", "''")
    with pytest.raises(ConfigError, match=r"path\.format"):
        load({"path.format": f"'{quoted}'/YYYY/MM/dd/HH", "partitioner.class": "TimeBasedPartitioner"})
    with pytest.raises(ConfigError, match=r"file\.name\.template"):
        load({"file.name.template": f"{name}/{{{{topic}}}}-{{{{partition}}}}-{{{{start_offset}}}}"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["name", "topics"])
def test_names_of_connectors_and_topics_are_those_that_kafka_takes(load: Load, key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load({key: name})


@pytest.mark.parametrize("name", [n for n in NAMES if n.strip() and "${env:" not in n])
def test_a_folder_of_any_other_name_is_itself_in_each_key(load: Load, name: str) -> None:
    """Nothing of it is a pattern, a variable, or a time's."""
    if explain_bad_folders(name):
        with pytest.raises(ConfigError, match=r"topics\.dir"):
            load({"topics.dir": name})
        return
    layout = load({"topics.dir": name}).config.layout
    key = new_segment_layout(layout).key(SegmentKey("t", "p", 3, 7, "parquet"))
    assert key.startswith(f"{name}/t/p/t+3+")
    found = present(new_segment_layout(layout).parse(key))
    assert (found.topic, found.kafka_partition, found.first_offset) == ("t", 3, 7)


@pytest.mark.parametrize("name", [*NAMES, *STEPS])
def test_a_restore_id_is_no_path_pattern_or_command(load: Load, name: str) -> None:
    with pytest.raises(ConfigError, match="restore id"):
        RestoreRequest(load().config, "t", "u", name, "run")


@pytest.mark.parametrize("host", ["a b", "a\nb", "a\tb", "a\0b", "\u202eb", "a\x1b[2J", "a\r\nHost: b"])
def test_a_host_holds_nothing_that_a_request_or_a_terminal_takes_for_more(load: Load, host: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url"):
        load({"store.url": f"http://{host}:9000"})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        load({"kafka.bootstrap.servers": f"{host}:9092"})


@pytest.mark.parametrize(
    ("key", "honest", "hostile"),
    [
        (
            "principal",
            ("kafka", "svc_a-1/host-2.example.com@EXAMPLE.COM"),
            (
                *("x; id >/tmp/f #", "a$(id)", "a`id`", "a|b", "a&b", "HOST$@R", "a\nid", "a'b", 'a"b', "a\\b", "a>b"),
                # options of kinit, one of which loads a library
                *("-XX509_user_identity=PKCS11:/tmp/x.so", "--help", "a -X", "a\t-X", "@R", "ü@R", "%{sasl.password}"),
            ),
        ),
        (
            "keytab",
            ("/etc/kafka.keytab", "/etc/a_b-c/me@R.keytab"),
            ('/etc/a" -X "b', "/a$(id)", "/a`id`", "/a\\", "/a\nb", "me.keytab", "-X", "/a b", "/a;id", "%{debug}"),
        ),
        ("service.name", ("kafka", "kafka-2"), ("a;id", "$(id)", "-x", "a b", "a/b", "a\nb")),
    ],
)
def test_no_text_of_a_login_becomes_a_command_for_the_shell_in_which_librdkafka_runs_kinit(
    load: Load, key: str, honest: tuple[str, ...], hostile: tuple[str, ...]
) -> None:
    name = f"sasl.kerberos.{key}"
    for text in honest:
        assert load({f"consumer.override.{name}": text}).config.kafka.properties("consumer")[name] == text
    for text in hostile:
        with pytest.raises(ConfigError, match=re.escape(name)):
            load({f"consumer.override.{name}": text})


@pytest.mark.parametrize(
    "key",
    [
        *("sasl.kerberos.kinit.cmd", "plugin.library.paths", "ssl.engine.location", "ssl.engine.id", "ssl.providers"),
        *("ssl.engine.factory.class", "security.providers", "sasl.login.callback.handler.class", "interceptor.classes"),
        *("sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.config"),
    ],
)
def test_no_key_of_a_client_runs_or_loads_something(load: Load, key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        load({f"consumer.override.{key}": "/tmp/x.so"})
