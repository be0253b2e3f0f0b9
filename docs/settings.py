"""Write the settings tables of docs/algorithms/ from the code.

python docs/settings.py            rewrite the tables that are out of date
python docs/settings.py --check    change nothing; exit with 1 if a table is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.algorithms import ALGORITHMS
from headrace.settings.values import described

PAGES = Path(__file__).resolve().parent / "algorithms"
BEGIN, END = "<!-- settings -->", "<!-- /settings -->"


def table(name: str) -> str:
    """The settings of an algorithm as a Markdown table, in the order of `headrace algorithms NAME`."""
    rows = [
        f"| `{setting}` | `{value}` | {meaning} |" for setting, value, meaning in described(ALGORITHMS[name]().config)
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def updated(page: str, name: str) -> str:
    """A page with its table rewritten."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"docs/algorithms/{name}.md has no {BEGIN} ... {END}; put these two lines into it.")
    return f"{before}{BEGIN}\n{table(name)}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or say which are out of date."""
    check = "--check" in arguments
    found = 0
    for name in ALGORITHMS:
        path = PAGES / f"{name}.md"
        page = path.read_text()
        text = updated(page, name)
        if text == page:
            continue
        found = 1
        if check:
            print(f"{path} is out of date; run: python docs/settings.py", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {path}")
    return found if check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
