"""Makes a code server load the definitions again. A sensor calls this when definitions are missing."""

import logging
import threading

import dagster as dg
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

logger = logging.getLogger(__name__)


def reload_code_location(context: dg.SensorEvaluationContext) -> str:
    """Replace this code server with a newly loaded one. Return a sentence for the sensor's page.

    Dagster's webserver and daemon notice a new server by themselves. If each of them manages a server of its own, the
    daemon replaces its server every minute, and the webserver when somebody reloads the location.
    """
    origin = context.code_location_origin
    if not isinstance(origin, GrpcServerCodeLocationOrigin):
        return "all is defined when this code location is loaded again: press Reload on the Deployment page"
    timeout = context.instance.code_server_reload_timeout
    # Do not wait for the reply: it comes after the end of this server, and the tick has to end before that.
    threading.Thread(target=_request_reload, args=(origin, timeout), daemon=True).start()
    return "this code location is being loaded again"


def _request_reload(origin: GrpcServerCodeLocationOrigin, timeout: int) -> None:
    """Ask the code server to load again. Log a warning if it does not."""
    try:
        origin.create_client().reload_code(timeout=timeout)
    except dg.DagsterError as err:
        logger.warning("code location %s was not loaded again: %s", origin.location_name, err)
