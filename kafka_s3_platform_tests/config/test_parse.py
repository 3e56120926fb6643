import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.config.parse import ConnectorFile, read_connector_file, read_properties
from kafka_s3_platform.core.errors import ConfigError


def read(tmp_path: Path, text: str | bytes, name: str = "a.json") -> ConnectorFile:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_connector_file(path)


def plain(file: ConnectorFile) -> dict[str, str]:
    return {key: value.get_secret_value() for key, value in file.entries.items()}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "config": {"topics": "t"}}',
        '{"name": "a", "config": {"topics": "t"}, "tasks": [], "type": "sink"}',
        '{"name": "a", "config": {"topics": "t", "name": "a"}, "tasks": [{"connector": "a", "task": 0}]}',
        '{"config": {"topics": "t", "name": "a"}}',
        '{"name": "a", "topics": "t"}',
        '\ufeff{"name": "a", "topics": "t"}',
        '{"connectorName": "a", "connectorConfiguration": {"topics": "t"}, "capacity": {"provisionedCapacity": {}}}',
    ],
)
def test_each_json_form_gives_the_same_name_and_keys(tmp_path: Path, text: str) -> None:
    file = read(tmp_path, text)
    assert file.name == "a"
    assert plain(file)["topics"] == "t"


STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata: {name: a, labels: {strimzi.io/cluster: c}}
spec:
  class: S3SinkConnector
  tasksMax: 3
  autoRestart: {enabled: true}
  config:
    topics: t
    flush.size: 010
    connect.meta.data: false
    path.format: "'year'=YYYY"
    empty:
"""
CONFLUENT = """\
apiVersion: platform.confluent.io/v1beta1
kind: Connector
metadata: {name: other}
spec: {name: a, class: S3SinkConnector, taskMax: 3, configs: {topics: t, flush.size: 010, connect.meta.data: false,
  path.format: "'year'=YYYY", empty: ""}, connectClusterRef: {name: connect}}
"""


@pytest.mark.parametrize("text", [STRIMZI, CONFLUENT, STRIMZI.replace("  tasksMax", "  state: running\n  tasksMax")])
@pytest.mark.parametrize("name", ["a.yaml", "a.yml"])
def test_a_resource_of_kubernetes_has_the_texts_that_were_written(tmp_path: Path, text: str, name: str) -> None:
    file = read(tmp_path, text, name)
    given = {"topics": "t", "flush.size": "010", "connect.meta.data": "false", "path.format": "'year'=YYYY"}
    spec = {"connector.class": "S3SinkConnector", "tasks.max": "3", "empty": ""}
    assert file.name == "a"
    assert {key: value for key, value in plain(file).items() if key != "name"} == given | spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid YAML: empty"),
        ("- a", "an object with keys, this one is list"),
        ("name: a\ntopics: t", "no resource of a connector, of kind KafkaConnector or Connector with a spec"),
        ("kind: KafkaConnector\nspec: {config: {topics: t}}", "the connector has no name"),
        (STRIMZI.replace("topics: t", "topics: {a: b}"), "the value of topics is no string, number or boolean"),
        (STRIMZI.replace("topics: t", "topics: t\n    topics: u"), r"a\.yaml: the key topics is set twice"),
        (STRIMZI.replace("topics: t", "tasks.max: 1"), r"a\.yaml: the key tasks.max is set twice"),
        (STRIMZI.replace("tasksMax: 3", "state: paused"), "its spec says that it does not run"),
        (STRIMZI.replace("tasksMax: 3", "pause: true"), "its spec says that it does not run"),
        (STRIMZI.replace("topics: t", "topics: *t0psecret"), r"a\.yaml, line 9, column 13: invalid YAML$"),
        (f"{STRIMZI}---\n{STRIMZI}", "invalid YAML$"),
        ("[" * 5000, "invalid YAML"),
        ("&a [*a]", "invalid YAML: empty, or nested too deep"),
    ],
)
def test_a_resource_that_breaks_a_rule_is_refused_and_shows_no_value(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        read(tmp_path, text, "a.yaml")
    assert "t0psecret" not in str(refused.value)


def test_what_repeats_itself_a_billion_times_is_refused_at_once(tmp_path: Path) -> None:
    doubled = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    with pytest.raises(ConfigError, match="no resource of a connector"):
        read(tmp_path, f"a0: &a0 x\n{doubled}", "a.yaml")


def test_json_numbers_and_booleans_become_the_text_that_was_written(tmp_path: Path) -> None:
    file = read(tmp_path, '{"name": "a", "config": {"i": 10000000000000000001, "f": 1.50, "t": true, "f2": false}}')
    assert plain(file) == {"i": "10000000000000000001", "f": "1.50", "t": "true", "f2": "false"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "a", "config": {"k": null}}', "the value of k is no string, number or boolean"),
        ('{"name": "a", "config": {"k": []}}', "the value of k is no string, number or boolean"),
        ('{"name": "a", "config": {"k": {}}}', "the value of k is no string, number or boolean"),
        ('{"name": "a", "config": {"k": NaN}}', "NaN is no JSON value"),
        ('{"name": "a", "config": {"topics": "t", "topics": "u"}}', r"a\.json: the key topics is set twice"),
        ('{\n  "name": "a"\n  "topics": "t"\n}', r"a\.json, line 3, column 3: invalid JSON: Expecting ',' delimiter"),
        ("[]", "a connector file is an object with keys, this one is list"),
        ('{"name": "a", "topics": "t", "config": {}}', "topics beside `config` has no meaning"),
        ('{"name": "a", "config": {"name": "b"}}', "two names, a and b"),
        ('{"topics": "t"}', "the connector has no name; set `name`"),
        ("topics=t", "the connector has no name; set `name`"),
        ("name=a\ntopics=t\ntopics=u", r"a\.properties, line 3: the key of line 2 again"),
        ("name=a\n# x\nb=c\nbad=\\u00g0", r"a\.properties, line 4: a malformed \\u escape"),
    ],
)
def test_what_breaks_a_rule_of_its_form_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text, "a.properties" if "=" in text else "a.json")


def test_the_error_of_invalid_json_does_not_carry_the_document(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, '{"name": "a", "aws.secret.access.key": "hunter2" "x": 1}')
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_no_line_of_a_private_key_that_was_pasted_as_it_is_becomes_a_key(tmp_path: Path) -> None:
    pasted = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg+kqhkiG9w0B\nAQEFAASC\n-----END PRIVATE KEY-----"
    with pytest.raises(ConfigError, match=r"a\.properties, line 5: a PEM text over several lines") as raised:
        read(tmp_path, f"name=a\nssl.key.pem={pasted}", "a.properties")
    assert "MIIE" not in str(raised.value)


def test_a_private_key_on_one_line_or_on_lines_that_go_on_is_read(tmp_path: Path) -> None:
    key = r"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    continued = "-----BEGIN PRIVATE KEY-----\\n\\\nMIIE\\n\\\n-----END PRIVATE KEY-----"
    for written in (key, continued):
        found = plain(read(tmp_path, f"name=a\nssl.key.pem={written}", "a.properties"))
        assert found["ssl.key.pem"] == "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json: cannot be read: No such file"):
        read_connector_file(tmp_path / "missing.json")


def test_the_secrets_of_a_file_are_not_in_its_repr(tmp_path: Path) -> None:
    assert "hunter2" not in repr(read(tmp_path, '{"name": "a", "aws.secret.access.key": "hunter2"}'))


JAVA = r"""
# a comment
  ! another, with a = sign
name=a
equals = b = c
colon:d
blank e
empty=
bare
continued = f,\
    g, \
    h
key\ with\:signs\= = i
unicode = Z\u00fcrich \t|
back\\slash = \x
"""


def test_properties_follow_javas_rules(tmp_path: Path) -> None:
    assert plain(read(tmp_path, JAVA, "a.properties")) == {
        "name": "a",
        "equals": "b = c",
        "colon": "d",
        "blank": "e",
        "empty": "",
        "bare": "",
        "continued": "f,g, h",
        "key with:signs=": "i",
        "unicode": "Zürich \t|",
        "back\\slash": "x",
    }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1"])
def test_properties_are_utf_8_or_else_iso_8859_1(tmp_path: Path, encoding: str) -> None:
    file = read(tmp_path, "name=a\ncity=Zürich".encode(encoding), "a.properties")
    assert plain(file) == {"name": "a", "city": "Zürich"}


SEPARATORS = st.sampled_from(["=", ":", " ", " = ", "\t:\t", "  "])
NOISE = st.sampled_from(["", "# comment = 1\n", "! k: v\n", "\n", "   \n"])
WORDS = st.text(st.one_of(st.sampled_from(string.printable), st.characters(codec="utf-8")), max_size=20)
ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def escaped(draw: st.DrawFn, text: str) -> str:
    return "".join(_escaped_character(draw, character) for character in text)


def _escaped_character(draw: st.DrawFn, character: str) -> str:
    how = draw(st.sampled_from(["plain", "plain", "unicode", "continued"]))
    if how == "unicode":
        units = character.encode("utf-16-be")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    shown = ESCAPES.get(character) or (f"\\{character}" if character in " \\=:#!" else character)
    return f"\\\n  \t{shown}" if how == "continued" else shown


@st.composite
def properties_files(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    entries = draw(st.dictionaries(WORDS.filter(bool), WORDS, max_size=6))
    lines = [
        draw(NOISE) + escaped(draw, key) + draw(SEPARATORS) + escaped(draw, value) + "\n"
        for key, value in entries.items()
    ]
    return entries, "".join(lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(properties_files())
def test_whatever_was_escaped_is_read_back(tmp_path: Path, case: tuple[dict[str, str], str]) -> None:
    entries, text = case
    path = tmp_path / "a.properties"
    path.write_bytes(text.encode())
    assert {key: value.get_secret_value() for key, value in read_properties(path).items()} == entries
