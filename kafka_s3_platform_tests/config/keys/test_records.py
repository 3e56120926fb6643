import pytest

from kafka_s3_platform.connect.config.formats_of_connect import INPUTS, JSON_WITH_SCHEMA, REFUSALS, WRITTEN_FORMATS
from kafka_s3_platform.connect.config.keys.records import explain_refusal, find_input
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Check, Load, finding, of_class
from kafka_s3_platform_tests.conftest import present

CLASSES = {
    "avro": "AvroFormat",
    "json": "JsonFormat",
    "bytes": "ByteArrayFormat",
    "parquet": "ParquetFormat",
    "block_gzip": "BlockGzipFormat",
    "envelope.parquet": "EnvelopeParquetFormat",
    "envelope.avro": "EnvelopeAvroFormat",
    "envelope.json": "EnvelopeJsonFormat",
}


@pytest.mark.parametrize("output", WRITTEN_FORMATS)
@pytest.mark.parametrize("row", INPUTS)
def test_a_pair_loads_unless_the_table_refuses_it(load: Load, row: str, output: str) -> None:
    converter = {"value.converter": "JsonConverter"} if row == JSON_WITH_SCHEMA else {"input.data.format": row}
    keys = {**converter, "format.class": CLASSES[output], "schema.registry.url": "http://registry:8081"}
    if (row, output) not in REFUSALS:
        assert load(keys).config.layout.format == output
        return
    with pytest.raises(ConfigError) as caught:
        load(keys)
    assert f"{row} cannot be written as {output}: {REFUSALS[row, output]}" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "output"), [("JSON", "avro"), ("JSON", "parquet"), ("STRING", "parquet"), ("AVRO", "bytes")]
)
def test_what_connect_cannot_write_is_refused(row: str, output: str) -> None:
    assert (row, output) in REFUSALS


def test_the_table_names_no_pair_that_is_not_in_it() -> None:
    assert {row for row, _ in REFUSALS} <= set(INPUTS)
    assert {output for _, output in REFUSALS} <= set(WRITTEN_FORMATS)


def test_json_with_its_schema_is_another_input_than_json() -> None:
    plain, with_schema = ConverterSettings(format="JSON"), ConverterSettings(format="JSON", schemas_enable=True)
    assert (find_input(plain), find_input(with_schema)) == ("JSON", JSON_WITH_SCHEMA)
    assert explain_refusal(plain, "avro")
    assert explain_refusal(with_schema, "avro") is None


def test_keys_follow_the_same_table(load: Load) -> None:
    keys = {"format.class": "JsonFormat", "input.data.format": "JSON", "store.kafka.keys": True}
    with pytest.raises(ConfigError, match=r"input\.key\.format: JSON cannot be written as avro"):
        load({**keys, "input.key.format": "JSON"})
    assert load({**keys, "input.key.format": "STRING"}).config.layout.keys_format == "avro"


REGISTRY = {"value.converter.schema.registry.url": "http://registry:8081"}
JSON = {"format.class": "JsonFormat"}
WORKER = (
    "value.converter=io.confluent.connect.avro.AvroConverter\n"
    "value.converter.schema.registry.url=http://worker:8081\n"
    "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
)


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("org.apache.kafka.connect.converters.ByteArrayConverter", "BYTES"),
        ("ByteArrayConverter", "BYTES"),
        ("org.apache.kafka.connect.storage.StringConverter", "STRING"),
        ("org.apache.kafka.connect.json.JsonConverter", "JSON"),
        ("io.confluent.connect.json.JsonSchemaConverter", "JSON_SR"),
        ("io.confluent.connect.avro.AvroConverter", "AVRO"),
        ("ProtobufConverter", "PROTOBUF"),
    ],
)
def test_a_converter_has_its_full_and_short_name(load: Load, name: str, format_name: str) -> None:
    options = REGISTRY if format_name in {"JSON_SR", "AVRO", "PROTOBUF"} else {}
    assert load({**JSON, "value.converter": name, **options}).config.records.value.format == format_name


@pytest.mark.parametrize("word", ["BYTES", "STRING", "JSON", "JSON_SR", "AVRO", "PROTOBUF"])
def test_clouds_words_name_the_same_converters(load: Load, word: str) -> None:
    registry = {"schema.registry.url": "http://registry:8081"} if word in {"JSON_SR", "AVRO", "PROTOBUF"} else {}
    value = load({**JSON, "input.data.format": word, **registry}).config.records.value
    assert (value.format, value.schemas_enable) == (word, False)
    assert (value.registry is not None) == bool(registry)


@pytest.mark.parametrize(
    ("keys", "enabled"),
    [
        ({"value.converter": "JsonConverter"}, True),
        ({"value.converter": "JsonConverter", "value.converter.schemas.enable": False}, False),
        ({"input.data.format": "JSON"}, False),
        ({"input.data.format": "JSON", "value.converter.schemas.enable": True}, True),
    ],
)
def test_connects_json_has_schemas_unless_it_is_told_otherwise(
    load: Load, keys: dict[str, object], enabled: bool
) -> None:
    assert load({**JSON, **keys}).config.records.value.schemas_enable is enabled


@pytest.mark.parametrize("name", ["kafkaconnect.AWSKafkaAvroConverter", "kafkaconnect.jsonschema.JsonSchemaConverter"])
def test_glues_converters_are_refused_and_an_envelope_leaves_them_alone(load: Load, name: str) -> None:
    glue = {"value.converter": f"com.amazonaws.services.schemaregistry.{name}", "value.converter.region": "eu-west-3"}
    with pytest.raises(ConfigError, match=r"18 bytes before each value .* Without format.class, whole records"):
        load(JSON | glue)
    assert load(glue).config.layout.is_envelope


def test_the_envelope_needs_no_converter_and_leaves_one_alone(load: Load) -> None:
    loaded = load({"value.converter": "com.example.OwnConverter", "value.converter.x": "y"})
    assert loaded.config.records.value.format == "BYTES"
    for key in ("value.converter", "value.converter.x"):
        assert finding(loaded.findings, key).support is Support.WITHOUT_MEANING


def test_a_connector_without_a_converter_has_the_workers_with_its_options(load: Load) -> None:
    records = load({**JSON, "store.kafka.keys": True, "keys.format.class": "JsonFormat"}, worker=WORKER).config.records
    assert (records.value.format, records.key.format) == ("AVRO", "STRING")
    assert present(records.value.registry).url == "http://worker:8081"


def test_a_connector_that_names_a_converter_has_none_of_the_workers_options(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url: required"):
        load({**JSON, "value.converter": "AvroConverter"}, worker=WORKER)


def test_what_is_wrong_with_the_workers_converter_is_told_only_where_it_is_used(load: Load) -> None:
    worker = "value.converter=com.example.OwnConverter\n"
    assert load(worker=worker).config.layout.is_envelope
    with pytest.raises(ConfigError, match=r"value\.converter: that of .*worker\.properties: 'com\.example"):
        load(JSON, worker=worker)
    with pytest.raises(
        ConfigError, match=r"value\.converter: that of worker\.properties: AVRO cannot be written as by"
    ):
        load({"format.class": "ByteArrayFormat"}, worker=WORKER)


def test_an_envelope_keeps_the_registry_of_its_converters_for_the_schemas_of_its_records(load: Load) -> None:
    keys = {"value.converter": "AvroConverter", **REGISTRY}
    records = load(keys).config.records
    assert (records.value.format, records.key.format) == ("AVRO", "BYTES")
    assert records.value.registry
    assert records.key.registry is None


def test_a_registry_alone_names_no_converter(load: Load) -> None:
    assert load(REGISTRY).config.records.value.registry is None


def test_the_registrys_login_and_tls_reach_its_client_under_its_names(load: Load) -> None:
    options = {
        "url": "https://a:8081, https://b:8081/",
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "me:pw",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/client.pem",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "kp",
        "ssl.endpoint.identification.algorithm": "https",
    }
    keys = {f"value.converter.schema.registry.{name}": value for name, value in options.items()}
    loaded = load({**JSON, "value.converter": "AvroConverter", **keys})
    registry = loaded.config.records.value.registry
    assert registry
    assert registry.url == "https://a:8081,https://b:8081"
    assert {name: value.get_secret_value() for name, value in registry.properties.items()} == {
        "basic.auth.user.info": "me:pw",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/client.pem",
        "ssl.key.location": "/client.pem",
        "ssl.key.password": "kp",
    }
    assert "pw" not in repr(loaded.config)


def test_the_login_in_a_registrys_url_is_kept_secret(load: Load) -> None:
    url = "http://me:hunter2@registry:8081"
    loaded = load({**JSON, "value.converter": "AvroConverter", "value.converter.schema.registry.url": url})
    registry = loaded.config.records.value.registry
    assert registry
    assert registry.url == "http://registry:8081"
    assert registry.properties["basic.auth.user.info"].get_secret_value() == "me:hunter2"
    assert "hunter2" not in repr(loaded)


def test_what_is_only_for_writing_to_a_registry_has_no_meaning(check: Check) -> None:
    option = "value.converter.auto.register.schemas"
    report = check({**JSON, "value.converter": "AvroConverter", **REGISTRY, option: True})
    assert report.ok
    assert finding(report.findings, option).support is Support.WITHOUT_MEANING


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"value.converter": "AvroConverter"}, r"value\.converter\.schema\.registry\.url: required"),
        (
            {"value.converter": "LongConverter"},
            r"value\.converter: LongConverter is known, not honoured here: say Byte",
        ),
        ({"value.converter": "AvroConvertor"}, r"did you mean AvroConverter\?"),
        ({"value.converter": "StringConverter", "value.converter.encoding": "UTF-16"}, "text is UTF-8"),
        ({"value.converter": "JsonConverter", "value.converter.schema.enable": "x"}, r"did you mean schemas\.enable\?"),
        ({"value.converter": "JsonConverter", "value.converter.schemas.enable": "x"}, "neither true nor false"),
        (
            {"value.converter": "JsonConverter", "input.data.format": "JSON"},
            r"input\.data\.format: value\.converter says",
        ),
        ({"input.data.format": "XML"}, "'XML' is none of BYTES"),
        (
            {"value.converter": "AvroConverter", "value.converter.schema.registry.url": "registry:8081"},
            r"value\.converter\.schema\.registry\.url: is no URL",
        ),
        (
            {
                "value.converter": "AvroConverter",
                **REGISTRY,
                "value.converter.basic.auth.credentials.source": "SASL_INHERIT",
            },
            r"value\.converter\.basic\.auth\.credentials\.source: SASL_INHERIT is not honoured",
        ),
        (
            {
                "value.converter": "AvroConverter",
                **REGISTRY,
                "value.converter.schema.registry.ssl.truststore.location": "ca.jks",
            },
            r"value\.converter\.schema\.registry\.ssl\.truststore\.location: .*ca\.jks cannot be read",
        ),
        ({}, r"value\.converter: required, here or in worker\.properties, or input\.data\.format"),
    ],
)
def test_a_converter_that_cannot_be_made_is_refused_by_key(load: Load, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load({**JSON, **keys})


def test_transforms_and_predicates_become_steps_in_their_order(load: Load) -> None:
    steps = load(
        {
            **JSON,
            "input.data.format": "JSON",
            "transforms": "drop, insert",
            "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.drop.predicate": "gone",
            "transforms.drop.negate": True,
            "transforms.insert.type": "InsertField$Value",
            "transforms.insert.static.field": "f",
            "transforms.insert.static.value": "v",
            "predicates": "gone",
            "predicates.gone.type": "RecordIsTombstone",
        }
    ).config.records.transforms
    assert [(step.alias, step.type, step.negate) for step in steps] == [
        ("drop", "Filter", True),
        ("insert", "InsertField$Value", False),
    ]
    assert steps[0].predicate
    assert steps[0].predicate.type == "RecordIsTombstone"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"transforms": "a", "transforms.a.type": "InsertFeild$Value"}, "transforms.a.type"),
        ({"transforms": "a"}, "transforms.a.type"),
        ({"transforms": "a,a"}, "transforms"),
        ({"transforms.b.type": "Filter"}, "transforms.b.type"),
        ({"transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": "("}, "transforms.a.regex"),
    ],
)
def test_a_transform_that_is_not_known_is_refused_by_its_key(check: Check, keys: dict[str, object], key: str) -> None:
    report = check({**JSON, "input.data.format": "JSON", **keys})
    assert [found.key for found in of_class(report, Support.REFUSED)] == [key]


def test_the_envelope_takes_only_transforms_that_leave_records_as_they_are(load: Load) -> None:
    router = {"type": "RegexRouter", "regex": "(.*)", "replacement": "copy_of_$1"}
    keys = {f"transforms.a.{name}": value for name, value in router.items()}
    assert load({"transforms": "a", **keys}).config.records.transforms
    with pytest.raises(ConfigError, match=r"transforms\.a\.type: HoistField\$Value changes records"):
        load({"transforms": "a", "transforms.a.type": "HoistField$Value", "transforms.a.field": "f"})


def test_errors_and_their_dead_letter_topic_are_honoured(load: Load) -> None:
    prefix = "errors.deadletterqueue."
    errors = load(
        {
            "errors.tolerance": "all",
            "errors.log.enable": True,
            "errors.log.include.messages": True,
            f"{prefix}topic.name": "dlq",
            f"{prefix}topic.replication.factor": 1,
            f"{prefix}context.headers.enable": True,
        }
    ).config.records.errors
    assert (errors.tolerance, errors.log_enable, errors.log_include_messages) == ("all", True, True)
    assert (errors.dead_letter_topic, errors.dead_letter_replication_factor, errors.dead_letter_headers) == (
        "dlq",
        1,
        True,
    )


LETTERS = "errors.deadletterqueue.topic.name"
CLOUD = {"connector.class": "S3_SINK", "input.data.format": "JSON", "output.data.format": "JSON"}


@pytest.mark.parametrize(
    ("given", "tolerance", "topic", "headers"),
    [
        ({}, "all", "dlq-events", True),
        ({LETTERS: "mine", "errors.deadletterqueue.context.headers.enable": False}, "all", "mine", False),
        ({"errors.tolerance": "none"}, "none", None, False),
        ({"connector.class": "S3SinkConnector"}, "none", None, False),
    ],
)
def test_a_file_of_confluent_cloud_has_a_dead_letter_topic_by_itself(
    load: Load, given: dict[str, object], tolerance: str, topic: str | None, headers: bool
) -> None:
    errors = load({**CLOUD, **given}).config.records.errors
    found = (errors.tolerance, errors.dead_letter_topic, errors.dead_letter_headers)
    assert found == (tolerance, topic, headers)


def test_a_dead_letter_topic_of_ones_own_is_not_archived_itself(load: Load) -> None:
    with pytest.raises(ConfigError, match=rf"{LETTERS}: dlq-a is archived itself"):
        load({**CLOUD, "name": "a", "topics": "dlq-a"})


@pytest.mark.parametrize(
    ("topic", "message"),
    [("events", "events is archived itself"), ("a,b", "no legal topic name"), ("a b", "no legal topic")],
)
def test_a_dead_letter_topic_that_makes_no_sense_is_refused(load: Load, topic: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"errors\.deadletterqueue\.topic\.name: .*{message}"):
        load({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic})


def test_letters_of_ignored_nulls_are_refused_where_they_would_be_missed(load: Load, check: Check) -> None:
    own = {"format.class": "JsonFormat", "value.converter": "StringConverter", "report.null.values.to.dlq": True}
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    with pytest.raises(ConfigError, match=r"report\.null\.values\.to\.dlq: records that .* leaves out are counted"):
        load({**own, **letters, "behavior.on.null.values": "ignore"})
    for harmless in ({**letters, "behavior.on.null.values": "fail"}, {"behavior.on.null.values": "ignore"}):
        found = check({**own, **harmless})
        assert found.ok
        assert finding(found.findings, "report.null.values.to.dlq").support is Support.WITHOUT_MEANING


EU = {"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "eu.*", "a.predicate": "p"}


@pytest.mark.parametrize(
    ("router", "routed"),
    [
        ({"a.type": "RegexRouter", "a.regex": "[a-z]+[.](.*)", "a.replacement": "$1"}, "clicks"),
        ({"a.type": "RegexRouter", "a.regex": ".*", "a.replacement": "x"} | EU | {"a.negate": "true"}, "x"),
        ({"a.type": "TimestampRouter", "a.topic.format": "all-${timestamp}"}, "all-${timestamp}"),
    ],
)
def test_routers_that_give_two_topics_one_name_are_refused(load: Load, router: dict[str, str], routed: str) -> None:
    keys = {"topics": "us.clicks,ca.clicks,eu.views", "transforms": "a", **under_transforms(router)}
    with pytest.raises(ConfigError) as caught:
        load(keys)
    assert f"us.clicks, ca.clicks all become {routed}, and their objects" in str(caught.value).replace(", eu.views", "")
    load(keys | {"topics": "us.clicks"})


@pytest.mark.parametrize(
    "router",
    [
        {"a.type": "RegexRouter", "a.regex": "[a-z]+[.](.*)", "a.replacement": "all.$0"},
        {"a.type": "RegexRouter", "a.regex": ".*", "a.replacement": "x"} | EU,
        {"a.type": "TimestampRouter"},
        {"a.type": "ExtractTopic$Key"},
    ],
)
def test_routers_load_that_keep_topics_apart_or_ask_each_record(load: Load, router: dict[str, str]) -> None:
    load(
        {"topics": "us.clicks,eu.clicks", "transforms": "a", "key.converter": "StringConverter"}
        | under_transforms(router)
    )


def under_transforms(keys: dict[str, str]) -> dict[str, str]:
    return {f"transforms.{key}" if key.startswith("a.") else key: value for key, value in keys.items()}
