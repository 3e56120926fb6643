"""What an error of a connector file says to write instead is written, and loads."""

import pytest

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load

CODE = {"partitioner.class": "FieldPartitioner", "partition.field.name": "code"}
JSON_VALUES = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURE = {"consumer.override.security.protocol": "SASL_SSL", "consumer.override.sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("wrong", "told", "advised"),
    [
        ({"flush.sise": "5"}, r"flush\.sise: unknown key; did you mean flush\.size\?", {"flush.size": "5"}),
        ({"directory.delim": "a"}, r"directory\.delim .*; use '/'", {"directory.delim": "/"}),
        ({"file.delim": "1"}, r"file\.delim .*; use '\+'", {"file.delim": "+"}),
        ({"topics.regex": "a.*"}, r"topics names the topics; keep one", {"topics": "", "topics.regex": "a.*"}),
        (
            {"topics": "", "topics.regex": "a*+"},
            r"write it without its last '\+'",
            {"topics": "", "topics.regex": "a*"},
        ),
        (
            {"topics": "", "topics.regex": r"\p{IsLatin}+"},
            r"write the characters out, such as \[A-Za-z\]",
            {"topics": "", "topics.regex": "[A-Za-z]+"},
        ),
        ({"topics": ""}, r"or set topics\.regex", {"topics": "", "topics.regex": "a.*"}),
        (CODE, r"partition\.field\.name: values have no fields", CODE | JSON_VALUES),
        (
            {"s3.object.tagging.key.value.pairs": "a:b"},
            r"set s3\.object\.tagging to true",
            {"s3.object.tagging.key.value.pairs": "a:b", "s3.object.tagging": "true"},
        ),
        ({"s3.region": "Frankfurt"}, r"no region such as eu-central-1", {"s3.region": "eu-central-1"}),
        (
            SECURE | {"consumer.override.sasl.jaas.config": f'{PLAIN} required username="a";'},
            r"write it as <module> required username=\"\.\.\.\" password=\"\.\.\.\";",
            SECURE | {"consumer.override.sasl.jaas.config": f'{PLAIN} required username="a" password="b";'},
        ),
    ],
    ids=lambda found: next(iter(found)) if isinstance(found, dict) else "",
)
def test_what_is_advised_loads(load: Load, wrong: dict[str, str], told: str, advised: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=told):
        load(wrong)
    assert load(advised).config.name == "events"


@pytest.mark.parametrize("worker", ["producer.acks=all", ""], ids=["say all", "remove the key"])
def test_a_producer_waits_for_all_replicas(load: Load, worker: str) -> None:
    with pytest.raises(ConfigError, match="remove the key or say all"):
        load(worker="producer.acks=1\n")
    assert load(worker=f"{worker}\n").config.name == "events"


def test_one_of_two_ways_to_log_in_is_kept(load: Load) -> None:
    by_jaas = {"consumer.override.sasl.jaas.config": f'{PLAIN} required username="a" password="b";'}
    by_name = {"consumer.override.sasl.username": "a", "consumer.override.sasl.password": "b"}
    with pytest.raises(ConfigError, match=r"another property sets librdkafka's sasl\.username.* too; keep one"):
        load(SECURE | by_jaas | by_name)
    for kept in (by_jaas, by_name):
        assert load(SECURE | kept).config.kafka.properties("consumer")["sasl.username"] == "a"
