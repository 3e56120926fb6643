"""The files of deploy/terraform, as far as they can be read without AWS's provider."""

import re
import subprocess

import yaml

from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.deploy.test_kubernetes import KUBERNETES, values
from kafka_s3_platform_tests.tools import find_tool

TERRAFORM = REPOSITORY / "deploy" / "terraform"


def read_map(name: str) -> dict[str, str]:
    """A map of roles.tf: the text of each value by its key."""
    found = re.search(rf"^  {name} = {{\n(.*?)^  }}\n", (TERRAFORM / "roles.tf").read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return dict(re.findall(r"^ +(\w+) += (.+)$", found[1], re.MULTILINE))


def test_terraform_reads_the_files_and_has_nothing_to_format() -> None:
    command = [find_tool("terraform"), "fmt", "-check", "-diff", "-recursive", str(TERRAFORM)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_policy_that_a_role_has_is_a_file() -> None:
    named = {name for names in read_map("roles").values() for name in re.findall(r'"(\w+)"', names)}
    files = {path.stem for path in (TERRAFORM / "policies").glob("*.json")}
    assert files - named == {"options"}, "what only two keys need (docs/iam.md) is given by hand"
    assert named <= files
    explained = set(re.findall(r"policies/(\w+)\.json", (REPOSITORY / "docs" / "iam.md").read_text()))
    assert explained == files


def test_each_role_belongs_to_a_service_account_of_kubernetes() -> None:
    found = [d for d in yaml.safe_load_all((KUBERNETES / "rbac.yaml").read_text()) if d["kind"] == "ServiceAccount"]
    accounts = {d["metadata"]["name"]: d["metadata"]["annotations"] for d in found}
    accounts[values()["serviceAccount"]["name"]] = values()["serviceAccount"]["annotations"]
    roles = {name: a["eks.amazonaws.com/role-arn"].partition(":role/kafka-s3-")[2] for name, a in accounts.items()}
    assert {account.strip('"'): role for role, account in read_map("accounts").items()} == roles
