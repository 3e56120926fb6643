"""When a topic was last proven to come back: by a verified restore, or by a verification that read every object."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone

import dagster as dg

from kafka_s3_platform.model.health import Proof

DEEP = "deep verification"
MOST_EVENTS = 50
"""So many events of a topic are looked through for the last proof: dry runs may lie after it."""

_Fetch = Callable[[dg.AssetKey, int], dg.EventRecordsResult]


def make_deep_proof(key: dg.AssetKey, record_count: int) -> dg.AssetObservation:
    """Make the event of a verification that has read every object of the topic, and found all well."""
    return dg.AssetObservation(key, description=DEEP, metadata={"verified": True, "records": record_count})


class Proofs:
    """Reads the last proofs, again and again. Only a topic with a new event costs more than one small query."""

    def __init__(self) -> None:
        self._read: dict[tuple[dg.AssetKey, int], Proof | None] = {}

    def read(
        self, instance: dg.DagsterInstance, connectors: Iterable[str], keys: Iterable[dg.AssetKey]
    ) -> Mapping[str, Mapping[str, Proof]]:
        """Return the last proofs of the connectors' topics, whose assets are among `keys`."""
        names = frozenset(connectors)
        restored = [key for key in keys if len(key.path) > 2 and key.path[1] == "restored" and key.path[0] in names]
        by_connector: dict[str, dict[str, Proof]] = defaultdict(dict)
        for record in instance.get_asset_records(restored) if restored else ():
            entry = record.asset_entry
            # Dagster's own storages keep no last observation beside the asset
            observed = next(iter(instance.fetch_observations(entry.asset_key, 1).records), None)
            last = (
                (entry.last_materialization_record, instance.fetch_materializations),
                (observed, instance.fetch_observations),
            )
            proofs = [proof for event, fetch in last if event and (proof := self._find(entry.asset_key, event, fetch))]
            if proofs:
                by_connector[entry.asset_key.path[0]][entry.asset_key.path[-1]] = max(
                    proofs, key=lambda proof: proof.at
                )
        return by_connector

    def _find(self, key: dg.AssetKey, last: dg.EventLogRecord, fetch: _Fetch) -> Proof | None:
        place = (key, last.storage_id)
        if place not in self._read:
            proof = _read_proof(last)
            events: Sequence[dg.EventLogRecord] = () if proof else fetch(key, MOST_EVENTS).records
            self._read[place] = proof or next(filter(None, map(_read_proof, events)), None)
        return self._read[place]


def _read_proof(record: dg.EventLogRecord) -> Proof | None:
    """Return what the event proves. A dry run, or a restore that was finished before, has compared nothing now."""
    entry = record.event_log_entry
    event = entry.asset_materialization or entry.asset_observation
    about = {name: value.value for name, value in event.metadata.items()} if event else {}
    records = about.get("records")
    if not about.get("verified") or not isinstance(records, int) or not records:
        return None
    if about.get("dry_run") or about.get("already_finished"):
        return None
    how = DEEP if event and event.description == DEEP else "restore"
    return Proof(datetime.fromtimestamp(entry.timestamp, timezone.utc), how, records)
