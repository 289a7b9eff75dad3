"""What a table's log says, read from its commits: a query of Delta's takes a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def commits(path: Path | str) -> list[list[dict[str, Any]]]:
    """The actions of each commit, the oldest first."""
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in _files(path)]


def actions(path: Path | str, kind: str) -> list[dict[str, Any]]:
    """The actions of a kind in all commits, the newest last."""
    return [action[kind] for commit in commits(path) for action in commit if kind in action]


def last(path: Path | str, kind: str) -> dict[str, Any]:
    """The newest action of a kind."""
    return actions(path, kind)[-1]


def adds(path: Path | str, version: int) -> list[dict[str, Any]]:
    """The Add actions of a version."""
    lines = Path(path, "_delta_log", f"{version:020}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def live(path: Path | str) -> dict[str, dict[str, Any]]:
    """The Add actions of the files that the table has, by their paths."""
    found = {}
    for commit in commits(path):
        for action in commit:
            found.pop(action.get("remove", {}).get("path"), None)
        found |= {action["add"]["path"]: action["add"] for action in commit if "add" in action}
    return found


def newest(path: Path | str) -> int:
    """The newest version."""
    return int(_files(path)[-1].stem)


def features(path: Path | str) -> set[str]:
    """The table features of the newest protocol."""
    return set(last(path, "protocol")["writerFeatures"])


def _files(path: Path | str) -> list[Path]:
    """The commits, and no checkpoint in JSON."""
    return sorted(file for file in Path(path, "_delta_log").glob("*.json") if file.stem.isdigit())


def protocol_and_metadata(path) -> tuple[dict, dict]:
    """Protocol and metadata of the newest version, by the log."""
    return last(path, "protocol"), last(path, "metaData")
