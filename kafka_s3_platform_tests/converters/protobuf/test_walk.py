"""What a message comes to is told in time that grows with its bytes, whatever they are."""

import time

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafka_s3_platform.converters.protobuf.decode import MessageSizes


@pytest.mark.parametrize("start", [b"", b"\x0a", b"\x08", b"\x0b" * 50], ids=["tag", "size", "number", "groups"])
def test_a_number_that_never_ends_costs_little(start: bytes) -> None:
    """Each byte of one made it longer: a megabyte took half a minute, eight of them half an hour."""
    sizes, began = MessageSizes(FileDescriptorProto.DESCRIPTOR), time.process_time()
    sizes.check(start + b"\xff" * 1_000_000)
    assert time.process_time() - began < 1
