"""The benchmarks: `python -m tests.benchmarks [--json FILE] [PART ...]`.

Peers are measured where they are installed (`pip install -e '.[jit,bench]'`).
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from tests.benchmarks import bench_convolution, fitting, steps, summaries, updates
from tests.benchmarks.harness import measure, save, table

PARTS = {
    "updates": updates.cases,
    "rows": updates.row_cases,
    "steps": steps.cases,
    "summaries": summaries.cases,
    "fit": fitting.cases,
    "convolutions": bench_convolution.cases,
}


def main() -> None:
    """Measure, print a table, and save it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART")
    parser.add_argument("--json", type=Path, help="where to save the figures")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = []
    for part in options.parts or PARTS:
        for case in PARTS[part]():
            results.append(measure(case, options.rounds))
            print(table(results[-1:]).splitlines()[-1], flush=True)
            del case
            gc.collect()  # sessions hold cycles, and ten million weights each
    print()
    print(table(results))
    if options.json is not None:
        save(results, options.json)


if __name__ == "__main__":
    main()
