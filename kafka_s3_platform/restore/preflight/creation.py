"""Ask the target's brokers whether they would create a topic, before anything is created."""

from dataclasses import replace

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.preflight.checks import Target
from kafka_s3_platform.restore.preflight.target import DECIDED, choose_topic_size, make_topic_configs
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.base import TargetPlan


def check_creation(request: RestoreRequest, plan: TargetPlan, target: Target, admin: ClusterAdmin) -> Target:
    """Find the configs of a new topic that the brokers reject, and why they do not create it without these.

    Brokers of another version know other configs or allow other values. Nothing is created. If the restore creates no
    topic, the target is returned unchanged.
    """
    if target.description is not None or not request.create_topic:
        return target
    given = _make_configs(request, plan, target)
    if _try_creation(request, plan, admin, given) is None:
        return target
    needed = {name: value for name, value in given.items() if name in DECIDED}
    # Each config by itself: an error about all of them may name only one that the brokers reject.
    alone = (
        (name, _try_creation(request, plan, admin, {**needed, name: given[name]})) for name in given.keys() - DECIDED
    )
    found = replace(target, not_taken={name: err.text for name, err in alone if isinstance(err, ConfigError)})
    left = _try_creation(request, plan, admin, _make_configs(request, plan, found))
    if left is None:
        return found
    return replace(found, uncreatable=str(left))


def _make_configs(request: RestoreRequest, plan: TargetPlan, target: Target) -> dict[str, str]:
    return make_topic_configs(request, plan, target.configs.now, target.not_taken)[0]


def _try_creation(
    request: RestoreRequest, plan: TargetPlan, admin: ClusterAdmin, configs: dict[str, str]
) -> PermanentError | None:
    size = choose_topic_size(request, plan)
    replicas = request.replication_factor or -1
    try:
        admin.check_new_topic(request.to_topic, size, replicas, configs)
    except PermanentError as err:
        return err
    return None
