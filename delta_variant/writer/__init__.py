"""The writer: a DataFrame → shredded Parquet files with statistics → one commit of Delta's.

`driver` tells a write from its beginning to its end; `streaming` makes it a function for streams. On the driver: `arguments`,
`modes`, `evolution`, `alignment`, `constraints`, `mapping`, `job`. In the tasks: `task` and what it imports.
"""

from delta_variant.writer.driver import Commit, write
from delta_variant.writer.streaming import foreach_batch

__all__ = ["Commit", "foreach_batch", "write"]
