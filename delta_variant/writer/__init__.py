"""The writer: a DataFrame → shredded Parquet files with statistics → one commit of Delta's.

`driver` tells a call of `write` from its beginning to its end, and `streaming` makes it a function for streams. `calls` runs
Delta's command. When Delta's transaction asks for the files, `every_write` answers: for a call, and for every other command in
an enabled session. In the tasks: `task` and what it imports.

The names of the driver are imported when they are first used, because tasks need none of its modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_variant.writer.driver import Commit, write
    from delta_variant.writer.streaming import foreach_batch

__all__ = ["Commit", "foreach_batch", "write"]

_MODULE_OF = {"Commit": "driver", "foreach_batch": "streaming", "write": "driver"}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
