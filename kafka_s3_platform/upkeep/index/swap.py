"""Replace files of an index by new ones, while runs commit."""

from collections.abc import Sequence

from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.store.index_commit import retry_commit
from kafka_s3_platform.store.index_files.data_files import IndexFile, NewFile, list_index_files


def swap_files(
    index: ConnectorIndex, added: Sequence[NewFile], removed: Sequence[IndexFile], *, same_rows: bool
) -> bool:
    """Commit on the newest version as long as all files to be removed are live. Return False if one is not any more.

    `same_rows`: the new files hold the same rows as the others. Raises store errors.
    """
    old = {file.path for file in removed}
    new = {file.path for file in added}

    def step(snapshot: ConnectorSnapshot) -> bool:
        live = {file.path for file in list_index_files(index.table, snapshot.handle)}
        if new <= live:
            return True  # the response of an earlier try was lost
        if not old <= live:
            return False
        snapshot.swap_files(added, removed, same_rows=same_rows)
        return True

    return retry_commit(index, step)
