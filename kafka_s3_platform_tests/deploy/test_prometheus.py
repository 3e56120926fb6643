"""The alerts and the dashboard of deploy/: they name metrics that `kafka-s3 serve` exposes, and promtool reads them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_s3_platform.core.text import make_anchor
from kafka_s3_platform.operate.status.concerns import CONDITIONS
from kafka_s3_platform_tests.cli.conftest import make_environment
from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.serving import serving
from kafka_s3_platform_tests.tools import find_tool

RULES = REPOSITORY / "deploy" / "prometheus" / "kafka-s3.rules.yml"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "kafka-s3.json"
SERIES = 'connector="c", topic="t"'
CASES = f"""
rule_files: [{RULES}]
evaluation_interval: 1m
tests:
  - name: a topic at risk, and offsets that retention took
    interval: 1m
    input_series:
      - {{series: 'kafka_s3_look_up', values: '1x180'}}
      - {{series: 'kafka_s3_at_risk_level{{{SERIES}}}', values: '0x60 2x30 0x90'}}
      - {{series: 'kafka_s3_gap_offsets{{{SERIES}, reason="retention"}}', values: '5x90 7x90'}}
      - {{series: 'kafka_s3_gap_offsets{{{SERIES}, reason="taken over"}}', values: '5x90 7x90'}}
      - {{series: 'kafka_s3_gap_offsets{{connector="unknown", reason="retention"}}', values: '5x30 stale _x60 5x90'}}
    alert_rule_test:
      - {{eval_time: 60m, alertname: KafkaS3AtRisk}}
      - eval_time: 70m
        alertname: KafkaS3AtRisk
        exp_alerts:
          - exp_labels: {{severity: critical, connector: c, topic: t}}
            exp_annotations:
              summary: 'c/t: records are about to be lost, or hours are very late'
              description: 'The topic is at risk. In words: kafka-s3 health c'
              runbook: docs/operating.md#what-is-at-risk
      - {{eval_time: 100m, alertname: KafkaS3AtRisk}}
      - {{eval_time: 80m, alertname: KafkaS3RecordsLost}}
      - {{eval_time: 170m, alertname: KafkaS3RecordsLost}}
    promql_expr_test:
      - expr: count(ALERTS{{alertname="KafkaS3RecordsLost"}})
        eval_time: 120m
        exp_samples: [{{labels: '{{}}', value: 1}}]
  - name: a topic that Kafka keeps for a few hours, and one that is behind
    interval: 1m
    input_series:
      - {{series: 'kafka_s3_look_up', values: '1x30'}}
      - {{series: 'kafka_s3_retention_left_seconds{{connector="short"}}', values: '10000x30'}}
      - {{series: 'kafka_s3_at_risk_level{{connector="short"}}', values: '0x30'}}
      - {{series: 'kafka_s3_retention_left_seconds{{connector="behind"}}', values: '10000x30'}}
      - {{series: 'kafka_s3_at_risk_level{{connector="behind"}}', values: '1x30'}}
    promql_expr_test:
      - expr: count by (connector) (ALERTS{{alertname="KafkaS3RetentionLossNear"}})
        eval_time: 10m
        exp_samples: [{{labels: '{{connector="behind"}}', value: 1}}]
  - name: an hour that did not come back, and a topic that was to be rehearsed two hours ago, or in two hours
    interval: 1m
    input_series:
      - {{series: 'kafka_s3_look_up', values: '1x240'}}
      - {{series: 'kafka_s3_rehearsal_failed_hours{{{SERIES}}}', values: '0x100 3x140'}}
      - {{series: 'kafka_s3_rehearsal_due_timestamp_seconds{{connector="late"}}', values: '0x240'}}
      - {{series: 'kafka_s3_rehearsal_due_timestamp_seconds{{connector="in time"}}', values: '14400x240'}}
    promql_expr_test:
      - expr: count by (connector) (ALERTS{{alertname="KafkaS3NotComingBack", alertstate="firing"}})
        eval_time: 120m
        exp_samples: [{{labels: '{{connector="c"}}', value: 1}}]
      - expr: count by (connector) (ALERTS{{alertname="KafkaS3Unproven", alertstate="firing"}})
        eval_time: 120m
        exp_samples: [{{labels: '{{connector="late"}}', value: 1}}]
  - name: a server that does not answer
    interval: 1m
    input_series: [{{series: 'kafka_s3_look_up', values: '1x10 _x30'}}]
    promql_expr_test:
      - expr: count(ALERTS{{alertname="KafkaS3StatusDown", alertstate="firing"}})
        eval_time: 30m
        exp_samples: [{{labels: '{{}}', value: 1}}]
"""


def run_promtool(*arguments: str, given: str | None = None) -> None:
    found = subprocess.run(
        [find_tool("promtool"), *arguments], input=given, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, ""), found.stdout + found.stderr


def read_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def list_dashboard_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `/metrics` of a server without a connector answers: it has the head of each metric."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "connectors").mkdir()
    environment = {k: v for k, v in make_environment(folder).items() if k != "DAGSTER_HOME"}
    with serving(folder, environment) as server:
        server.wait(lambda found: ("kafka_s3_look_duration_seconds", "") in found)
        return server.get("/metrics")[2]


def test_every_metric_of_the_alerts_and_the_dashboard_is_exposed(exposed: str) -> None:
    texts = [rule["expr"] for rule in read_rules()] + list_dashboard_expressions()
    named = {name for text in texts for name in re.findall(r"kafka_s3_\w+", text)}
    types = set(re.findall(r"^# TYPE (\w+)", exposed, re.MULTILINE))
    assert named - types == set()
    assert types - named == {
        *("kafka_s3_build_info", "kafka_s3_last_run_timestamp_seconds", "kafka_s3_running_restores"),
        *("kafka_s3_look_duration_seconds", "kafka_s3_last_look_timestamp_seconds"),
        *("kafka_s3_last_good_look_timestamp_seconds", "kafka_s3_last_proven_timestamp_seconds"),
        *("kafka_s3_rehearsed_hours_ratio", "kafka_s3_restore_estimate_seconds"),
    }, "for whoever looks closer"


def test_the_metrics_keep_to_the_conventions_of_prometheus(exposed: str) -> None:
    run_promtool("check", "metrics", given=exposed)


def test_the_alerts_say_what_to_do_and_fire_when_they_should(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for rule in read_rules()}
    for alert, condition in ((alert, c) for c in CONDITIONS.values() for alert in c.alerts):
        assert rules[alert]["labels"]["severity"] == condition.severity
        assert rules[alert]["annotations"]["runbook"] == condition.section
    for rule in rules.values():
        document, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.*)", (REPOSITORY / document).read_text(), re.MULTILINE)
        assert anchor in {*map(make_anchor, headings)}
        assert rule["labels"]["severity"] in {"critical", "warning"}
    run_promtool("check", "rules", str(RULES))
    cases = tmp_path / "cases.yml"
    cases.write_text(CASES)
    run_promtool("test", "rules", str(cases))


def test_the_panels_of_the_dashboard_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24, "Grafana has so many columns"
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}


def test_the_expressions_of_the_dashboard_are_read_by_prometheus(tmp_path: Path) -> None:
    expressions = enumerate(expr.replace("$connector", ".*") for expr in list_dashboard_expressions())
    rules = [{"record": f"panel:{at}", "expr": expr} for at, expr in expressions]
    file = tmp_path / "dashboard.rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run_promtool("check", "rules", str(file))


def test_a_panel_that_tells_one_value_is_empty_when_nothing_is_known(tmp_path: Path) -> None:
    stats = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] == "stat"]
    targets = [target for panel in stats for target in panel["targets"]]
    assert all(target.get("instant") for target in targets), "a range of hours ends with the last value that was known"
    asked = [
        {"expr": target["expr"].replace("$connector", ".*"), "eval_time": "1m", "exp_samples": []} for target in targets
    ]
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump({"rule_files": [], "tests": [{"interval": "1m", "promql_expr_test": asked}]}))
    run_promtool("test", "rules", str(cases))
