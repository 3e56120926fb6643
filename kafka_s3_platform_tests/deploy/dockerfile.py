"""Reads a Dockerfile, as far as ours goes: its stages, and the steps of each."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

STEPS = frozenset({"FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "CMD"})


@dataclass(frozen=True)
class Step:
    """An instruction and what follows it, as one line."""

    name: str
    text: str

    @property
    def command(self) -> list[str]:
        """The command of RUN or CMD, or of HEALTHCHECK's CMD."""
        text = self.text.partition("CMD ")[2] if self.name == "HEALTHCHECK" else self.text
        return list(map(str, json.loads(text))) if text.startswith("[") else ["/bin/sh", "-c", text]

    @property
    def variables(self) -> dict[str, str]:
        """The variables of ENV."""
        return dict(word.split("=", 1) for word in shlex.split(self.text))


@dataclass(frozen=True)
class Stage:
    """What one FROM begins. `base` is an image, or the name of an earlier stage."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)


def read_stages(path: Path) -> list[Stage]:
    """Read the stages of a Dockerfile. ValueError if it has an instruction that this module does not know."""
    stages: list[Stage] = []
    for step in _read_steps(path.read_text()):
        if step.name not in STEPS:
            raise ValueError(f"{path}: {step.name} is not known to this reader")
        if step.name == "FROM":
            base, _, name = step.text.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            stages[-1].steps.append(step)
    return stages


def _read_steps(text: str) -> Iterator[Step]:
    without_comments = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", without_comments).splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield Step(name, rest.strip())
