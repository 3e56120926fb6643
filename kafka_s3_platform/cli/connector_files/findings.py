"""Findings of `kafka-s3 doctor` and `check --connect`: a verdict on each tried thing."""

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
    """A verdict. Only `WRONG` makes a command fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """The verdict on the thing `what`. `detail` has the facts, with advice if something is wrong."""

    what: str
    judgement: Judgement
    detail: str


Probe = Callable[[], Iterable[Finding]]
"""Tries one thing after the other. An error that it raises ends it, and becomes a finding."""


def gather_findings(probes: Mapping[str, Probe], seconds: float) -> list[Finding]:
    """Run all probes at the same time, for so many seconds. Return the findings in the order of `probes`.

    A slower probe runs on in vain. Its findings so far count, and its silence is one more.
    """
    findings: dict[str, list[Finding]] = {what: [] for what in probes}
    threads = {
        # a daemon: no command waits at its end for a server that never answers
        what: threading.Thread(target=_gather, args=(what, probe, findings[what]), daemon=True)
        for what, probe in probes.items()
    }
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for what, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            silent = f"no answer in {seconds:g} s. What would have been tried after that was not"
            findings[what] = [*findings[what], Finding(what, Judgement.WRONG, silent)]
    return [finding for of_one in findings.values() for finding in of_one]


def _gather(what: str, probe: Probe, findings: list[Finding]) -> None:
    try:
        for finding in probe():
            findings.append(finding)  # noqa: PERF402 - each as it comes: the next may never come
    except (PlatformError, OSError) as err:
        findings.append(Finding(what, Judgement.WRONG, str(err)))
    except Exception as err:
        # a defect of ours hides nothing else
        logger.exception("%s", what)
        findings.append(Finding(what, Judgement.WRONG, f"{type(err).__name__}: {err}"))


def judge(what: str, attempt: Callable[[], str]) -> Finding:
    """Return the text of `attempt` as a good finding, or its error as a bad one."""
    try:
        return Finding(what, Judgement.OK, attempt())
    except PlatformError as err:
        return Finding(what, Judgement.WRONG, str(err))


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.judgement is not Judgement.WRONG for finding in findings)


def describe_findings(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return findings for JSON."""
    return [{"what": f.what, "judgement": f.judgement.value, "found": f.detail} for f in findings]


def format_findings(findings: Iterable[Finding]) -> Iterator[str | Verdict]:
    """Yield a line for each finding."""
    for finding in findings:
        line = f"{finding.judgement.value:<9}  {finding.what}: {finding.detail}"
        is_plain = finding.judgement is Judgement.NOT_TRIED
        yield line if is_plain else Verdict(line, is_good=finding.judgement is Judgement.OK)
