"""What this platform writes into a bucket besides records: never taken for objects of others, wherever these lie."""

from kafka_s3_platform.config.settings import ArchiveSettings, ConnectorConfig
from kafka_s3_platform.partitioners.keys import is_offsets_key
from kafka_s3_platform.store.promises import WRITE_CHECK

_FIELDS = ArchiveSettings.model_fields
_FOLDERS = ("index_dir", "restore_dir")
"""The settings that name a folder of documents: indexes; plans, progress, mappings and reports of restores."""


def is_own(key: str, config: ConnectorConfig) -> bool:
    """Whether a key is a document of ours, by this connector's folders or by those of connectors that name none."""
    own = (getattr(config.archive, name) for name in _FOLDERS)
    default = (_FIELDS[name].default for name in _FOLDERS)
    folders = tuple(f"{folder}/" for folder in (*own, *default))
    delims = {config.layout.directory_delim, "/"}
    return (
        key.startswith(folders)
        or key.rpartition("/")[2] == WRITE_CHECK
        or any(is_offsets_key(key, delim) for delim in delims)
    )
