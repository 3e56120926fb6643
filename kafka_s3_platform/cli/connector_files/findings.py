"""Findings of `kafka-s3 doctor` and `check`: a verdict on each tried thing, and warnings of likely mistakes."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from urllib.parse import urlsplit

from kafka_s3_platform.cli.messages import Verdict
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.partitioners.folders import explain_shared_folder
from kafka_s3_platform.operate.local.settings import HOST, StackSettings, name_variable


def list_warnings(config: ConnectorConfig, stack: StackSettings) -> Iterator[str]:
    """Yield likely mistakes. `stack` is the embedded stack as the variables in force describe it."""
    if shared := explain_shared_folder(config.layout):
        yield shared
    for key, field, address in _list_addresses(config):
        port = getattr(stack, field)
        if _is_of_this_machine(address) and urlsplit(f"//{address}").port != port:
            variable = name_variable(field)
            yield (
                f"{key} is at {address} of this machine. The embedded stack has {HOST}:{port}, by {variable}: write "
                f"{HOST}:${{env:{variable}}}, if that is meant and not another stack"
            )


def _list_addresses(config: ConnectorConfig) -> Iterator[tuple[str, str, str]]:
    """Yield each server of the file: a name for it, the field of the stack's port, its host and port."""
    for server in config.kafka.bootstrap_servers.split(","):
        yield "the broker (bootstrap.servers)", "kafka_port", server.strip().rpartition("//")[2]
    if config.store.endpoint_url:
        yield "the store (store.url)", "s3_port", urlsplit(config.store.endpoint_url).netloc.rpartition("@")[2]
    converters = (config.records.value, config.records.key)
    urls = dict.fromkeys(converter.registry.url for converter in converters if converter.registry)
    for url in ",".join(urls).split(","):
        if url:
            yield "the Schema Registry", "registry_port", urlsplit(url.strip()).netloc.rpartition("@")[2]


def _is_of_this_machine(address: str) -> bool:
    """Return True if host and port (`address`) are a loopback address."""
    host = urlsplit(f"//{address}").hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


logger = logging.getLogger(__name__)


class Judgement(Enum):
    """A verdict. Only `WRONG` makes a command fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """The verdict on the thing named by `what`. `detail` has the facts, with advice if something is wrong."""

    what: str
    judgement: Judgement
    detail: str


Probe = Callable[[], Iterable[Finding]]
"""Tries one thing after the other. An error ends it, and becomes a finding."""


def gather_findings(probes: Mapping[str, Probe], seconds: float) -> list[Finding]:
    """Run all probes at the same time, for at most `seconds`. Return the findings in the order of `probes`.

    Of a slower probe, the findings until then count, and its silence is one more finding.
    """
    findings: dict[str, list[Finding]] = {subject: [] for subject in probes}
    threads = {
        # a daemon: no command waits at its end for a server that never answers
        subject: threading.Thread(target=_gather, args=(subject, probe, findings[subject]), daemon=True)
        for subject, probe in probes.items()
    }
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for subject, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            silent = f"no answer in {seconds:g} s. What would have been tried after that was not"
            findings[subject] = [*findings[subject], Finding(subject, Judgement.WRONG, silent)]
    return [finding for subject_findings in findings.values() for finding in subject_findings]


def _gather(subject: str, probe: Probe, findings: list[Finding]) -> None:
    """Add the findings of a probe to the list as they come, and its error as the last one."""
    try:
        for finding in probe():
            findings.append(finding)  # noqa: PERF402 - each as it comes: the next may never come
    except (PlatformError, OSError) as err:
        findings.append(Finding(subject, Judgement.WRONG, str(err)))
    except Exception as err:
        # a defect of ours hides nothing else
        logger.exception("%s", subject)
        findings.append(Finding(subject, Judgement.WRONG, f"{type(err).__name__}: {err}"))


Answer = str | tuple[Judgement, str]
"""The detail of a finding, with its verdict unless it is `OK`."""


def judge(subject: str, attempt: Callable[[], Answer]) -> Finding:
    """Return the answer of `attempt` as a finding on `subject`, or its error as a bad one."""
    try:
        answer = attempt()
    except PlatformError as err:
        answer = (Judgement.WRONG, str(err))
    return Finding(subject, Judgement.OK, answer) if isinstance(answer, str) else Finding(subject, *answer)


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if no finding is WRONG."""
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
