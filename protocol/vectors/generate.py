"""Writes the vectors: `python -m protocol.vectors.generate [folder]`, by default here.

In: the `cases` of every folder. Out: their files, as `protocol/vectors/README.md` says. Files of vectors that no case names any
more are removed. Invariant: the same cases give the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from protocol.vectors import vector
from protocol.vectors.arrow import cases as arrow
from protocol.vectors.draft import cases as draft
from protocol.vectors.encoding import cases as encoding
from protocol.vectors.scalars import cases as scalars
from protocol.vectors.shredding import cases as shredding
from protocol.vectors.spark import cases as spark

HERE = Path(__file__).parent
FOLDERS = {
    "encoding": encoding.VECTORS,
    "scalars": scalars.VECTORS,
    "shredding": shredding.VECTORS,
    "draft": draft.VECTORS,
    "spark": spark.VECTORS,
    "arrow": arrow.VECTORS,
}


def generate(to: Path) -> None:
    """Writes every vector under a folder."""
    for name, vectors in FOLDERS.items():
        assert len({one.name for one in vectors}) == len(vectors), f"two vectors of {name} have the same name"
        vector.write(vectors, to / name)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
