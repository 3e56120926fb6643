"""Ask the target's brokers to validate the creation of a topic, before anything is created."""

from dataclasses import replace

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.preflight.checks import Target
from kafka_s3_platform.restore.preflight.target import DECIDED, choose_topic_size, make_topic_configs
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.base import TargetPlan


def check_creation(request: RestoreRequest, plan: TargetPlan, target: Target, admin: ClusterAdmin) -> Target:
    """Find the configs of a new topic that the brokers reject, and the reason to refuse it without these too.

    Brokers of another version have other configs or allow other values. Nothing is created. If the restore creates no
    topic, the target is returned unchanged.
    """
    if target.description is not None or not request.create_topic:
        return target
    configs = _make_configs(request, plan, target)
    if _try_creation(request, plan, admin, configs) is None:
        return target
    needed = {name: value for name, value in configs.items() if name in DECIDED}
    # Each config by itself: an error about all of them may name only one that the brokers reject.
    alone = (
        (name, _try_creation(request, plan, admin, {**needed, name: configs[name]}))
        for name in configs.keys() - DECIDED
    )
    checked = replace(target, not_taken={name: err.text for name, err in alone if isinstance(err, ConfigError)})
    refusal = _try_creation(request, plan, admin, _make_configs(request, plan, checked))
    if refusal is None:
        return checked
    return replace(checked, uncreatable=str(refusal))


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
