"""Runners that do something between the stages of a restore: `replay` sends, then `verify_stream` reads back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_s3_platform.restore.replay.task import replay
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
        if function is replay:
            self.before_replay()
            yield from super().run(function, [self.replayed(task) for task in tasks], max_concurrent)
            self.after_replay()
        elif function is verify_stream:
            self.before_verify()
            yield from super().run(function, [self.verified(task) for task in tasks], max_concurrent)
        else:
            yield from super().run(function, tasks, max_concurrent)


@dataclass
class StoppingRunner(InProcessRunner):
    """Ends a restore when it comes to `function`."""

    function: object
    error: BaseException = field(default_factory=InterruptedError)

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if function is self.function:
            raise self.error
        return super().run(function, tasks, max_concurrent)
