"""Evidence of restores and deep verifications: who has the file, its signature and the public key checks it alone."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from kafka_s3_platform.core.config.environment import EVIDENCE_KEY
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.restore.evidence import EvidenceFolder
from kafka_s3_platform_tests.cli.conftest import KafkaS3, make_environment, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.restore.own import keys, numbered
from kafka_s3_platform_tests.support import archived, produce, snapshot
from kafka_s3_platform_tests.tools import find_tool

FAILED, INCOMPLETE = 1, 3


@dataclass
class KeyPair:
    """Files of a private and a public key."""

    private: Path
    public: Path


def write_keys(folder: Path) -> KeyPair:
    key = Ed25519PrivateKey.generate()
    pair = KeyPair(folder / "private.pem", folder / "public.pem")
    pair.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pair.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return pair


def use_key(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    """The commands that follow have the variable, or have it not."""
    more = {} if path is None else {EVIDENCE_KEY: str(path)}
    monkeypatch.setattr(
        "kafka_s3_platform_tests.cli.conftest.make_environment", lambda folder: {**make_environment(folder), **more}
    )


@pytest.fixture
def key_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyPair:
    pair = write_keys(tmp_path)
    use_key(monkeypatch, pair.private)
    return pair


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c` has archived two topics, of 30 and of 5 records."""
    counts = {f"{lab.topic}-orders": 30, f"{lab.topic}-users": 5}
    for topic, count in counts.items():
        lab.create(topic)
        produce(lab.kafka, topic, numbered(count))
    made = write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join(counts))
    for topic in made.topics:
        archived(made.model_copy(update={"topics": (topic,)}))
    return made


def fetch(lab: Lab, config: ConnectorConfig, folder: Path, number: int) -> Path:
    """What an auditor gets: the document, and its signature if there is one."""
    prefix = f"{config.archive.restore_dir}/evidence=c/{number:06}.json"
    for key in keys(config.store, prefix):
        (folder / key.rpartition("/")[2]).write_bytes(
            lab.s3.get_object(Bucket=config.store.bucket, Key=key)["Body"].read()
        )
    return folder / f"{number:06}.json"


def restore(kafka_s3: KafkaS3, restore_id: str, status: int | None = 0) -> "subprocess.CompletedProcess[str]":
    target = ["--to-topic", f"{restore_id}.{{topic}}", "--create-topic", "--restore-id", restore_id]
    return kafka_s3("restore", "c", "--all-topics", *target, status=status)


def test_a_restore_is_evidenced_and_checked_without_the_archive(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, key_pair: KeyPair, tmp_path: Path
) -> None:
    restore(kafka_s3, "r1")
    path = fetch(lab, config, tmp_path, 1)
    shutil.rmtree(kafka_s3.folder / "connectors")

    check = ["evidence", "check", str(path), "--public-key", str(key_pair.public)]
    told = parsed(kafka_s3(*check, "--json"))
    assert told["is_complete"]
    evidence = told["evidence"]
    assert (evidence["kind"], evidence["run"], evidence["connector"]) == ("restore", "r1", "c")
    assert evidence["key"] == told["signed_by"]
    assert evidence["platform"].startswith("kafka-s3-platform 0.")
    orders, users = config.topics
    assert [(t["topic"], t["compared_with"], t["records"]) for t in evidence["topics"]] == [
        (orders, f"r1.{orders}", 30),
        (users, f"r1.{users}", 5),
    ]
    [part] = evidence["topics"][0]["kafka_partitions"]
    [segment] = snapshot(config.model_copy(update={"topics": (orders,)})).segments
    assert (part["first_offset"], part["last_offset"], part["digest"]) == (0, 29, segment.digest)
    shown = kafka_s3(*check, status=0).stdout
    assert "the signature matches" in shown
    assert "35 records of 2 topics: all that was to be compared was there, and equal" in shown

    by_openssl = [find_tool("openssl"), "pkeyutl", "-verify", "-pubin", "-inkey", str(key_pair.public), "-rawin"]
    files = ["-in", str(path), "-sigfile", f"{path}.sig"]
    subprocess.run([*by_openssl, *files], check=True)


def test_evidence_of_a_part_of_the_records_says_so(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, key_pair: KeyPair, tmp_path: Path
) -> None:
    target = ["--to-topic", "part.{topic}", "--create-topic", "--restore-id", "r1"]
    kafka_s3("restore", "c", "--topic", config.topics[0], "--to-offset", "3", "--sql", "value IS NOT NULL", *target)
    path = fetch(lab, config, tmp_path, 1)
    check = ["evidence", "check", str(path), "--public-key", str(key_pair.public)]
    [topic] = parsed(kafka_s3(*check, "--json"))["evidence"]["topics"]
    assert (topic["records"], topic["terms"]) == (3, {"to_offset": 3, "records": {"sql": "value IS NOT NULL"}})
    assert 'asked for: {"to_offset": 3' in kafka_s3(*check, status=0).stdout


def change_count(path: Path) -> None:
    path.write_text(path.read_text().replace('"records": 30', '"records": 31'))


def change_signature(path: Path) -> None:
    signature = Path(f"{path}.sig")
    content = bytearray(signature.read_bytes())
    content[7] ^= 1
    signature.write_bytes(content)


def cut_signature(path: Path) -> None:
    signature = Path(f"{path}.sig")
    signature.write_bytes(signature.read_bytes()[:-1])


@pytest.fixture
def signed(tmp_path: Path, key_pair: KeyPair) -> Path:
    """A file that is no evidence, rightly signed by the key."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(key_pair.private.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    path = tmp_path / "signed.json"
    path.write_text('{"format": 1, "records": 30}')
    Path(f"{path}.sig").write_bytes(key.sign(path.read_bytes()))
    return path


def refuse(kafka_s3: KafkaS3, path: Path, public_key: Path) -> str:
    return kafka_s3("evidence", "check", str(path), "--public-key", str(public_key), status=FAILED).stderr


def test_what_is_signed_and_no_evidence_is_refused(kafka_s3: KafkaS3, signed: Path, key_pair: KeyPair) -> None:
    assert "is not evidence that this version can read" in refuse(kafka_s3, signed, key_pair.public)


@pytest.mark.parametrize("tamper", [change_count, change_signature, cut_signature])
def test_what_was_changed_since_is_refused(
    kafka_s3: KafkaS3, signed: Path, key_pair: KeyPair, tamper: Callable[[Path], None]
) -> None:
    tamper(signed)
    assert "does not match. Somebody changed the file or its signature" in refuse(kafka_s3, signed, key_pair.public)


def test_another_key_and_no_signature_are_refused(kafka_s3: KafkaS3, signed: Path, key_pair: KeyPair) -> None:
    other = signed.parent / "other"
    other.mkdir()
    assert "a key other than" in refuse(kafka_s3, signed, write_keys(other).public)
    assert "is not a public key in PEM" in refuse(kafka_s3, signed, key_pair.private)
    Path(f"{signed}.sig").unlink()
    assert "evidence without one proves nothing" in refuse(kafka_s3, signed, key_pair.public)


def write_encrypted(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def write_elliptic(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (Path.mkdir, "cannot be read"),
        (lambda path: path.write_text("no key"), "is not a private key in PEM without a passphrase"),
        (write_encrypted, "is not a private key in PEM without a passphrase"),
        (write_elliptic, "is not an Ed25519 key"),
    ],
    ids=["a folder", "no key", "with a passphrase", "elliptic"],
)
def test_a_key_that_cannot_sign_is_told_before_anything_is_sent(
    kafka_s3: KafkaS3,
    config: ConnectorConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], Any],
    told: str,
) -> None:
    write(tmp_path / "key.pem")
    use_key(monkeypatch, tmp_path / "key.pem")
    assert told in restore(kafka_s3, "r1", status=FAILED).stderr
    assert keys(config.store, config.archive.restore_dir) == []


def test_a_deep_verification_says_what_is_damaged_and_when_topics_came_back_outlives_dagster(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, key_pair: KeyPair, tmp_path: Path
) -> None:
    orders, users = config.topics
    kafka_s3("verify", "c", "--deep", status=0)
    [segment] = snapshot(config.model_copy(update={"topics": (users,)})).segments
    lab.s3.delete_object(Bucket=config.store.bucket, Key=segment.key)
    kafka_s3("verify", "c", "--deep", status=FAILED)

    whole, damaged = (fetch(lab, config, tmp_path, number) for number in (1, 2))
    kafka_s3("evidence", "check", str(whole), "--public-key", str(key_pair.public), status=0)
    told = kafka_s3("evidence", "check", str(damaged), "--public-key", str(key_pair.public), status=INCOMPLETE).stdout
    assert "1 x difference from the index" in told
    assert "NOT all came back" in told
    first, second = (json.loads(path.read_text()) for path in (whole, damaged))
    assert first["topics"][0]["digest"] == second["topics"][0]["digest"]
    assert len(first["topics"][0]["digest"]) == 64

    shutil.rmtree(kafka_s3.folder / "dagster" / "storage", ignore_errors=True)
    [connector] = json.loads(kafka_s3("health", "--json").stdout)["connectors"]
    proofs = {topic["topic"]: topic["last_proven"] for topic in connector["topics"]}
    assert proofs[orders]["at"] > proofs[users]["at"], "what is damaged came back before, and not since"
    assert {proof["how"] for proof in proofs.values()} == {"verification"}


def test_evidence_of_an_index_that_is_lost_is_not_complete(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, key_pair: KeyPair, tmp_path: Path
) -> None:
    for key in keys(config.store, f"{config.archive.index_dir}/"):
        lab.s3.delete_object(Bucket=config.store.bucket, Key=key)
    kafka_s3("verify", "c", "--deep")
    path = fetch(lab, config, tmp_path, 1)
    told = kafka_s3("evidence", "check", str(path), "--public-key", str(key_pair.public), status=INCOMPLETE).stdout
    assert "nothing is archived, so nothing was compared" in told


def test_evidence_that_somebody_broke_proves_nothing_and_stops_no_restore(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_key(monkeypatch, None)
    kafka_s3("verify", "c", "--deep", status=0)
    [key] = keys(config.store, f"{config.archive.restore_dir}/evidence=c/")
    lab.s3.put_object(Bucket=config.store.bucket, Key=key, Body=b'{"format": 1, "kind": "restore"}')
    assert "not known" in kafka_s3("health").stdout
    restore(kafka_s3, "r1")
    newest = present(EvidenceFolder(config).read_newest())
    assert (newest.number, newest.key) == (2, "")
    assert set(newest.standing.proofs) == set(config.topics)
