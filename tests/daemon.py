"""PySpark's daemon with the modules and kernels of tasks loaded, which every worker that it forks would load again.

Spark starts new workers after a task that fails, and after a minute without one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads, which are lost when a process forks

from pyspark import daemon

from delta_variant.analysis import task  # noqa: F401  # they import what tasks use
from tests.tasks import compile_kernels

if __name__ == "__main__":
    compile_kernels()
    daemon.manager()
