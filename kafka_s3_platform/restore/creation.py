"""What the target's brokers say of a topic that is to be created, asked before anything is."""

from dataclasses import replace

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.preflight import Target
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.target import DECIDED, new_topic_configs, new_topic_size


def as_brokers_take_it(request: RestoreRequest, plan: RestorePlan, target: Target, admin: ClusterAdmin) -> Target:
    """The target with the configs that its brokers do not take of a topic, and why they do not create it without them.

    Brokers of another version know other configs, or take other values. Nothing is created. Where nothing is to be
    created, it is what it was.
    """
    if target.description is not None or not request.create_topic:
        return target
    given = _configs(request, plan, target)
    if _refused(request, plan, admin, given) is None:
        return target
    needed = {name: value for name, value in given.items() if name in DECIDED}
    alone = ((name, _refused(request, plan, admin, {**needed, name: given[name]})) for name in given.keys() - DECIDED)
    found = replace(target, not_taken={name: str(err) for name, err in alone if isinstance(err, ConfigError)})
    left = _refused(request, plan, admin, _configs(request, plan, found))
    return found if left is None else replace(found, uncreatable=str(left))


def _configs(request: RestoreRequest, plan: RestorePlan, target: Target) -> dict[str, str]:
    return new_topic_configs(request, plan, target.configs.now, target.not_taken)[0]


def _refused(
    request: RestoreRequest, plan: RestorePlan, admin: ClusterAdmin, configs: dict[str, str]
) -> PermanentError | None:
    size, replicas = new_topic_size(request, plan), request.replication_factor or -1
    try:
        admin.check_new_topic(request.to_topic, size, replicas, configs)
    except PermanentError as err:
        return err
    return None
