"""ACLs and rights, on a broker that keeps them."""

import dataclasses
from collections.abc import Iterator

import pytest

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.model.segment import TopicAcl
from kafka_s3_platform.restore.preflight.target import check_rights
from kafka_s3_platform_tests.conftest import free_port_settings, stopped_at_exit
from kafka_s3_platform_tests.local.test_processes import eventually
from kafka_s3_platform_tests.restore.plans import request

pytestmark = pytest.mark.integration

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ACLS = (
    TopicAcl("User:alice", "*", "READ", "ALLOW"),
    TopicAcl("User:bob", "10.0.0.1", "ALL", "ALLOW"),
    TopicAcl("User:mallory", "*", "WRITE", "DENY"),
)


@pytest.fixture(scope="module")
def guarded(stack_settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """A cluster with an authorizer, which allows everyone what has no ACL."""
    settings = dataclasses.replace(
        stack_settings, data_dir=tmp_path_factory.mktemp("guarded"), kafka_properties=AUTHORIZER, **free_port_settings()
    )
    with stopped_at_exit(settings):
        embedded.start_servers((Broker(settings),))
        yield KafkaSettings(bootstrap_servers=settings.bootstrap_servers)


def test_acls_of_a_topic_are_given_and_read_back_by_its_literal_name(guarded: KafkaSettings, topic_name: str) -> None:
    with ClusterAdmin(guarded) as admin:
        admin.create_topic(topic_name, 1)
        assert admin.topic_acls(topic_name) == ()
        assert admin.topic_acls("no-such-topic") == ()
        before = admin.describe_topic(topic_name)
        assert before.operations is not None
        assert list(check_rights(request(), before.operations, None)) == []

        admin.create_topic_acls(topic_name, ACLS)
        admin.create_topic_acls(topic_name, ACLS[:1])

        eventually(lambda: admin.topic_acls(topic_name) == ACLS)
        assert admin.topic_acls(topic_name[:-1]) == ()


def test_rights_that_an_acl_takes_away_are_found_missing(guarded: KafkaSettings, topic_name: str) -> None:
    with ClusterAdmin(guarded) as admin:
        admin.create_topic(topic_name, 1)
        before = admin.describe_topic(topic_name)
        everyone = [TopicAcl("User:ANONYMOUS", "*", name, "ALLOW") for name in ("READ", "DESCRIBE_CONFIGS")]
        admin.create_topic_acls(topic_name, everyone)
        # the controller has taken them, and the broker learns of it some time later
        eventually(lambda: admin.describe_topic(topic_name).operations != before.operations)

        found = admin.describe_topic(topic_name)

        assert found.operations is not None
        [finding] = check_rights(request(), found.operations, None)
        assert (finding.refuses, "lack WRITE on" in finding.text) == (True, True)
        assert found.generation.acls == tuple(sorted(everyone))
