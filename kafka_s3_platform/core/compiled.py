"""numba, configured by the environment alone.

By itself numba reads `.numba_config.yaml` in the working directory, when it is imported and whenever it compiles. A
`cache_dir` there names a folder of pickles to load, so whoever can write to a command's working directory could run
code.
"""

from functools import partial

import numba
from numba.core import config

# No file has an empty name. What the import took from a file is replaced by what the environment says.
config._config_fname = ""  # noqa: SLF001 - no setting turns it off
config.reload_config()  # type: ignore[no-untyped-call, unused-ignore]

compile_cached = partial(numba.njit, cache=True, nogil=True)
"""Compiles a function once for all processes."""
