"""What is worth telling of records that are archived, but not quite as they came."""

from dataclasses import dataclass, field


class DoubtNote(str):
    """A note without which a verdict would say too much: of something that nothing was compared with."""

    __slots__ = ()


@dataclass
class Notes:
    """Counts records by what is told of them, with what was seen first of each kind."""

    kinds: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, told: str, seen: str, records: int = 1) -> None:
        """Count records. `told` follows their number in a sentence."""
        before, first = self.kinds.get(told, (0, seen))
        self.kinds[told] = before + records, first

    def join(self, other: "Notes") -> None:
        """Add the records of others."""
        for told, (records, seen) in other.kinds.items():
            self.note(told, seen, records)

    @property
    def sentences(self) -> list[str]:
        """One for each kind of records."""
        return [f"{records:,} records {told} (the first one: {seen})" for told, (records, seen) in self.kinds.items()]
