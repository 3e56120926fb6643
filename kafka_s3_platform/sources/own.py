"""Recognizes the platform's own documents in a bucket: no scan may take them for foreign objects."""

from kafka_s3_platform.config.settings import ArchiveSettings, ConnectorConfig
from kafka_s3_platform.layouts.segment_key import is_offsets_key
from kafka_s3_platform.store.promises import WRITE_CHECK

_FIELDS = ArchiveSettings.model_fields
_FOLDERS = ("index_dir", "restore_dir")
"""The settings of folders of documents: indexes; plans, progress, mappings and reports of restores."""


def is_own_document(key: str, config: ConnectorConfig) -> bool:
    """Return True if a key is a document of ours: in this connector's folders, or in the default folders."""
    configured = (getattr(config.archive, name) for name in _FOLDERS)
    default = (_FIELDS[name].default for name in _FOLDERS)
    folders = tuple(f"{folder}/" for folder in (*configured, *default))
    delims = {config.layout.directory_delim, "/"}
    return (
        key.startswith(folders)
        or key.rpartition("/")[2] == WRITE_CHECK
        or any(is_offsets_key(key, delim) for delim in delims)
    )
