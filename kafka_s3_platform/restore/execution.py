"""Sending and verifying a plan that is in the bucket, whichever archive it is of, and the report of it."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.restore.checkpoint import Position, positions, save_document
from kafka_s3_platform.restore.foreign_stream import ForeignStreamTask
from kafka_s3_platform.restore.plan import TargetStart
from kafka_s3_platform.restore.rates import shares
from kafka_s3_platform.restore.replay import ReplayResult, ReplayTask, replay
from kafka_s3_platform.restore.report_page import save_page
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.verification import Verification, Verified
from kafka_s3_platform.restore.watch import CheckpointWatch
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Execution:
    """The streams of a restore that has begun, and its target topics. `store` is where its documents are."""

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    targets: Mapping[str, TargetStart]
    store: ObjectStore
    runner: TaskRunner

    def run(self, planned: RestoreReport) -> RestoreReport:
        """Send what has not arrived, read everything back, and store the report, which marks the restore as finished.

        Raises:
            PlatformError: what went wrong; where it was in sending, the message ends with how far each stream came.
        """
        tasks = self._limited()
        started = time.monotonic()
        sent = self._replay(tasks)
        replayed = time.monotonic()
        verified = Verification(self.request, tasks, self.targets, self.runner).run(sent)
        report = replace(
            _verified(planned, verified),
            left_out=tuple(sorted(key for r in sent for key in r.left_out)),
            sent_count=sum(r.sent_count for r in sent),
            replay_seconds=replayed - started,
            verify_seconds=time.monotonic() - replayed,
            finished_at=datetime.now(timezone.utc).isoformat(),
        )
        # The page first: the document is what marks the restore as finished.
        save_page(self.store, self.request.page_key, report)
        save_document(self.store, self.request.report_key, report.to_json())
        return report

    def _limited(self) -> list[ReplayTask]:
        """Each with its share of the limits; the largest first, so that no long one is left for the end."""
        request, tasks = self.request, self.streams
        at_once = self.runner.at_once(request.config.tasks_max) if tasks else 1
        records = shares(request.records_per_second, [t.stream.record_count for t in tasks], at_once)
        sizes = shares(request.bytes_per_second, [t.stream.record_bytes for t in tasks], at_once)
        limits = zip(tasks, records, sizes, strict=True)
        limited = [replace(t, records_per_second=r, bytes_per_second=b) for t, r, b in limits]
        return sorted(limited, key=lambda t: -t.stream.record_count)

    def _replay(self, tasks: Sequence[ReplayTask]) -> list[ReplayResult]:
        what, expected = f"restore {self.request.restore_id}", sum(t.stream.record_count for t in tasks)
        progress, results = Progress(logger, what, len(tasks), expected), list[ReplayResult]()
        counts_bytes = any(isinstance(t.stream, ForeignStreamTask) for t in tasks)
        passed = partial(_passed_bytes, tasks) if counts_bytes else None
        with CheckpointWatch(self.store, what, [t.checkpoint_key for t in tasks], expected, passed):
            try:
                for result in self.runner.run(replay, tasks, self.request.config.tasks_max):
                    progress.advance(result.size, result.sent_count, result.sent_bytes)
                    results.append(result)
            except PlatformError as err:
                raise type(err)(f"{err}\n{self._how_far(tasks)}") from err
        return results

    def _how_far(self, tasks: Sequence[ReplayTask]) -> str:
        in_order = sorted(tasks, key=lambda t: (t.stream.topic, t.kafka_partition))
        try:
            reached = positions(self.store, [t.checkpoint_key for t in in_order])
        except PlatformError as err:
            return f"How far it came cannot be read from the bucket: {err}"
        places = "; ".join(_how_far(t, p) for t, p in zip(in_order, reached, strict=True))
        return (
            f"How far restore {self.request.restore_id} came: {places}. Run it again under the same id to go on, "
            f"unless the error says otherwise"
        )


def _verified(planned: RestoreReport, found: Verified) -> RestoreReport:
    parts = found.kafka_partitions
    notes = dict.fromkeys(f"{p.topic}-{p.kafka_partition}: {note}" for p in parts for note in p.notes)
    return replace(
        planned,
        kafka_partitions=parts,
        record_count=sum(p.record_count for p in parts),
        record_bytes=sum(p.record_bytes for p in parts),
        exact=True,
        out_of_range_count=sum(p.out_of_range_count for p in parts),
        gaps=(*planned.gaps, *(gap for p in parts for gap in p.gaps)),
        notes=(*planned.notes, *notes, *found.notes),
        skipped=(*planned.skipped, *(line for p in parts for line in p.skipped)),
        targets=found.targets,
        verified=True,
    )


def _passed_bytes(tasks: Sequence[ReplayTask], reached: Sequence[Position | None]) -> int:
    """Bytes of the objects that were sent, about."""
    found = ((t.stream, p) for t, p in zip(tasks, reached, strict=True) if p is not None)
    return sum(s.bytes_before(p.next_source_offset) for s, p in found if isinstance(s, ForeignStreamTask))


def _how_far(task: ReplayTask, position: Position | None) -> str:
    where = f"{task.stream.topic}-{task.kafka_partition}"
    if position is None or not position.record_count:
        # Of a run that was superseded, nothing is noted of what it has committed since its last checkpoint.
        return f"{where}: no record is noted as delivered to {task.to_topic}"
    said = (
        f"{where}: {position.record_count:,} records, those below source offset {position.next_source_offset}, were "
        f"delivered to {task.to_topic}"
    )
    return said if position.next_target_offset is None else f"{said} below offset {position.next_target_offset}"
