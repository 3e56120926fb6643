"""The rights that the docs list, as ACLs."""

import re

from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.kafka.guarded import Right

ROW = re.compile(r"\| (.+?) \| (topic|group|transactional id|cluster)(?: `(.+?)`)? \| ([A-Z_, ]+) \|")
TABLE = [m.groups("") for m in map(ROW.fullmatch, (REPOSITORY / "docs" / "rights.md").read_text().splitlines()) if m]


def rights(*runs: str, **names: str) -> list[Right]:
    """What the table's rows of `runs` say, with names in the place of its capitals."""
    chosen = [row for row in TABLE if row[0].replace("`", "") in runs]
    assert {row[0].replace("`", "") for row in chosen} == set(runs)
    return [
        Right(resource, _named(name, names), operation)
        for _, resource, name, operations in chosen
        for operation in operations.split(", ")
    ]


def _named(name: str, names: dict[str, str]) -> str:
    for word, given in names.items():
        name = name.replace(word, given)
    return name
