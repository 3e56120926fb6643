"""A slow job, which is under way until it is killed."""

import time

import dagster as dg

from kafka_s3_platform.core.defs.failures import raise_dagster_failures

QUICK, SLOW = dg.AssetKey(["c", "hourly", "quick"]), dg.AssetKey(["c", "hourly", "slow"])


@dg.asset(key=QUICK)
def quick(context: dg.AssetExecutionContext) -> None:
    with raise_dagster_failures(context):
        return


@dg.asset(key=SLOW, deps=[QUICK])
def slow(context: dg.AssetExecutionContext) -> None:
    """Records nothing of itself: only the step before it did, whose process has ended where steps have their own."""
    context.log_event(dg.AssetObservation(SLOW))
    time.sleep(300)


def slow_job() -> dg.JobDefinition:
    assets = [quick, slow]
    return dg.Definitions(assets=assets, jobs=[dg.define_asset_job("archive__c", assets)]).resolve_job_def("archive__c")


def main(home: str, how: str) -> None:
    """`in-process`: as the command line runs it; `steps`: as the daemon does, each step in a process of its own."""
    with dg.DagsterInstance.from_config(home) as instance:
        if how == "steps":
            dg.execute_job(dg.reconstructable(slow_job), instance=instance)
        else:
            slow_job().execute_in_process(instance=instance)
