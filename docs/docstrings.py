"""Docstrings on the page of functions, an extension of Griffe: examples are code blocks, and arguments are lists."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
CALLS = re.compile(r"^Examples?:\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
ARGUMENT = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Makes Markdown of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of an object."""
        if obj.docstring is None:
            return
        text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
        text = CALLS.sub(lambda found: f"```python\n{textwrap.dedent(found[1]).strip()}\n```\n\n", text)
        if isinstance(obj, griffe.Function):
            arguments = {parameter.name for parameter in obj.parameters}

            def item(found: re.Match[str]) -> str:
                names = found[1].split(", ")
                return f"\n* {', '.join(f'`{name}`' for name in names)}: " if arguments.issuperset(names) else found[0]

            text = ARGUMENT.sub(item, text)
        obj.docstring.value = text
