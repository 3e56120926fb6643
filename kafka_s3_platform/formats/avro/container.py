"""Takes Avro object container files apart, and checks every checksum and every size in them.

Source: Avro specification, "Object Container Files", "Required Codecs" and "Optional Codecs". fastavro's own reader
does not compare snappy's CRC-32.
"""

from collections.abc import Iterator, Mapping
from typing import IO

from kafka_s3_platform.config.codecs import CODECS
from kafka_s3_platform.formats.avro.codecs import AVRO_COMPRESSION, Decompress, TooLargeBlockError
from kafka_s3_platform.formats.damage import build_limit_error
from kafka_s3_platform.formats.magic_bytes import HEAD_BYTES, describe_head
from kafka_s3_platform.model.limits import ReadLimits

# As the specification has them.
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16

_DECOMPRESS: Mapping[str, Decompress] = {
    row.avro_name: AVRO_COMPRESSION[row.name].decompress for row in CODECS.values() if row.avro_name
}
"""Each codec, by the name that it has in a container."""


class AvroContainer:
    """The metadata and the blocks of a file. `key` names the file in errors.

    Raises:
        ValueError: the file is no container, or it is damaged or cut off. Errors of the codecs pass through.
        IntegrityError: the file exceeds `limits`.
    """

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits) -> None:
        self._source = source
        self._key = key
        self._limits = limits
        if (magic := self._exactly(len(_MAGIC))) != _MAGIC:
            what = describe_head(magic + source.read(HEAD_BYTES))
            raise ValueError(f"it does not begin as an Avro container does{what and f', it is {what}'}")
        self.metadata: Mapping[str, bytes] = dict(self._pairs())
        self._sync = self._exactly(_SYNC_BYTES)
        codec = self.metadata.get("avro.codec", b"null").decode()
        if codec not in _DECOMPRESS:
            raise ValueError(f"its codec is {codec!r:.40}; known are {', '.join(_DECOMPRESS)}")
        self._decompress = _DECOMPRESS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Return the number of records of each block, and their data in a row."""
        most = self._limits.block_bytes
        while start := self._source.read(1):
            count = self._long(start)
            size = self._long()
            if count < 0 or size < 0:
                raise ValueError(f"a block of {count} records and {size} bytes")
            if size > most:
                raise build_limit_error(self._key, f"has a block of {size:,} bytes", "block.bytes")
            data = self._exactly(size)
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the marker of its file")
            try:
                yield count, self._decompress(data, most)
            except TooLargeBlockError as err:
                raise build_limit_error(self._key, f"has a block of more than {most:,} bytes", "block.bytes") from err

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        remaining = self._limits.footer_bytes
        while count := self._long():
            # After a negative count comes the size of its pairs in bytes.
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                texts = []
                for _ in ("name", "value"):
                    size = self._long()
                    remaining -= size + 1
                    if remaining < 0:
                        what = f"has more than {self._limits.footer_bytes:,} bytes of metadata"
                        raise build_limit_error(self._key, what, "footer.bytes")
                    texts.append(self._exactly(size))
                yield texts[0].decode(), texts[1]

    def _long(self, start: bytes = b"") -> int:
        value = shift = 0
        while True:
            byte = (start or self._exactly(1))[0]
            start = b""
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value >> 1 ^ -(value & 1)
            if shift > 63:
                raise ValueError("a number has more than 64 bits")

    def _exactly(self, size: int) -> bytes:
        if size < 0:
            raise ValueError(f"a length of {size}")
        data = self._source.read(size)
        if len(data) != size:
            raise ValueError(f"it ends {size - len(data)} bytes too early")
        return data
