"""Suggestions for misspelt environment names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from headrace.errors import nearest


def suggest(asked: str, known: Iterable[str]) -> str:
    """The end of a sentence, such as ``"; did you mean 'Pendulum-v1'?"``: the nearest name, then its version.

    Names are compared without version and case, so that 'pendulum-v9' finds 'Pendulum-v1' and not
    something else that happens to have a version 9.
    """
    name, version = _split(asked)
    groups: dict[str, list[str]] = {}
    for candidate in known:
        groups.setdefault(_split(candidate)[0].lower(), []).append(candidate)
    close = difflib.get_close_matches(name.lower(), sorted(groups), n=1, cutoff=0.6)
    if not close:
        return "."
    ids = groups[close[0]]
    same = [candidate for candidate in ids if _split(candidate)[1] == version]
    best = max(same or ids, key=lambda candidate: (_split(candidate)[1], candidate))
    return nearest(best, [best])


def _split(name: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*)-v(\d+)", name)
    return (found[1], int(found[2])) if found else (name, -1)
