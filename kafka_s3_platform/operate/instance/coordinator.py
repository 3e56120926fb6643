"""The queue of runs, with pools limited from their first run on, and restores marked."""

from dagster import DagsterRun, QueuedRunCoordinator, SubmitRunContext
from sqlalchemy.exc import SQLAlchemyError

from kafka_s3_platform.core.instance.names import is_restore_pool

RESTORES_TAG = "kafka_s3/restores"
"""The tag of queued restores. `dagster.yaml` limits their number: they take days, and hours must not wait for them."""


class PoolRunCoordinator(QueuedRunCoordinator):
    """Dagster's queue. It sets a pool's default limit before the first run of the pool waits, and marks restores.

    Dagster 1.13 itself sets the limit when its queue daemon sees the first run of the pool, but obeys it only from the
    next iteration on, so all runs waiting in the first iteration start at once.
    """

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        concurrency = context.dagster_run.run_op_concurrency
        pools = sorted(concurrency.all_pools or ()) if concurrency else []
        for pool in pools:
            self._set_default_limit(pool)
        if any(map(is_restore_pool, pools)):
            self._instance.add_run_tags(context.dagster_run.run_id, {RESTORES_TAG: "true"})
        return super().submit_run(context)

    def _set_default_limit(self, pool: str) -> None:
        """Give the pool the default limit, unless it has one."""
        storage = self._instance.event_log_storage
        if self._has_limit(pool):
            return
        try:
            storage.initialize_concurrency_limit_to_default(pool)
        except SQLAlchemyError:
            # On Postgres this fails if another process was quicker.
            if not self._has_limit(pool):
                raise

    def _has_limit(self, pool: str) -> bool:
        return any(limit.name == pool for limit in self._instance.event_log_storage.get_pool_limits())
