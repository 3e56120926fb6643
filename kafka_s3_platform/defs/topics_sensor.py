"""The topics sensor: notices new topics that a connector's `topics.regex` matches, and has the definitions reloaded."""

import logging
import threading

import dagster as dg
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.discovery import look, topics_folder
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.errors import TransientError

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 60


def topics_sensor(connector: ConnectorConfig) -> dg.SensorDefinition:
    """One connector's sensor; `topics` of it are defined now. It runs from the start, and asks for no run."""

    @dg.sensor(
        name=op_name("topics", connector.name),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Finds new topics for connector {connector.name}, which archives those that "
        f"`{connector.topics_regex}` matches.",
    )
    def topics(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        try:
            found = look(connector, topics_folder())
        except TransientError as err:
            return dg.SkipReason(str(err))
        new = sorted(set(found.topics) - set(connector.topics))
        if not new:
            return dg.SkipReason(f"no new topic matches {connector.topics_regex}")
        return dg.SkipReason(f"new: {', '.join(new)}; {_reload(context)}")

    return topics


def _reload(context: dg.SensorEvaluationContext) -> str:
    """Have this code server replaced by one that reads the new list; what happens next, for people.

    Dagster's webserver and daemon notice a new server by themselves. Servers that a process of theirs manages on its
    own are the daemon's to replace, every minute, and the webserver's when somebody says so.
    """
    origin = context.code_location_origin
    if not isinstance(origin, GrpcServerCodeLocationOrigin):
        return "they are defined when this code location is loaded again: press Reload on the Deployment page"
    timeout = context.instance.code_server_reload_timeout
    # the reply would come after this server's end, and this tick has to end before that
    threading.Thread(target=_ask_to_reload, args=(origin, timeout), daemon=True).start()
    return "this code location is being loaded again"


def _ask_to_reload(origin: GrpcServerCodeLocationOrigin, timeout: int) -> None:
    try:
        origin.create_client().reload_code(timeout=timeout)
    except dg.DagsterError as err:
        logger.warning("code location %s was not loaded again: %s", origin.location_name, err)
