"""Key stores as keytool makes them, by the keys of Java's clients."""

import ssl
from pathlib import Path

import pytest
import trustme

from kafka_s3_platform.connect.config.keys.clients import translate_properties
from kafka_s3_platform.core.keystores import load_pem, read_key_store
from kafka_s3_platform_tests.tls.authority import Authority, new_authority
from kafka_s3_platform_tests.tls.stores import KEY_PASSWORD, PASSWORD, make_keystore, make_truststore

KINDS = ("JKS", "PKCS12")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_truststore_holds_the_certificates_to_trust(authority: Authority, tmp_path: Path, kind: str) -> None:
    store = read_key_store(make_truststore(authority.ca, tmp_path / "trust", kind), PASSWORD)
    assert (store.trusted.strip(), store.chain, store.key) == (authority.ca.read_text().strip(), "", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_keystore_holds_a_key_and_its_certificates(tmp_path: Path, kind: str) -> None:
    root = trustme.CA()
    issued = root.create_child_ca().issue_cert("me@example.com")
    both = tmp_path / "both.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(both))
    store = read_key_store(make_keystore(both, tmp_path / "key", kind), PASSWORD, KEY_PASSWORD if kind == "JKS" else "")
    chain = "".join(part.bytes().decode() for part in issued.cert_chain_pems)
    assert store.chain.split() == chain.split()
    assert chain.count("BEGIN") == 2
    # OpenSSL refuses a key that is not the certificate's
    load_pem(ssl.create_default_context(), {"ssl.certificate.pem": store.chain, "ssl.key.pem": store.key})
    assert store.key not in repr(store)


@pytest.mark.parametrize("kind", KINDS)
def test_stores_of_javas_clients_become_pem_whatever_their_type_is_called(
    authority: Authority, tmp_path: Path, kind: str
) -> None:
    """Java, too, reads a PKCS12 whose type is called JKS, which is the default."""
    trust = make_truststore(authority.ca, tmp_path / "trust.jks", kind)
    keys = make_keystore(authority.client.both, tmp_path / "keys.jks", kind)
    entries = {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": KEY_PASSWORD if kind == "JKS" else PASSWORD,
    }
    outcome = translate_properties(entries, "common")
    assert outcome.refused == {}
    assert outcome.properties.keys() == {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"}
    assert PASSWORD not in repr(outcome)


def test_a_jks_truststore_needs_no_password_as_in_java(authority: Authority, tmp_path: Path) -> None:
    trust = make_truststore(authority.ca, tmp_path / "trust", "JKS")
    assert translate_properties({"ssl.truststore.location": str(trust)}, "common").refused == {}


@pytest.mark.parametrize(("kind", "password"), [("JKS", "another"), ("PKCS12", "another"), ("PKCS12", "")])
def test_a_wrong_password_is_refused_by_the_store_and_not_shown(
    authority: Authority, tmp_path: Path, kind: str, password: str
) -> None:
    trust = make_truststore(authority.ca, tmp_path / "trust", kind)
    keys = make_keystore(authority.client.both, tmp_path / "keys", kind)
    for path in (trust, keys):
        with pytest.raises(ValueError, match=f"{path}: its password or .*wrong") as refusal:
            read_key_store(path, password)
        assert "another" not in str(refusal.value).replace(str(tmp_path), "")
    if kind == "JKS":
        with pytest.raises(ValueError, match=r"that of its key \(ssl\.key\.password\) is wrong"):
            read_key_store(keys, PASSWORD)


def test_what_is_no_key_store_is_refused_with_what_to_do(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key store of type JKS or PKCS12; a PEM file has type PEM"):
        read_key_store(authority.ca, "")
    with pytest.raises(ValueError, match="absent cannot be read: No such file"):
        read_key_store(tmp_path / "absent", "")
    keys = make_keystore(authority.client.both, tmp_path / "keys", "PKCS12")
    outcome = translate_properties(
        {"ssl.truststore.location": str(keys), "ssl.truststore.password": PASSWORD}, "common"
    )
    assert "has no trusted certificate" in outcome.refused["ssl.truststore.location"]
    trust = make_truststore(authority.ca, tmp_path / "trust", "PKCS12")
    outcome = translate_properties({"ssl.keystore.location": str(trust), "ssl.keystore.password": PASSWORD}, "common")
    assert "has no private key" in outcome.refused["ssl.keystore.location"]


def test_a_store_that_is_cut_is_refused(authority: Authority, tmp_path: Path) -> None:
    for kind in KINDS:
        content = make_keystore(authority.client.both, tmp_path / kind, kind).read_bytes()
        for size in (4, 40, len(content) - 1):
            (tmp_path / "cut").write_bytes(content[:size])
            with pytest.raises(ValueError, match="is broken"):
                read_key_store(tmp_path / "cut", PASSWORD, KEY_PASSWORD if kind == "JKS" else "")
