"""What `kafka-s3 doctor` and `check --connect` find: one verdict for each thing that is looked at."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_s3_platform.cli.output import Verdict
from kafka_s3_platform.errors import PlatformError

logger = logging.getLogger(__name__)


class Judgement(Enum):
    """How a thing is. Only `WRONG` makes a command fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what was found, with what to do if it is not well."""

    what: str
    judgement: Judgement
    found: str


Look = Callable[[], Iterable[Finding]]
"""Looks at one thing after the other. What it raises ends it, and is a finding."""


def gather_findings(looks: Mapping[str, Look], seconds: float) -> list[Finding]:
    """Look at everything at the same time, for so many seconds. Return the findings in the order of `looks`.

    A look that has not ended then is left behind: what it found so far counts, and that it did not end is a finding.
    """
    found: dict[str, list[Finding]] = {what: [] for what in looks}
    threads = {
        # a daemon: no command waits at its end for a server that never answers
        what: threading.Thread(target=_gather, args=(what, look, found[what]), daemon=True)
        for what, look in looks.items()
    }
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for what, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            silent = f"no answer in {seconds:g} s. What would have been tried after that was not"
            found[what] = [*found[what], Finding(what, Judgement.WRONG, silent)]
    return [finding for each in found.values() for finding in each]


def _gather(what: str, look: Look, found: list[Finding]) -> None:
    try:
        for finding in look():
            found.append(finding)  # noqa: PERF402 - each as it comes: the next may never come
    except (PlatformError, OSError) as err:
        found.append(Finding(what, Judgement.WRONG, str(err)))
    except Exception as err:
        # a defect of ours hides nothing else
        logger.exception("%s", what)
        found.append(Finding(what, Judgement.WRONG, f"{type(err).__name__}: {err}"))


def judge(what: str, attempt: Callable[[], str]) -> Finding:
    """Return what `attempt` returns as a good finding, or the error that it raises as a bad one."""
    try:
        return Finding(what, Judgement.OK, attempt())
    except PlatformError as err:
        return Finding(what, Judgement.WRONG, str(err))


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.judgement is not Judgement.WRONG for finding in findings)


def describe_findings(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return findings for JSON."""
    return [{"what": f.what, "judgement": f.judgement.value, "found": f.found} for f in findings]


def format_findings(findings: Iterable[Finding]) -> Iterator[str | Verdict]:
    """Yield a line for each finding."""
    for finding in findings:
        line = f"{finding.judgement.value:<9}  {finding.what}: {finding.found}"
        is_plain = finding.judgement is Judgement.NOT_TRIED
        yield line if is_plain else Verdict(line, is_good=finding.judgement is Judgement.OK)
