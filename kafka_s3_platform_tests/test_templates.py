"""Pages and their templates: what one has, the other shows."""

import re

import pytest

from kafka_s3_platform.core.restore.report_page import ReportPage
from kafka_s3_platform.operate.monitoring.hours_page import HoursPage
from kafka_s3_platform.operate.monitoring.status_page import StatusPage
from kafka_s3_platform_tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    ("template", "facts"),
    [
        ("operate/monitoring/hours_page", HoursPage),
        ("operate/monitoring/status_page", StatusPage),
        ("core/restore/report_page", ReportPage),
    ],
)
def test_a_template_uses_what_its_page_works_out_and_nothing_that_it_lacks(template: str, facts: type) -> None:
    used = set(re.findall(r"\bpage\.(?!html)(\w+)", (REPOSITORY / f"kafka_s3_platform/{template}.html.j2").read_text()))
    made = {name for name in vars(facts) if not name.startswith("_")} - facts.__annotations__.keys()
    assert made - used == set(), "nothing shows it"
    assert used - made - facts.__annotations__.keys() == set(), "the page lacks it"
