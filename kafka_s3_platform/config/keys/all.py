"""The table of all keys of connector files, and of their effects in this version.

The loader, the check report and `docs/connector-files.md` read it.
"""

from kafka_s3_platform.config.keys.archive import ARCHIVE_KEYS
from kafka_s3_platform.config.keys.general import GENERAL_KEYS
from kafka_s3_platform.config.keys.layout import LAYOUT_KEYS, SEGMENT_BYTES
from kafka_s3_platform.config.keys.lenses import LENSES_KEYS
from kafka_s3_platform.config.keys.limits import LIMIT_KEYS
from kafka_s3_platform.config.keys.records import RECORD_KEYS
from kafka_s3_platform.config.keys.source import SOURCE_KEYS
from kafka_s3_platform.config.keys.store import STORE_KEYS
from kafka_s3_platform.config.keys.table import KeyTable

OWN_KEYS = (*ARCHIVE_KEYS, SEGMENT_BYTES, *LIMIT_KEYS)
ALL_KEYS = (*GENERAL_KEYS, *RECORD_KEYS, *LAYOUT_KEYS, *STORE_KEYS, *SOURCE_KEYS, *LENSES_KEYS, *OWN_KEYS)
CONNECTOR_KEYS = KeyTable(ALL_KEYS)
