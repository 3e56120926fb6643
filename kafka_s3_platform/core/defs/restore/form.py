"""The form of a restore in Dagster's launchpad: a sample of its text, and links that open it already filled in."""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

import dagster as dg

from kafka_s3_platform.core.defs.metadata import find_dagster_path
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.extensions import load_extensions
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.work import name_restored_op


def name_restore_job(connector: str) -> str:
    """Return the name of a connector's restore job."""
    return make_op_name("restore", connector)


def write_form(connector: str, selection: Mapping[str, object], to: Mapping[str, object]) -> str:
    """Return the config of a restore's run as YAML, for Dagster's launchpad. `selection` chooses the records."""
    lines = ["ops:", f"  {name_restored_op(connector)}:", "    config:"]
    for group, fields in (("what", selection), ("to", to)):
        # JSON is YAML, and a day in quotes is no date
        lines += [f"      {group}:", *(f"        {name}: {json.dumps(value)}" for name, value in fields.items())]
    return "\n".join(lines) + "\n"


def describe_form(connector: str, selection: Mapping[str, object]) -> str:
    """Return the part of a restored asset's description that explains the form."""
    sample = write_form(connector, selection, {"topic": "copy_of_{topic}", "create_topic": True})
    return (
        "Press *Materialize*, say what is restored and where to, and launch. `what` chooses records, `to` is the "
        "target, `values` changes what is sent, `how` has dry runs, limits and strictness.\n\n"
        f"```yaml\n{sample}```"
    )


def make_form_metadata(run: dg.DagsterRun, topic: TopicAssets, **selection: list[str]) -> dict[str, dg.MetadataValue]:
    """Make the link from an hour's or a day's page to the restore form, filled with the hour or the day, as metadata.

    A run started from the command line does not know the UI's name of this code location. So its metadata is the config
    as text, for the form of the restored asset. There is no metadata if a restore of the hour would send other records
    than the page is about.
    """
    connector = topic.config.name
    key = topic.key("restored")
    if not _can_select_by_time(topic, selection.get("hours", ())):
        return {}
    if not topic.is_native:
        key = dg.AssetKey([connector, "restored"])
        selection["topics"] = [topic.topic]
    origin = run.remote_job_origin
    if origin is None:
        return {"restore": make_form_link(None, connector, key, selection)}
    repository = origin.repository_origin
    place = f"{repository.repository_name}@{repository.code_location_origin.location_name}"
    return {"restore": make_form_link(place, connector, key, selection)}


def make_form_link(
    place: str | None, connector: str, key: dg.AssetKey, selection: Mapping[str, object]
) -> dg.MetadataValue:
    """Make a link to the form of the asset `key`, filled with `selection`. Without a place, return the config as text.

    `place` is the repository and the code location as the UI calls them: `<repository>@<location>`.
    """
    form = write_form(connector, selection, {"topic": "", "create_topic": True})
    if place is None:
        return dg.MetadataValue.md(f"```yaml\n{form}```")
    asset_query = {f"assetSelection[0][assetKey][path][{n}]": part for n, part in enumerate(key.path)}
    asset_query["assetSelection[0][opNames][0]"] = name_restored_op(connector)
    query = urlencode({"config": form, **asset_query}, safe="[]:/")
    # Without a host, the link leads to the Dagster on whose page it is, by whatever name the browser reached it.
    prefix = find_dagster_path()
    path = f"/locations/{quote(place, safe='@')}/jobs/{name_restore_job(connector)}/playground/setup"
    return dg.MetadataValue.url(f"{prefix}{path}?{query}")


def _can_select_by_time(topic: TopicAssets, hours: Sequence[str]) -> bool:
    """Return True if a restore selected by these hours, or days, sends just the records archived in them.

    A restore selects by the time of records. The time in an object's key may be a different one.
    """
    if topic.is_native:
        # The hours of a restore are by timestamp, but with Wallclock, archived hours are by place in the log.
        return topic.config.layout.timestamp_extractor != "Wallclock"
    return any(can_select(topic, hours) for can_select in load_extensions("can_select_foreign"))
