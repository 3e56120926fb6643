"""Compares a bucket's rules with an archive, since S3 may remove objects, make them cold or keep them by itself."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from kafka_s3_platform.cli.connector_files.findings import Finding, Judgement
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.store.objects import COLD, ObjectStore


def try_bucket_rules(config: ConnectorConfig, store: ObjectStore) -> Finding:
    """Read the bucket's lifecycle, versioning and lock, and warn of conflicts with the archive."""
    subject = "rules of the bucket"
    try:
        rules = store.read_bucket_setting("get_bucket_lifecycle_configuration").get("Rules", [])
        is_versioned = store.read_bucket_setting("get_bucket_versioning").get("Status") == "Enabled"
        lock = store.read_bucket_setting("get_object_lock_configuration").get("ObjectLockConfiguration", {})
    except PlatformError as err:
        return Finding(subject, Judgement.NOT_TRIED, f"its lifecycle, versions and lock cannot be read: {err}")
    active_rules = [rule for rule in rules if rule.get("Status") == "Enabled"]
    problems = [*chain.from_iterable(_compare_rule(config, rule) for rule in active_rules)]
    if config.archive.retention.has_rule and is_versioned:
        if not any("NoncurrentVersionExpiration" in rule for rule in active_rules):
            problems.append(
                "versions of what retention removes stay, and cost as before: add a lifecycle rule with "
                "NoncurrentVersionExpiration"
            )
        if lock.get("ObjectLockEnabled") == "Enabled":
            problems.append("its lock keeps versions of what retention removes until their time is over")
    if problems:
        return Finding(subject, Judgement.WARNING, "; ".join(problems))
    return Finding(subject, Judgement.OK, "none works against the archive")


def _compare_rule(config: ConnectorConfig, rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the effects of a lifecycle rule on objects of the archive."""
    condition = rule.get("Filter", {})
    prefix = rule.get("Prefix") or condition.get("Prefix") or condition.get("And", {}).get("Prefix", "")
    folders = [f"{folder}/".lstrip("/") for folder in (config.layout.topics_dir, config.layout.daily_dir)]
    folders.append(f"{config.archive.index_dir}/")
    touched = [folder for folder in folders if folder.startswith(prefix) or prefix.startswith(folder)]
    if not touched:
        return
    name = f"the lifecycle rule {rule.get('ID', prefix)} of {', '.join(touched)}"
    if rule.get("Expiration", {}).keys() & {"Days", "Date"}:
        yield f"{name} removes objects that the index names: remove the rule, and use archive.retention.ms"
    if cold := COLD & {transition.get("StorageClass") for transition in rule.get("Transitions", ())}:
        yield f"{name} moves objects to {', '.join(sorted(cold))}: no merge, check or restore can read them there"
