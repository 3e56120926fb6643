"""Makes short digests of the inputs of runs."""

import hashlib
import json
from typing import Any


def fingerprint_inputs(inputs: Any) -> str:
    """Return a short digest of JSON values. Cursors and tags hold it."""
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]
