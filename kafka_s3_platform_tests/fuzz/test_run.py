"""The corpus, read anew; and that the fuzzer finds what it is for."""

import random

import pytest

from kafka_s3_platform_tests.fuzz.run import CORPUS, corpus, mutated, outcome, seeds
from kafka_s3_platform_tests.hostile.readers import READERS


@pytest.mark.parametrize("name", READERS)
def test_seeds_are_real_objects(name: str) -> None:
    foreign = {"aiven.avro", "aiven.parquet", "bytes.gz", "bytes.bz2", "bytes.zst"}
    assert name in foreign or {outcome(name, body) for body in seeds(name)} == {""}


@pytest.mark.parametrize("name", READERS)
def test_the_corpus_is_read_or_refused_by_the_one_error(name: str) -> None:
    # Anything else that is raised fails the test; most of them are refused.
    assert {type(outcome(name, body)) for body in corpus(name)} <= {str}


@pytest.mark.parametrize("name", READERS)
def test_some_hundred_mutations_are_read_or_refused(name: str) -> None:
    chance, pool = random.Random(name), seeds(name)
    found = {outcome(name, mutated(chance.choice(pool), chance.choice(pool), chance)) for _ in range(200)}
    assert len(found) > 1 or name.startswith("bytes")


def test_every_folder_of_the_corpus_is_of_a_reader() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(READERS)
