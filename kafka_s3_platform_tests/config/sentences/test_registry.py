"""What is said of a registry's keys: what is asked of it, what is written to it, and whose schema reads a value."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.connect.restore.outgoing.keys import parse_outgoing
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.sentences.files import FILES, file_of, resolve
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, running


def record(*fields: Mapping[str, Any], name: str = "Parcel") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "post", "fields": fields})


WEIGHT = {"name": "weight", "type": "int"}
OLD = record(WEIGHT, {"name": "note", "type": "string"})
NEW = record(WEIGHT, {"name": "paid", "type": "boolean", "default": False})
PARCEL = b"\0\0\0\0\7\x06\x04hi"
"""Weight 3 and the note `hi`, by the schema 7."""


class CountingRegistry(HttpServer):
    """Knows the schemas 7 and 8. `asked` is what it was asked for, `places` are the subjects that have a schema."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.places = {"t-value": 1}

    def answer(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(f"{request.method} {request.path}")
        known = {"/schemas/ids/7": OLD, "/schemas/ids/8": NEW}
        path = request.path.partition("?")[0].removeprefix("/contexts/.post")
        if path.endswith("/versions"):
            places = [{"subject": subject, "version": version} for subject, version in self.places.items()]
            return HttpAnswer(200, body=json.dumps(places).encode())
        if path in known:
            return HttpAnswer(200, body=json.dumps({"schema": known[path]}).encode())
        if path.startswith("/config"):
            return HttpAnswer(200, body=b'{"compatibilityLevel":"NONE"}')
        return HttpAnswer(404, body=b'{"error_code":40403,"message":"none"}')


@pytest.fixture
def registry() -> Iterator[CountingRegistry]:
    with running(CountingRegistry()) as server:
        yield server


def converted(settings: ConverterSettings, *values: bytes, is_key: bool = False) -> ConvertedPayload:
    return convert_rows(settings, values, is_key=is_key)


def avro(url: str, **options: str) -> ConverterSettings:
    """What comes of a file's AvroConverter with these options."""
    own = {f"value.converter.{name.replace('_', '.')}": value for name, value in options.items()}
    return present(resolve({**file_of("avro"), "value.converter.schema.registry.url": url, **own}).config).records.value


def test_a_run_asks_for_a_schema_once_however_small_a_cache_the_file_wants(registry: CountingRegistry) -> None:
    settings = avro(registry.endpoint, schemas_cache_size="0", max_schemas_per_subject="0")
    for _ in range(3):
        assert converted(settings, PARCEL, PARCEL).payload.objects[1] == {"weight": 3, "note": "hi"}
    assert len(registry.asked) == len(set(registry.asked)) == 2


@pytest.mark.parametrize("option", ["auto_register_schemas", "normalize_schemas", "use_schema_id"])
def test_to_decode_and_archive_schemas_nothing_is_written_to_the_registry(
    registry: CountingRegistry, option: str
) -> None:
    settings = avro(registry.endpoint, **{option: "true"})
    converted(settings, PARCEL)
    assert open_registry(RegistrySettings(url=registry.endpoint)).archived(7)
    assert {asked.partition(" ")[0] for asked in registry.asked} == {"GET"}


def test_a_value_is_read_by_its_own_schema_though_the_file_wants_the_latest(registry: CountingRegistry) -> None:
    settings = avro(registry.endpoint, use_latest_version="true", latest_compatibility_strict="false")
    assert converted(settings, PARCEL).payload.objects == [{"weight": 3, "note": "hi"}]
    assert not [asked for asked in registry.asked if "latest" in asked]


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ({"a-post.Parcel": 9, "t-post.Parcel": 2, "t-value": 1}, ("t-value", 1)),
        ({"a-post.Parcel": 9, "post.Parcel": 4, "t-post.Parcel": 2}, ("t-post.Parcel", 2)),
        ({"tt-post.Parcel": 9, "post.Parcel": 4}, ("post.Parcel", 4)),
    ],
    ids=["TopicNameStrategy", "TopicRecordNameStrategy", "RecordNameStrategy"],
)
def test_a_version_is_that_of_the_topics_own_subject_whatever_strategy_the_file_names(
    registry: CountingRegistry, places: dict[str, int], found: tuple[str, int]
) -> None:
    registry.places = places
    settings = avro(registry.endpoint, value_subject_name_strategy="RecordNameStrategy")
    (schema,) = converted(settings, PARCEL).payload.schemas
    assert (schema.subject, schema.version) == found


@pytest.mark.parametrize("side", ["key", "value"])
def test_a_converter_is_that_of_its_side_whatever_the_file_calls_its_type(
    registry: CountingRegistry, side: str
) -> None:
    settings = avro(registry.endpoint, converter_type="header")
    converted(settings, PARCEL, is_key=side == "key")
    assert registry.asked[0].startswith(f"GET /schemas/ids/7?subject=t-{side}&")


def test_a_registry_of_a_context_is_named_by_its_url(registry: CountingRegistry) -> None:
    settings = avro(f"{registry.endpoint}/contexts/.post")
    assert converted(settings, PARCEL).payload.objects == [{"weight": 3, "note": "hi"}]
    assert all(asked.startswith("GET /contexts/.post/schemas/ids/7") for asked in registry.asked)


@pytest.mark.parametrize(("context", "loads"), [("staging", False), (".staging", False), ("default", True), ("", True)])
def test_a_context_that_would_give_ids_another_meaning_is_refused(context: str, loads: bool) -> None:
    found = resolve({**file_of("avro"), "schema.context.name": context})
    assert (found.config is not None) is loads
    refused = [finding for finding in found.findings if finding.support is Support.REFUSED]
    assert all("/contexts/.NAME" in finding.effect for finding in refused)


@pytest.mark.parametrize(
    ("option", "usual", "other"),
    [
        ("generalized.sum.type.support", "false", "true"),
        ("flatten.singleton.unions", "true", "false"),
    ],
)
def test_an_option_that_would_shape_unions_otherwise_is_refused(option: str, usual: str, other: str) -> None:
    name = f"value.converter.{option}"
    assert resolve({**file_of("json of JSON Schema"), name: usual}).config is not None
    assert resolve({**file_of("json of JSON Schema"), name: other}).config is None


@pytest.mark.parametrize(
    ("option", "usual", "other"),
    [
        ("auto.register.schemas", "true", "false"),
        ("use.latest.version", "false", "true"),
        ("use.schema.id", "-1", "12"),
        ("value.subject.name.strategy", "io.confluent.TopicNameStrategy", "io.confluent.RecordNameStrategy"),
        ("schema.registry.auto.register.schemas", "", "false"),
    ],
)
def test_a_restore_that_would_register_otherwise_than_asked_is_refused(option: str, usual: str, other: str) -> None:
    asked = {key: value for key, value in FILES["avro"].items() if key.startswith("value.")}
    name = f"value.converter.{option}"
    assert parse_outgoing({**asked, name: usual}).value is not None
    with pytest.raises(ConfigError, match=rf"{name}: a restore registers the schemas"):
        parse_outgoing({**asked, name: other})
