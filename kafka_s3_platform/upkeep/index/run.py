"""The upkeep of a connector's index: fold old rows, merge files, write a checkpoint, remove expired files.

Each step is a commit or a removal of its own, without a change to any answer of the index. Killed at any moment, the
next upkeep goes on. Runs may archive meanwhile: their commits win, and the upkeep reads the index again.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import AuthorizationError
from kafka_s3_platform.store.index import ConnectorIndex
from kafka_s3_platform.store.index_files.log_files import list_log
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.upkeep.index.cleanup import KEPT, CleanupReport, remove_expired
from kafka_s3_platform.upkeep.index.fold import FoldReport, fold_index
from kafka_s3_platform.upkeep.index.merge import MergeReport, merge_files


@dataclass(frozen=True)
class UpkeepReport:
    """Result of each step, or on a dry run its plan.

    `version` is the index's afterwards, None if nothing was archived yet; `checkpoint` is True if one was written.
    `refused` names the right that the removal lacks: all other steps are done.
    """

    uri: str
    dry_run: bool
    version: int | None = None
    fold: FoldReport = field(default_factory=FoldReport)
    merge: MergeReport = field(default_factory=MergeReport)
    checkpoint: bool = False
    cleanup: CleanupReport = field(default_factory=CleanupReport)
    refused: str | None = None

    def raise_refusal(self) -> None:
        """Raise AuthorizationError if the right to delete was missing."""
        if self.refused is not None:
            raise AuthorizationError(self.refused)


def keep_up_index(config: ConnectorConfig, dry_run: bool, retention: timedelta = KEPT) -> UpkeepReport:
    """Do all steps. A dry run reports them, and changes nothing.

    Versions stay readable for `retention` after they were the newest. Raises store errors; a second call does the
    rest.
    """
    index = ConnectorIndex.of(config)
    if index.peek() is None:
        return UpkeepReport(index.uri, dry_run)
    # ages are decided by times of the store and of this machine
    refuse_wrong_clock(config, ObjectStore(config.store))
    now = datetime.now(timezone.utc)
    fold = fold_index(index, timedelta(milliseconds=config.archive.allowed_lateness_ms), now, dry_run)
    merge = merge_files(index, now.date(), dry_run)
    checkpoint = _write_checkpoint(index, dry_run)
    cleanup = CleanupReport()
    refused = None
    try:
        cleanup = remove_expired(index, retention, dry_run)
    except AuthorizationError as err:
        refused = str(err)
    return UpkeepReport(index.uri, dry_run, index.open().version, fold, merge, checkpoint, cleanup, refused)


def _write_checkpoint(index: ConnectorIndex, dry_run: bool) -> bool:
    """Write a checkpoint of the newest version if there is none. Return whether one was missing."""
    handle = index.table.open()
    if handle.table.version() in list_log(index.table).checkpoints:
        return False
    if not dry_run:
        index.table.run("write a checkpoint of", handle.table.create_checkpoint)
    return True
