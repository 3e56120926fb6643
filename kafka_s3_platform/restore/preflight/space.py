"""Check whether the target's brokers have room for the restored records. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_s3_platform.kafka.disk_space import DiskSpace
from kafka_s3_platform.restore.preflight.target import PreflightFinding, make_refusal, make_remark
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.base import TargetPlan

MAX_NAMED = 10
"""A finding names so many brokers at most: those with the least room."""


@dataclass(frozen=True)
class Room:
    """The brokers that hold the target's replicas, or may get them.

    `replicas` is kafka partition -> broker ids. It is empty if there is no topic yet: then `replication_factor` is the
    requested one. `configs` are those in force, or those that the new topic gets.
    """

    spaces: Mapping[int, DiskSpace]
    replicas: Mapping[int, tuple[int, ...]]
    replication_factor: int | None
    configs: Mapping[str, str]

    @property
    def holders(self) -> dict[int, DiskSpace]:
        """The brokers that hold replicas. All brokers, if there is no topic yet."""
        named = set().union(*self.replicas.values()) or self.spaces
        return {b: self.spaces.get(b, DiskSpace(None, "it is not in service")) for b in sorted(named)}

    @property
    def least_copies(self) -> int:
        """The smallest number of replicas that a kafka partition has or gets."""
        if self.replicas:
            return min(map(len, self.replicas.values()))
        return self.replication_factor or 1


def check_space(request: RestoreRequest, plan: TargetPlan, room: Room) -> Iterator[PreflightFinding]:
    """Refuse if the records certainly do not fit, else report what is known."""
    if not plan.objects or plan.record_bytes is None:
        return
    needs = _sum_needs(plan, room) if room.replicas else {}
    lack = _describe_lack(plan, room, needs) if _is_least(request, plan, room) else None
    if lack is not None:
        yield make_refusal(
            f"{request.to_topic} does not fit: {lack}. Keys, values and headers alone are that many bytes, and nothing "
            f"compresses them. Make room, restore less, or compress: producer.compression.type=zstd in the target's "
            f"worker file, with compression.type=producer on the topic"
        )
    else:
        yield make_remark(_describe_need(request, plan, room, needs))


def describe_space(object_bytes: int, spaces: Mapping[int, DiskSpace]) -> PreflightFinding:
    """Report the room for listed objects: without an index, the bytes of their records are not known."""
    what = f"objects of {object_bytes:,} bytes are restored; what their records take is not known"
    return make_remark(_add_usable(what, Room(spaces, {}, None, {}), {}))


def _sum_needs(plan: TargetPlan, room: Room) -> dict[int, int]:
    """Return the bytes that each broker gets, by its id. If keys decide, kafka partitions count as equally large."""
    count = len(room.replicas)
    needs = dict.fromkeys(room.holders, 0)
    for number, brokers in room.replicas.items():
        if plan.asked.keeps_numbers:
            size = sum(o.largest_bytes for o in plan.objects_of(number))
        else:
            size = -(-plan.largest_bytes // count)
        for broker in brokers:
            needs[broker] += size
    return needs


def _is_least(request: RestoreRequest, plan: TargetPlan, room: Room) -> bool:
    """Whether each replica certainly stores at least `record_bytes` of the plan's objects on its disks."""
    outgoing = request.outgoing
    as_archived = plan.is_exact and not (outgoing.key or outgoing.value) and request.on_error == "fail"
    tiered = room.configs.get("remote.storage.enable") == "true"
    # A plan whose target is known has begun: a part of its records may be there already.
    return as_archived and plan.start is None and not tiered and _is_plain(request, room)


def _is_plain(request: RestoreRequest, room: Room) -> bool:
    """Whether nobody compresses.

    A new topic without the config may get its compression from the default of its brokers, which is not known.
    """
    producer = request.target_kafka.properties("producer")
    names = ("compression.type", "compression.codec")
    sent_plain = all(producer.get(name, "none") == "none" for name in names)
    kept = room.configs.get("compression.type")
    return kept == "uncompressed" or (kept == "producer" and sent_plain)


def _describe_lack(plan: TargetPlan, room: Room, needs: Mapping[int, int]) -> str | None:
    """Explain what cannot fit. None if all may fit. A broker whose room is unknown counts as large enough."""
    usable = {b: s.usable_bytes for b, s in room.holders.items() if s.usable_bytes is not None}
    if plan.asked.keeps_numbers:
        short = [b for b, size in needs.items() if b in usable and size > usable[b]]
        if short:
            return "; ".join(f"broker {b} gets {needs[b]:,} bytes and has {usable[b]:,} usable" for b in short)
    total = plan.largest_bytes * room.least_copies
    if len(usable) == len(room.holders) and usable and total > sum(usable.values()):
        copies = f" in {room.least_copies} replicas" if room.least_copies > 1 else ""
        return f"{total:,} bytes{copies} come to brokers that have {sum(usable.values()):,} usable together"
    return None


def _describe_need(request: RestoreRequest, plan: TargetPlan, room: Room, needs: Mapping[int, int]) -> str:
    what = (
        f"{request.to_topic} needs up to {plan.largest_bytes:,} bytes of keys, values and headers for each replica, "
        f"before compression"
    )
    return _add_usable(what, room, needs)


def _add_usable(what: str, room: Room, needs: Mapping[int, int]) -> str:
    if all(s.usable_bytes is None for s in room.holders.values()):
        reasons = "; ".join(f"broker {b}: {s.reason}" for b, s in list(room.holders.items())[:MAX_NAMED])
        return f"free space of the target's brokers is not known{f' ({reasons})' if reasons else ''}: {what}"
    return f"{what}. Usable are {'; '.join(_list_tightest(room, needs))}"


def _list_tightest(room: Room, needs: Mapping[int, int]) -> list[str]:
    """Return a line for each broker, those with the least room first."""

    def left(broker: int) -> int:
        return (room.holders[broker].usable_bytes or 0) - needs.get(broker, 0)

    ordered = sorted(room.holders, key=left)
    lines = [_describe_broker(b, room.holders[b], needs.get(b)) for b in ordered[:MAX_NAMED]]
    more = len(ordered) - MAX_NAMED
    if more > 0:
        return [*lines, f"more on {more} other brokers"]
    return lines


def _describe_broker(broker: int, space: DiskSpace, need: int | None) -> str:
    use = "" if need is None else f" for up to {need:,}"
    if space.usable_bytes is None:
        return f"an unknown number on broker {broker}{use} ({space.reason})"
    return f"{space.usable_bytes:,} bytes on broker {broker}{use}"
