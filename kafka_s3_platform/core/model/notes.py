"""Notes on records archived with a difference."""

from dataclasses import dataclass, field


class DoubtNote(str):
    """A note on something that was not compared with anything. It limits a verdict."""

    __slots__ = ()


@dataclass
class Notes:
    """Counts records by their note, with the first example of each kind."""

    kinds: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, what: str, example: str, records: int = 1) -> None:
        """Count records. `what` follows their number in a sentence."""
        before, first = self.kinds.get(what, (0, example))
        self.kinds[what] = before + records, first

    def join(self, other: "Notes") -> None:
        """Add the records counted by `other`."""
        for what, (records, example) in other.kinds.items():
            self.note(what, example, records)

    @property
    def sentences(self) -> list[str]:
        """One sentence for each kind of records."""
        return [
            f"{records:,} records {what} (the first one: {example})" for what, (records, example) in self.kinds.items()
        ]
