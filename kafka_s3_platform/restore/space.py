"""Whether the target's brokers have room for what is restored. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_s3_platform.kafka.disk_space import DiskSpace
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.target import Finding, refusal, remark

MAX_NAMED = 10
"""Brokers that a finding names: those with the least room."""


@dataclass(frozen=True)
class Room:
    """Where the target's replicas are, or are going to be.

    `replicas` is kafka partition -> broker ids, empty where there is no topic yet; `replication_factor` is then what is
    asked for. `configs` are those in force, or those that the new topic gets.
    """

    spaces: Mapping[int, DiskSpace]
    replicas: Mapping[int, tuple[int, ...]]
    replication_factor: int | None
    configs: Mapping[str, str]

    @property
    def holders(self) -> dict[int, DiskSpace]:
        """The brokers that hold replicas: any, where there is no topic yet."""
        named = {b for brokers in self.replicas.values() for b in brokers} or self.spaces
        return {b: self.spaces.get(b, DiskSpace(None, "it is not in service")) for b in sorted(named)}

    @property
    def least_copies(self) -> int:
        if self.replicas:
            return min(map(len, self.replicas.values()))
        return self.replication_factor or 1


def space_findings(request: RestoreRequest, plan: RestorePlan, room: Room) -> Iterator[Finding]:
    """A refusal where it is certain that the records do not fit, else what is known."""
    if not plan.objects:
        return
    needs = _needs(plan, room) if room.replicas else {}
    lack = _lack(plan, room, needs) if _is_least(request, plan, room) else None
    if lack is not None:
        yield refusal(
            f"{request.to_topic} does not fit: {lack}. Keys, values and headers alone are that many bytes, and nothing "
            f"compresses them. Make room, restore less, or compress: producer.compression.type=zstd in the target's "
            f"worker file, with compression.type=producer on the topic"
        )
    else:
        yield remark(_known(request, plan, room, needs))


def objects_finding(object_bytes: int, spaces: Mapping[int, DiskSpace]) -> Finding:
    """What is known before objects are read whose index nobody has."""
    what = f"objects of {object_bytes:,} bytes are restored; what their records take is not known"
    return remark(_with_usable(what, Room(spaces, {}, None, {}), {}))


def _needs(plan: RestorePlan, room: Room) -> dict[int, int]:
    """Broker id -> bytes that come to it. Where keys decide, every kafka partition counts as getting the same."""
    count = len(room.replicas)
    needs = dict.fromkeys(room.holders, 0)
    for number, brokers in room.replicas.items():
        if plan.keeps_numbers:
            size = sum(o.record_bytes for o in plan.objects_of(number))
        else:
            size = -(-plan.record_bytes // count)
        for broker in brokers:
            needs[broker] += size
    return needs


def _is_least(request: RestoreRequest, plan: RestorePlan, room: Room) -> bool:
    """Whether at least `record_bytes` of the plan's objects come to lie on the disks of each replica."""
    outgoing = request.outgoing
    as_archived = plan.exact and not (outgoing.key or outgoing.value) and request.on_error == "fail"
    tiered = room.configs.get("remote.storage.enable") == "true"
    # A plan whose target is known has begun: some of it may be there already.
    return as_archived and plan.target is None and not tiered and _is_plain(request, room)


def _is_plain(request: RestoreRequest, room: Room) -> bool:
    """Whether nobody compresses. A new topic may get its compression from its brokers' default, which is not known."""
    producer = request.target_kafka.properties("producer")
    names = ("compression.type", "compression.codec")
    sent_plain = all(producer.get(name, "none") == "none" for name in names)
    kept = room.configs.get("compression.type")
    return kept == "uncompressed" or (kept == "producer" and sent_plain)


def _lack(plan: RestorePlan, room: Room, needs: Mapping[int, int]) -> str | None:
    """What cannot fit, None where it may. What is not known has room."""
    usable = {b: s.usable_bytes for b, s in room.holders.items() if s.usable_bytes is not None}
    if plan.keeps_numbers:
        short = [b for b, size in needs.items() if b in usable and size > usable[b]]
        if short:
            return "; ".join(f"broker {b} gets {needs[b]:,} bytes and has {usable[b]:,} usable" for b in short)
    total = plan.record_bytes * room.least_copies
    if len(usable) == len(room.holders) and usable and total > sum(usable.values()):
        copies = f" in {room.least_copies} replicas" if room.least_copies > 1 else ""
        return f"{total:,} bytes{copies} come to brokers that have {sum(usable.values()):,} usable together"
    return None


def _known(request: RestoreRequest, plan: RestorePlan, room: Room, needs: Mapping[int, int]) -> str:
    what = (
        f"{request.to_topic} needs up to {plan.record_bytes:,} bytes of keys, values and headers for each replica, "
        f"before compression"
    )
    return _with_usable(what, room, needs)


def _with_usable(what: str, room: Room, needs: Mapping[int, int]) -> str:
    if all(s.usable_bytes is None for s in room.holders.values()):
        reasons = "; ".join(f"broker {b}: {s.reason}" for b, s in list(room.holders.items())[:MAX_NAMED])
        return f"free space of the target's brokers is not known{f' ({reasons})' if reasons else ''}: {what}"
    return f"{what}. Usable are {'; '.join(_tightest(room, needs))}"


def _tightest(room: Room, needs: Mapping[int, int]) -> list[str]:
    """A line for each broker, those with the least room first."""

    def left(broker: int) -> int:
        return (room.holders[broker].usable_bytes or 0) - needs.get(broker, 0)

    ordered = sorted(room.holders, key=left)
    lines = [_line(b, room.holders[b], needs.get(b)) for b in ordered[:MAX_NAMED]]
    more = len(ordered) - MAX_NAMED
    return [*lines, f"more on {more} other brokers"] if more > 0 else lines


def _line(broker: int, space: DiskSpace, need: int | None) -> str:
    use = "" if need is None else f" for up to {need:,}"
    if space.usable_bytes is None:
        return f"an unknown number on broker {broker}{use} ({space.reason})"
    return f"{space.usable_bytes:,} bytes on broker {broker}{use}"
