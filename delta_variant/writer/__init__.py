"""The writer: a DataFrame → shredded Parquet files with statistics → one commit of Delta's.

`driver` tells a call of `write` from its beginning to its end, and `streaming` makes it a function for streams. `calls` runs
Delta's command. When Delta's transaction asks for the files, `every_write` answers: for a call, and for every other command in
an enabled session. In the tasks: `task` and what it imports.
"""

from delta_variant.writer.driver import Commit, write
from delta_variant.writer.streaming import foreach_batch

__all__ = ["Commit", "foreach_batch", "write"]
