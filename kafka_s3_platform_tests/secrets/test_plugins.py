"""What a plug-in says of its failure, without its options: errors are read by everyone who sees a run."""

import traceback

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config.settings import ProviderSettings, StoreSettings
from kafka_s3_platform.core.errors import PermanentError, PlatformError, TransientError
from kafka_s3_platform.core.store.credentials import find_credentials
from kafka_s3_platform_tests.secrets import leaky
from kafka_s3_platform_tests.secrets.world import found_in, mark
from kafka_s3_platform_tests.transforms.batches import batch, payload

LEAKY = leaky.__name__


def shown(failing: PlatformError) -> str:
    """All that Dagster stores of an error: its text and its causes', with tracebacks."""
    return "".join(traceback.format_exception(failing)) + repr(failing) + repr(failing.args)


def moved(name: str, **options: str) -> str:
    """What is said of the failures of one record in a mapper."""
    given = {"vault": mark("vault"), **options}
    steps = {"transforms": "m", "transforms.m.type": f"{LEAKY}.{name}"}
    chain = new_chain(parse_transforms(steps | {f"transforms.m.{key}": value for key, value in given.items()}), "t")
    outcome = chain.apply(batch(payload([b"v"])))
    assert outcome.batch.num_rows == 0
    return repr(outcome.failures)


@pytest.mark.parametrize("how", leaky.HOW)
@pytest.mark.parametrize(("name", "when"), [("Vault", "map"), ("Vault", "new"), ("Batches", "apply")])
def test_what_a_mapper_says_is_told_without_its_options(name: str, when: str, how: str) -> None:
    if (name, when) == ("Vault", "map") and how not in {"transient", "permanent"}:
        said = moved(name, how=how)
    else:
        with pytest.raises(PlatformError) as caught:
            moved(name, how=how, when=when)
        said = shown(caught.value)
        assert isinstance(caught.value, TransientError if how == "transient" else PermanentError)
    assert found_in("the error", said) == []
    assert "****" in said or "the lookup failed" in said
    assert how == "chain" or f"'how': '{how}'" in said, "what is public is told"


def test_what_a_mapper_says_of_single_records_is_told_without_its_options() -> None:
    said = moved("Batches", how="never")
    assert found_in("the failure", said) == []
    assert "cannot log in with" in said


@pytest.mark.parametrize("when", ["new", "asked"])
@pytest.mark.parametrize("how", leaky.HOW)
def test_what_a_credentials_provider_says_is_told_without_its_options(how: str, when: str) -> None:
    given = {"how": how, "when": when, "secret": mark("provider")}
    options = tuple((name, SecretStr(value)) for name, value in given.items())
    store = StoreSettings(bucket="b", provider=ProviderSettings(class_name=f"{LEAKY}.Provider", options=options))
    with pytest.raises(PlatformError) as caught:
        find_credentials(store)
    said = shown(caught.value)
    assert found_in("the error", said) == []
    assert f"{LEAKY}.Provider" in said or how in {"transient", "permanent"}
    assert isinstance(caught.value, TransientError if how in {"transient", "os"} else PermanentError)
