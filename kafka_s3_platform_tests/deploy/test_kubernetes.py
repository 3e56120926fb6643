"""The files of deploy/kubernetes: what they name is there, and tools read them.

The files of deploy/terraform, as far as they can be read without AWS's provider.

Spark with the files of deploy/kubernetes/spark: a driver, and executors that Kubernetes is asked for.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterRun
from dagster._serdes import ConfigurableClassData
from dagster_k8s import K8sRunLauncher
from dagster_k8s.job import construct_dagster_k8s_job
from kubernetes.client import ApiClient

from kafka_s3_platform.core.defs.resources import SPARK_VARIABLE
from kafka_s3_platform.definitions import AUTOSTART_VARIABLE
from kafka_s3_platform_tests.conftest import QUICK_JAVA, REPOSITORY
from kafka_s3_platform_tests.deploy.kubernetes_api import IN_IMAGE, KubernetesApi
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.tools import find_tool

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
INSTANCE = REPOSITORY / "deploy" / "dagster.yaml"
WRITTEN_BY_CHART = {
    *("run_storage", "event_log_storage", "schedule_storage", "storage", "run_coordinator", "run_launcher"),
    *("compute_logs", "local_artifact_storage", "telemetry"),
}
"""Sections of dagster.yaml that the chart writes of values of its own, or that Kubernetes has otherwise."""

MADE_BY_HAND = {"kafka-s3-env", "kafka-s3-files", "kafka-s3-postgres", "kafka-s3-connectors"}
MADE_BY_CHART = {"kafka-s3-dagster-instance"}
SETTINGS = {AUTOSTART_VARIABLE, SPARK_VARIABLE}


def values() -> Any:
    return yaml.safe_load((KUBERNETES / "values.yaml").read_text())


def launcher_config() -> Any:
    return values()["runLauncher"]["config"]["customRunLauncher"]["config"]


@cache
def kustomized() -> list[Any]:
    command = [find_tool("kubectl"), "kustomize", str(KUBERNETES)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(found.stdout))


def executor() -> Any:
    return yaml.safe_load((KUBERNETES / "spark" / "executor.yaml").read_text())


def visited(node: Any) -> Iterator[dict[str, Any]]:
    """Every map in a document."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from visited(each)


def named(documents: list[Any], *, key: str, name: str = "name") -> set[str]:
    return {m[key][name] for document in documents for m in visited(document) if isinstance(m.get(key), dict)}


def test_everything_that_is_named_is_made() -> None:
    documents = [*kustomized(), values(), executor()]
    made = {d["metadata"]["name"] for d in kustomized() if d["kind"] == "ConfigMap"}
    wanted = named(documents, key="configMap") | named(documents, key="secretRef")
    wanted |= named(documents, key="secret", name="secretName") | named(documents, key="secretKeyRef")
    wanted |= {secret["name"] for m in visited(values()) for secret in m.get("envSecrets", [])}
    wanted |= {*launcher_config()["env_secrets"], launcher_config()["postgres_password_secret"]}
    assert wanted == made | MADE_BY_HAND | MADE_BY_CHART
    accounts = {d["metadata"]["name"] for d in kustomized() if d["kind"] == "ServiceAccount"}
    used = {m["serviceAccountName"] for document in documents for m in visited(document) if "serviceAccountName" in m}
    assert used | {values()["dagster-user-deployments"]["serviceAccount"]["name"]} == accounts


def test_the_pods_of_runs_have_the_variables_that_spark_asks_for() -> None:
    asked = set(re.findall(r"\$\{env:(\w+)\}", (KUBERNETES / "spark" / "spark.properties").read_text()))
    of_runs = {variable["name"] for variable in launcher_config()["run_k8s_config"]["container_config"]["env"]}
    assert of_runs == asked | {SPARK_VARIABLE}
    with_spark = [
        m["env"] for m in visited(kustomized()) if SPARK_VARIABLE in {v.get("name") for v in m.get("env", ())}
    ]
    of_commands, of_verify = ({variable["name"] for variable in env} for env in with_spark)
    assert of_commands == {*of_runs, "DAGSTER_PG_PASSWORD"}
    assert of_verify == of_runs, "it reads what others wrote, and needs no password of Dagster"


@pytest.mark.parametrize(("job", "commands"), [("erase", ["retain", "upkeep", "vacuum"]), ("verify", ["verify"])])
def test_a_connector_that_fails_in_a_nightly_job_stops_no_other(tmp_path: Path, job: str, commands: list[str]) -> None:
    [items] = [document["items"] for document in yaml.safe_load_all((KUBERNETES / "commands.yaml").read_text())]
    [spec] = [each["spec"] for each in items if (each["kind"], each["metadata"]["name"]) == ("CronJob", job)]
    [container] = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    [script] = container["args"]
    program, log = tmp_path / "kafka-s3", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$1 $2" >>{log}\n[ "$2" != bad ]\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run_for(names: str) -> tuple[int, list[str]]:
        log.unlink(missing_ok=True)
        shell = [*container["command"], script.replace("flights", names)]
        return subprocess.run(shell, env=env, check=False).returncode, log.read_text().splitlines()

    assert run_for("good") == (0, [f"{command} good" for command in commands])
    assert run_for("bad good") == (1, [f"{command} {name}" for name in ("bad", "good") for command in commands])


@pytest.fixture
def launcher(tmp_path: Path) -> K8sRunLauncher:
    """The launcher as Dagster makes it of the values, but for the place of the API server."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    place = {"load_incluster_config": False, "kubeconfig_file": str(tmp_path / "config")}
    config = yaml.safe_dump({**launcher_config(), **place})
    return ConfigurableClassData("dagster_k8s", "K8sRunLauncher", config).rehydrate(as_type=K8sRunLauncher)


@pytest.mark.parametrize(
    ("tag", "config"),
    [
        ("dagster-k8s/config", {"container_config": {"command": ["sh", "-c", "id"]}}),
        ("dagster-k8s/config", {"container_config": {"env": [{"name": "PYTHONSTARTUP", "value": "/x"}]}}),
        ("dagster-k8s/config", {"container_config": {"image": "evil:1"}, "merge_behavior": "SHALLOW"}),
        ("dagster-k8s/config", {"pod_spec_config": {"service_account_name": "kafka-s3-eraser"}}),
        ("dagster-k8s/config", {"pod_template_spec_metadata": {"labels": {"kafka-s3": "code-location"}}}),
        ("dagster-k8s/config", {"job_spec_config": {"parallelism": 1000}}),
        ("dagster-k8s/config", {"job_metadata": {"labels": {"a": "b"}}}),
        ("dagster-k8s/config", {"job_config": {"spec": {}}}),
        ("dagster-k8s/resource_requirements", {"limits": {"memory": "1Ti"}}),
    ],
)
def test_no_tag_of_a_run_changes_its_pod(launcher: K8sRunLauncher, tag: str, config: Any) -> None:
    with pytest.raises(Exception, match="violated the allowed list"):
        launcher.get_container_context_for_run(DagsterRun("restore", tags={tag: json.dumps(config)}))


def test_settings_of_the_platform_are_settings_that_it_knows() -> None:
    documents = [*kustomized(), values()]
    variables = {v["name"] for d in documents for m in visited(d) for v in m.get("env", ()) if isinstance(v, dict)}
    assert {name for name in variables if name.startswith("KAFKA_S3_")} == SETTINGS


def test_all_pods_are_of_one_image() -> None:
    repository, tag = (values()["dagsterWebserver"]["image"][key] for key in ("repository", "tag"))
    maps = [m for document in [*kustomized(), values()] for m in visited(document)]
    images = {m["image"] for m in maps if isinstance(m.get("image"), str)}
    images |= {v["value"] for m in maps for v in m.get("env", ()) if v["name"] == "EXECUTOR_IMAGE"}
    assert images == {f"{repository}:{tag}"}


def test_images_are_pinned() -> None:
    tags = {m["tag"] for m in visited(values()) if "tag" in m}
    assert tags
    assert all(re.fullmatch(r"\d+(\.\d+)+", tag) for tag in tags), tags


def test_nobody_is_root_or_may_become_it() -> None:
    maps = [m for document in [*kustomized(), executor(), values()] for m in visited(document)]
    of_pods = [
        m[key]
        for m in maps
        for key in ("podSecurityContext", "securityContext", "security_context")
        if "runAsUser" in m.get(key, {})
    ]
    assert len(of_pods) == 9
    as_user = {"runAsNonRoot": True, **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 10001)}
    assert all(context == {**as_user, "seccompProfile": {"type": "RuntimeDefault"}} for context in of_pods)
    of_containers = [
        m[key] for m in maps for key in ("securityContext", "security_context") if key in m and m[key] not in of_pods
    ]
    assert len(of_containers) == 9
    assert all(
        context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}} for context in of_containers
    )


def test_the_rules_of_the_instance_are_those_of_every_other_server() -> None:
    of_servers = yaml.safe_load(INSTANCE.read_text())
    rules = {key: section for key, section in of_servers.items() if key not in WRITTEN_BY_CHART}
    assert values()["additionalInstanceConfig"] == rules
    assert values()["postgresql"]["postgresqlScheme"] == of_servers["storage"]["postgres"]["postgres_db"]["scheme"]
    logs = values()["computeLogManager"]["config"]["s3ComputeLogManager"]
    assert logs["uploadInterval"] == of_servers["compute_logs"]["config"]["upload_interval"]


def test_schemas_of_kubernetes_hold_for_what_kustomize_and_the_chart_make() -> None:
    """KUBERNETES_SCHEMAS says where the schemas are, and DAGSTER_CHART the chart: nothing is downloaded."""
    if not (schemas := os.environ.get("KUBERNETES_SCHEMAS")):
        pytest.skip("KUBERNETES_SCHEMAS does not say where kubeconform finds schemas")
    kubeconform = [find_tool("kubeconform"), "-strict", "-summary", "-schema-location", schemas, "-"]
    made = yaml.safe_dump_all([*kustomized(), {**executor(), "metadata": {"name": "executor"}}])
    if chart := os.environ.get("DAGSTER_CHART"):
        helm = [find_tool("helm"), "template", "kafka-s3", chart, "--values", str(KUBERNETES / "values.yaml")]
        rendered = subprocess.run(helm, capture_output=True, text=True, check=True).stdout
        made += "---\n" + rendered
        [instance] = (d for d in yaml.safe_load_all(rendered) if d["metadata"]["name"] in MADE_BY_CHART)
        sections = re.findall(r"^(\w+):", instance["data"]["dagster.yaml"], re.MULTILINE)
        assert len(sections) == len(set(sections)), "no section is there twice"
    found = subprocess.run(kubeconform, input=made, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


ACCOUNTS = "system:serviceaccount:kafka-s3"


def kubectl(*arguments: str, document: object = None, creator: str = "") -> tuple[int, str]:
    """Ask the API server of KUBERNETES_CONFIG, as an account of the namespace if one is named."""
    command = [find_tool("kubectl"), "--kubeconfig", os.environ["KUBERNETES_CONFIG"], "--namespace", "kafka-s3"]
    command += ["--as", f"{ACCOUNTS}:{creator}"] if creator else []
    stdin = None if document is None else yaml.safe_dump_all(document if isinstance(document, list) else [document])
    found = subprocess.run([*command, *arguments], input=stdin, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def spark_pod(account: str, **changes: Any) -> Any:
    """An executor's pod as Spark asks for it, with changes of its spec."""
    pod = executor()
    pod["metadata"]["generateName"] = "exec-"
    pod["spec"] |= {"serviceAccountName": account, **changes}
    pod["spec"]["containers"][0] |= {"image": "registry.example.com/kafka-s3-platform:0.1.0"}
    return pod


def job_of(account: str, **changes: Any) -> Any:
    template = {"spec": {**spark_pod(account, **changes)["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "run-"},
        "spec": {"template": template},
    }


def labelled(pod: Any, **labels: str) -> Any:
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def give(account: str, **source: Any) -> Any:
    """An executor's pod with one more volume."""
    pod = spark_pod(account)
    return {**pod, "spec": {**pod["spec"], "volumes": [*pod["spec"]["volumes"], {"name": "more", **source}]}}


def find_refusal(creator: str, document: Any) -> str:
    """Return why an account of the namespace may not create it, and nothing if it may."""
    code, text = kubectl("create", "--dry-run=server", "--filename", "-", document=document, creator=creator)
    return text.partition("denied request: ")[2].strip() if code else ""


@pytest.fixture(scope="module")
def _filled_server() -> None:
    """KUBERNETES_CONFIG is a kubeconfig of an administrator of an API server (1.30 or newer) that may be filled."""
    if "KUBERNETES_CONFIG" not in os.environ:
        pytest.skip("KUBERNETES_CONFIG does not say where an API server is that may be filled")
    kubectl("create", "namespace", "kafka-s3")
    assert kubectl("apply", "--kustomize", str(KUBERNETES))[0] == 0
    assert kubectl("apply", "--filename", str(KUBERNETES / "admission-policy.yaml"))[0] == 0
    kubectl("create", "serviceaccount", "default")  # a controller makes it, where one runs
    # what Dagster's chart grants to webserver and daemon
    kubectl("create", "serviceaccount", "kafka-s3-dagster")
    kubectl("create", "role", "of-chart", "--verb=*", "--resource=jobs.batch,pods,pods/log,pods/status")
    kubectl("create", "rolebinding", "of-chart", "--role=of-chart", "--serviceaccount=kafka-s3:kafka-s3-dagster")
    until(lambda: bool(find_refusal("kafka-s3", spark_pod("kafka-s3-eraser"))))


@pytest.mark.usefixtures("_filled_server")
@pytest.mark.parametrize("account", ["kafka-s3", "kafka-s3-reader"])
def test_runs_and_commands_create_executors_of_their_own_and_no_other_pods(account: str) -> None:
    assert find_refusal(account, spark_pod(account)) == ""
    token = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
    assert find_refusal(account, give(account, projected=token)) == ""
    for taken in {"kafka-s3-eraser", "kafka-s3", "kafka-s3-reader", "default", "kafka-s3-dagster"} - {account}:
        assert "must have the account of who creates it" in find_refusal(account, spark_pod(taken)), taken
    for labels in ({}, {"kafka-s3": "driver"}, {"kafka-s3": "executor", "component": "dagster-webserver"}):
        assert "labelled as an executor" in find_refusal(account, labelled(spark_pod(account), **labels)), labels


@pytest.mark.usefixtures("_filled_server")
def test_no_pod_of_a_run_reads_another_secret_or_the_node() -> None:
    init = [{"name": "first", "image": "i", "envFrom": [{"secretRef": {"name": "kafka-s3-postgres"}}]}]
    of_env = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "kafka-s3-postgres", "key": "k"}}}
    container = spark_pod("kafka-s3")["spec"]["containers"][0]
    for pod in (
        spark_pod("kafka-s3", initContainers=init),
        spark_pod("kafka-s3", containers=[{**container, "env": [of_env]}]),
        give("kafka-s3", secret={"secretName": "kafka-s3-postgres"}),
    ):
        assert "and no other" in find_refusal("kafka-s3", pod)
    projected = {"sources": [{"secret": {"name": "kafka-s3-postgres"}}]}
    assert "folders of its own" in find_refusal("kafka-s3", give("kafka-s3", projected=projected))
    assert "folders of its own" in find_refusal("kafka-s3", give("kafka-s3", hostPath={"path": "/"}))


@pytest.mark.usefixtures("_filled_server")
def test_dagster_creates_the_jobs_of_its_launcher(launcher: K8sRunLauncher) -> None:
    context = launcher.get_container_context_for_run(DagsterRun("restore"))
    config = context.get_k8s_job_config("registry.example.com/kafka-s3-platform:0.1.0", launcher)
    job = construct_dagster_k8s_job(config, ["dagster"], "run", user_defined_k8s_config=context.run_k8s_config)
    assert find_refusal("kafka-s3-dagster", ApiClient().sanitize_for_serialization(job)) == ""


@pytest.mark.usefixtures("_filled_server")
def test_no_job_of_dagster_reads_a_secret_of_others_or_the_node() -> None:
    volumes = job_of("kafka-s3")["spec"]["template"]["spec"]["volumes"]
    of_env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "of-others", "key": "k"}}}]
    others = {
        "reads the Secrets": [
            {"initContainers": [{"name": "first", "image": "i", "envFrom": [{"secretRef": {"name": "of-others"}}]}]},
            {"containers": [{"name": "run", "image": "i", "env": of_env}]},
            {"volumes": [*volumes, {"name": "more", "secret": {"secretName": "of-others"}}]},
        ],
        "are ConfigMaps and Secrets": [
            {"volumes": [*volumes, {"name": "more", "hostPath": {"path": "/"}}]},
            {"volumes": [*volumes, {"name": "more", "projected": {"sources": [{"secret": {"name": "of-others"}}]}}]},
        ],
    }
    for reason, changes in others.items():
        for change in changes:
            assert reason in find_refusal("kafka-s3-dagster", job_of("kafka-s3", **change)), change


@pytest.mark.usefixtures("_filled_server")
def test_dagster_creates_jobs_of_runs_and_changes_no_pod() -> None:
    assert find_refusal("kafka-s3-dagster", job_of("kafka-s3")) == ""
    for taken in ("kafka-s3-eraser", "kafka-s3-reader", "kafka-s3-dagster", "default"):
        assert "jobs that Dagster creates" in find_refusal("kafka-s3-dagster", job_of(taken)), taken
    assert "Dagster creates jobs" in find_refusal("kafka-s3-dagster", spark_pod("kafka-s3-dagster"))
    erase = {**spark_pod("kafka-s3-eraser"), "metadata": {"name": "erase", "labels": {"kafka-s3": "eraser"}}}
    kubectl("delete", "pod", "erase", "--ignore-not-found", "--force")
    # an administrator is not bounded
    assert kubectl("create", "--filename", "-", document=erase)[0] == 0
    change = ("set", "image", "pod/erase", "executor=evil:1")
    code, text = kubectl(*change, creator="kafka-s3-dagster")
    assert (code, "Dagster creates jobs" in text) == (1, True)
    assert kubectl(*change)[0] == 0


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


RUN = """
import json, os
from kafka_s3_platform.core.defs.resources import SparkResource, start_session

def look(task, attempt):
    return task, os.environ.get("SPARK_EXECUTOR_ID")

runner = SparkResource().make_runner()
found = list(runner.run(look, [1, 2], 2))
conf = dict(start_session().sparkContext.getConf().getAll())
print(json.dumps([found, conf]))
"""
OF_POD = {"POD_NAME": "run-1", "POD_NAMESPACE": "test", "POD_IP": "127.0.0.2"}
OF_RUN = {"SERVICE_ACCOUNT": "kafka-s3", "EXECUTOR_IMAGE": "example.com/kafka-s3-platform:1"}


def run_on(api: KubernetesApi, folder: Path) -> Any:
    """What tasks of a driver saw, and its properties: the deployment's, on this machine, with little memory."""
    shutil.copytree(KUBERNETES / "spark", folder / "spark")
    properties = folder / "spark" / "spark.properties"
    text = properties.read_text().replace(IN_IMAGE, str(folder)).replace("https://kubernetes.default.svc", api.endpoint)
    for old, new in (("instances=2", "instances=1"), ("memory=1g", "memory=512m")):
        assert old in text
        text = text.replace(f"spark.executor.{old}", f"spark.executor.{new}")
    text += f"spark.driver.memory=512m\nspark.executor.extraJavaOptions={' '.join(QUICK_JAVA)}\n"
    properties.write_text(text + "spark.kubernetes.executor.apiPollingInterval=500ms\n")
    env = {**os.environ, **OF_POD, **OF_RUN, "KAFKA_S3_SPARK_CONF": str(properties)}
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", RUN]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    said = api.stop()
    assert found.returncode == 0, found.stderr[-5000:] + said[-5000:]
    return json.loads(found.stdout)


@pytest.mark.integration
def test_a_run_has_executors_in_pods_of_its_own(tmp_path: Path) -> None:
    with running(KubernetesApi(tmp_path, OF_POD["POD_NAME"])) as api:
        seen, conf = run_on(api, tmp_path)
    assert sorted(seen) == [[1, "1"], [2, "1"]], "both tasks ran in the first executor"
    [pod] = api.created
    [owner] = pod["metadata"]["ownerReferences"]
    [container] = pod["spec"]["containers"]
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert owner["name"] == OF_POD["POD_NAME"], "Kubernetes deletes it with the pod of the run"
    assert f"@{OF_POD['POD_IP']}:" in variables["SPARK_DRIVER_URL"], "others reach the driver by the address of its pod"
    assert (container["image"], pod["spec"]["serviceAccountName"]) == (
        OF_RUN["EXECUTOR_IMAGE"],
        OF_RUN["SERVICE_ACCOUNT"],
    )
    assert conf["spark.authenticate"] == "true"
    assert variables["_SPARK_AUTH_SECRET"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert container["resources"]["limits"] == {"memory": f"{512 + 3 * 1024}Mi"}

    [role] = [d for d in yaml.safe_load_all((KUBERNETES / "rbac.yaml").read_text()) if d["kind"] == "Role"]
    granted = {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert api.asked <= granted
    # An executor that failed is deleted by its name.
    assert granted - api.asked == {("pods", "delete")}
