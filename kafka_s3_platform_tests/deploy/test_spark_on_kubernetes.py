"""Spark with the files of deploy/kubernetes/spark: a driver, and executors that Kubernetes is asked for."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_s3_platform_tests.conftest import QUICK_JAVA, REPOSITORY
from kafka_s3_platform_tests.deploy.kubernetes_api import IN_IMAGE, KubernetesApi
from kafka_s3_platform_tests.store.http_proxy import running

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
RUN = """
import json, os
from kafka_s3_platform.defs.resources import SparkResource, start_session

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
