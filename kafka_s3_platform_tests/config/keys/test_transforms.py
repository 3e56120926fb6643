from collections.abc import Mapping

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.transform_catalogue import PREDICATES, TRANSFORMS, split_field_path
from kafka_s3_platform.connect.config.keys.transforms import (
    find_java_class,
    find_public_options,
    keeps_content,
    parse_options,
    parse_transforms,
)
from kafka_s3_platform.core.config.settings import PredicateSettings, TransformSettings

INSERT = {"transforms": "a", "transforms.a.type": "InsertField$Value", "transforms.a.static.field": "s"}
KAFKA = "org.apache.kafka.connect.transforms."


def hidden(**options: str) -> dict[str, SecretStr]:
    return {name: SecretStr(value) for name, value in options.items()}


def shown(options: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in options.items()}


def test_connects_keys_become_steps_in_the_order_of_their_aliases() -> None:
    steps = parse_transforms(
        {
            "name": "orders",
            "transforms": "route, add",
            "transforms.add.type": f"{KAFKA}InsertField$Value",
            "transforms.add.static.field": "site",
            "transforms.add.static.value": "eu",
            "transforms.add.predicate": "gone",
            "transforms.add.negate": "true",
            "transforms.route.type": "RegexRouter",
            "transforms.route.regex": "(.*)",
            "transforms.route.replacement": "x-$1",
            "predicates": "gone",
            "predicates.gone.type": f"{KAFKA}predicates.RecordIsTombstone",
        }
    )
    assert steps == (
        TransformSettings(alias="route", type="RegexRouter", options=hidden(regex="(.*)", replacement="x-$1")),
        TransformSettings(
            alias="add",
            type="InsertField$Value",
            options=hidden(**{"static.field": "site", "static.value": "eu"}),
            predicate=PredicateSettings(alias="gone", type="RecordIsTombstone"),
            negate=True,
        ),
    )


def test_no_transforms_are_no_steps() -> None:
    assert parse_transforms({"name": "orders", "transforms": ""}) == ()


def test_a_dotted_python_name_is_a_users_own_class_and_gets_its_options_as_they_are() -> None:
    name = "kafka_s3_platform_tests.transforms.example_mappers.LevelFilter"
    (step,) = parse_transforms({"transforms": "m", "transforms.m.type": name, "transforms.m.level": "DEBUG"})
    assert (step.type, shown(step.options), find_java_class(step.type)) == (name, {"level": "DEBUG"}, name)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            {"transforms.a.type": "InsertFeild$Value"},
            r"transforms.a.type: unknown transform 'InsertFeild\$Value'; did you mean InsertField\$Value\?",
        ),
        ({"transforms.a.type": f"{KAFKA}InsertField"}, r"did you mean InsertField\$Key or InsertField\$Value\?"),
        (
            {"transforms.a.type": "io.confluent.connect.transforms.Drop$Value"},
            "transforms.a.type: unknown transform",
        ),
        (
            {"transforms.a.type": "com.example.smt.Thing"},
            "transforms.a.type: 'com.example.smt.Thing', named by .*is a Java class",
        ),
        (
            {"transforms.a.feild": "x"},
            r"transforms.a.feild: InsertField has no such option; .*its options: topic.field,",
        ),
        ({"transforms.b.type": "Filter"}, "transforms.b.type: transforms does not list this alias"),
        ({"transforms": "a,a"}, "transforms: 'a,a' holds an alias twice"),
        ({"transforms": "b,a"}, "transforms.b.type is missing: one of Cast"),
        ({}, r"transforms.a \(InsertField\$Value\): static.field needs static.value"),
        ({"transforms.a.predicate": "p"}, "transforms.a.predicate: unknown predicate alias 'p'; predicates lists none"),
        ({"transforms.a.negate": "true"}, "transforms.a.negate: there is no transforms.a.predicate to negate"),
        (
            {"predicates": "p", "predicates.p.type": "RecordIsTombston"},
            r"unknown predicate 'RecordIsTombston'; did you mean RecordIsTombstone\?",
        ),
        ({"predicates": "p", "predicates.p.type": "HasHeaderKey"}, "predicates.p.name: HasHeaderKey needs it"),
        (
            {"predicates": "p", "predicates.p.type": "RecordIsTombstone", "predicates.p.x": ""},
            "predicates.p.x: RecordIsTombstone has no such option; it has none",
        ),
        ({"predicates.p.type": "RecordIsTombstone"}, "predicates.p.type: predicates does not list this alias"),
    ],
)
def test_what_is_not_known_is_an_error_that_names_the_key(entries: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_transforms(INSERT | entries)


@pytest.mark.parametrize(
    ("type_", "options", "said"),
    [
        ("Cast$Value", {"spec": "a:int"}, "'a:int' is no type and no list of field:type pairs; types: int8,"),
        ("Cast$Value", {"spec": "a:int8,string"}, "a type for the whole value stands alone"),
        ("Cast$Value", {}, r"spec: Cast\$Value needs it"),
        ("DropHeaders", {"headers": ""}, "needs one name or more"),
        ("ExtractField$Value", {"field": "a", "field.syntax.version": "V3"}, "'V3' is none of V1, V2"),
        ("Filter", {}, "Filter without a predicate would drop every record"),
        ("HeaderFrom$Value", {"fields": "a", "headers": "h", "operation": "cut"}, "'cut' is none of move, copy"),
        (
            "HeaderFrom$Value",
            {"fields": "a,b", "headers": "h", "operation": "copy"},
            "must have the same number of names",
        ),
        ("InsertField$Value", {}, "no field to insert"),
        ("MaskField$Value", {"fields": "a", "replacement": ""}, "replacement: must not be empty"),
        ("RegexRouter", {"regex": "(", "replacement": "x"}, "regex: .* is no regular expression"),
        ("RegexRouter", {"regex": "a", "replacement": "$1"}, "the regex has no group 1"),
        ("ReplaceField$Value", {"renames": "a"}, "'a' is no list of old:new pairs"),
        ("ReplaceField$Value", {"replace.null.with.default": "maybe"}, "'maybe' is neither true nor false"),
        ("SetSchemaMetadata$Value", {}, "set schema.name, schema.version or both"),
        ("SetSchemaMetadata$Value", {"schema.version": "x"}, "'x' is no whole number"),
        ("SetSchemaMetadata$Value", {"schema.name": "my-name"}, "'my-name' is no name of an Avro schema"),
        ("TimestampConverter$Value", {"target.type": "string"}, "target.type=string needs format"),
        ("TimestampConverter$Value", {"target.type": "date"}, "'date' is none of string, unix, Date, Time, Timestamp"),
        ("TimestampConverter$Value", {"target.type": "unix", "format": "Q"}, "'Q' in 'Q' is not honoured"),
        ("TimestampConverter$Value", {"target.type": "unix", "unix.precision": "ms"}, "'ms' is none of nanoseconds"),
        ("TimestampRouter", {"timestamp.format": "YYYY"}, "timestamp.format: 'Y' in 'YYYY' is not honoured"),
        ("ValueToKey", {"fields": "a,,b"}, "needs one name or more"),
    ],
)
def test_a_value_that_is_not_allowed_is_an_error_that_says_what_is(
    type_: str, options: dict[str, str], said: str
) -> None:
    entries = {"transforms": "a", "transforms.a.type": type_}
    with pytest.raises(ValueError, match=rf"transforms\.a.*{said}"):
        parse_transforms(entries | {f"transforms.a.{name}": value for name, value in options.items()})


def test_defaults_are_kafkas() -> None:
    (router,) = parse_transforms({"transforms": "a", "transforms.a.type": "TimestampRouter"})
    values = parse_options(router)
    assert (values["topic.format"], values["timestamp.format"].pattern) == ("${topic}-${timestamp}", "yyyyMMdd")


def test_only_routers_and_filter_leave_the_records_as_they_came() -> None:
    kept = {
        t for declared in TRANSFORMS for t in declared.types() if keeps_content(TransformSettings(alias="a", type=t))
    }
    routed = {"ExtractTopic$Key", "ExtractTopic$Value", "ExtractTopic$Header"}
    assert kept == {"RegexRouter", "TimestampRouter", "Filter", *routed}
    assert not keeps_content(TransformSettings(alias="a", type="my.Mapper"))


def test_every_class_has_its_full_java_name() -> None:
    assert find_java_class("InsertField$Value") == f"{KAFKA}InsertField$Value"
    assert {find_java_class(p.name) for p in PREDICATES} == {
        f"{KAFKA}predicates.{name}" for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    }


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b.c`", ("a", "b.c")),
        ("`a`b`.c", ("a`b", "c")),
        (r"`a\`.b`.c", ("a`.b", "c")),
        ("a.", ("a", "")),
        ("a`b", ("a`b",)),
    ],
)
def test_a_path_of_version_2_is_split_at_dots_outside_backticks(text: str, path: tuple[str, ...]) -> None:
    assert split_field_path(text, "V2") == path
    assert split_field_path(text, "V1") == (text,)


def test_extract_topic_is_confluents_and_knows_headers() -> None:
    confluent = "io.confluent.connect.transforms.ExtractTopic"
    (step,) = parse_transforms(
        {"transforms": "a", "transforms.a.type": f"{confluent}$Header", "transforms.a.field": "h"}
    )
    assert (step.type, find_java_class(step.type)) == ("ExtractTopic$Header", f"{confluent}$Header")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "ExtractTopic"}, r"did you mean ExtractTopic\$Key or ExtractTopic\$Value or ExtractTopic\$Header\?"),
        ({"type": "ExtractTopic$Header"}, "needs a header's name as field"),
        ({"type": "ExtractTopic$Value", "field.format": "XPATH"}, "'XPATH' is none of PLAIN, JSON_PATH"),
        ({"type": "ExtractTopic$Value", "field": "f1.f3", "field.format": "JSON_PATH"}, "is no JSON path"),
        ({"type": "ExtractTopic$Value", "field": "$..f3", "field.format": "JSON_PATH"}, "is no JSON path"),
    ],
)
def test_extract_topic_refuses_what_it_cannot_do(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_transforms({"transforms": "a"} | {f"transforms.a.{name}": value for name, value in options.items()})


def test_options_of_a_mapper_are_secret_unless_its_class_says_otherwise() -> None:
    examples = "kafka_s3_platform_tests.transforms.example_mappers"
    assert find_public_options(f"{examples}.LevelFilter") == {"level"}
    assert find_public_options(f"{examples}.LinesMapper") == frozenset()
    assert find_public_options(f"{examples}.OddMapper") == frozenset()
    assert find_public_options("subprocess.Popen") == frozenset()
    assert find_public_options("NoSuchTransform") == frozenset()


def test_options_of_connects_own_classes_are_public_but_for_content() -> None:
    secret = {(d.name, o.name) for d in (*TRANSFORMS, *PREDICATES) for o in d.options if o.is_secret}
    assert secret == {("InsertHeader", "value.literal"), ("InsertField", "static.value")}
    assert find_public_options("InsertHeader") == {"header"}
    assert find_public_options("ReplaceField$Key") >= {"exclude", "include"}
    assert find_public_options("HasHeaderKey") == {"name"}
