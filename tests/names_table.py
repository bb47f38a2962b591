"""The appendix of README.md: which of TensorFlow 1's names there are.

`python tests/names_table.py` prints it; `python tests/names_table.py README.md` writes it into the
file between its marks.
"""

import importlib
import sys
from pathlib import Path

from optkit.names import TF1

NAMESPACES = (
    "train",
    "nn",
    "losses",
    "layers",
    "metrics",
    "summary",
    "contrib.layers",
    "contrib.training",
    "contrib.framework",
    "contrib.opt",
)
START = "<!-- names: written by tests/names_table.py -->\n"
END = "<!-- names: end -->\n"


def here(namespace):
    """The names of TensorFlow 1 that a namespace has."""
    return TF1[namespace] & set(importlib.import_module(f"optkit.{namespace}").__all__)


def cell(names):
    """Names for a cell of the table."""
    return f"`{' '.join(sorted(sorted(names), key=str.casefold))}`" if names else "–"


def table():
    """The appendix, in Markdown."""
    lines = ["| | there | not there |", "|---|---|---|"]
    for namespace in NAMESPACES:
        there = here(namespace)
        absent = TF1[namespace] - there
        lines.append(
            f"| `tf.{namespace}`<br>{len(there)} of {len(there | absent)} "
            f"| {cell(there)} | {cell(absent)} |"
        )
    return "\n".join(lines) + "\n"


def rewritten(text):
    """The text with the appendix between its marks made anew."""
    before, _, rest = text.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"expected {START.strip()!r} and {END.strip()!r} in the text")
    return f"{before}{START}\n{table()}\n{END}{after}"


def main(arguments):
    """Print the appendix, or write it into files."""
    if not arguments:
        sys.stdout.write(table())
    for argument in arguments:
        path = Path(argument)
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
