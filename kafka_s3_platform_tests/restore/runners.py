"""Runners that do something between the stages of a restore: `replay_streams` sends, then `verify_stream` reads back.

A stream that is alone in its kafka partition of the target is read back as soon as it is sent, and again only if that
kafka partition has changed. Where a step comes before `verify_stream`, all are read back then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.restore.execution import replay_streams
from kafka_s3_platform.restore.verify.read_back import verify_stream
from kafka_s3_platform_tests.support import InProcessRunner

Step = Callable[[], object]
Change = Callable[[Any], Any]


def do_nothing() -> None:
    """The step of a runner that has none there."""


@dataclass
class Between(InProcessRunner):
    """Takes steps before and after everything is sent, and changes the tasks that send and that read back."""

    before_replay: Step = do_nothing
    after_replay: Step = do_nothing
    before_verify: Step = do_nothing
    replayed: Change = lambda task: task
    verified: Change = lambda task: task

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is replay_streams:
            self.before_replay()
            is_early = (self.before_verify, self.verified) == (do_nothing, Between.verified)
            groups = tasks if is_early else _read_back_at_the_end(tasks)
            changed = [tuple(map(self.replayed, group)) for group in groups]
            yield from super().run(function, changed, max_concurrent)
            self.after_replay()
        elif function is verify_stream:
            self.before_verify()
            yield from super().run(function, [self.verified(task) for task in tasks], max_concurrent)
        else:
            yield from super().run(function, tasks, max_concurrent)


@dataclass
class ReadingBack(Between):
    """Notes the kafka partitions that are read back after everything was sent, and takes a step when one is first."""

    meanwhile: Step = do_nothing
    read_again: list[int] = field(default_factory=list)

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is verify_stream and tasks:
            if not self.read_again:
                self.meanwhile()
            self.read_again += [task.kafka_partition for task in tasks]
        yield from super().run(function, tasks, max_concurrent)


@dataclass
class StoppingRunner(InProcessRunner):
    """Ends a restore when it comes to `function`."""

    function: object
    error: BaseException = field(default_factory=InterruptedError)

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is self.function:
            raise self.error
        groups = _read_back_at_the_end(tasks) if function is replay_streams else tasks
        return super().run(function, groups, max_concurrent)


def _read_back_at_the_end(groups: Sequence[Any]) -> Sequence[Any]:
    return [tuple(replace(task, is_read_back_early=False) for task in group) for group in groups]


class InterruptedRunner(InProcessRunner):
    """Ends a restore in the middle: the archive's last object is not there when it is asked for."""

    def __init__(self, config: ConnectorConfig, s3_client: Any) -> None:
        self._bucket, self._s3 = config.store.bucket, s3_client
        self._topic = config.topics[0]

    def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
        if function is not replay_streams:
            return super().run(function, tasks, max_concurrent)
        return self._interrupted(function, tasks, max_concurrent)

    def _interrupted(self, function: Any, tasks: Any, max_concurrent: int) -> Iterable[Any]:
        key = max(o.key for group in tasks for t in group for o in t.stream.objects)
        body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        self._s3.delete_object(Bucket=self._bucket, Key=key)
        try:
            yield from super().run(function, tasks, max_concurrent)
        finally:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body)
