"""Every benchmark runs, small and untimed."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.harness import Case, measure, save, table


@pytest.mark.parametrize("part", ["updates", "rows", "steps", "summaries", "fit"])
@pytest.mark.slow
def test_every_case_runs(part, tmp_path):
    results = []
    for case in PARTS[part](0.001):
        case.repeats = 1
        results.append(measure(case, rounds=1))
    save(results, tmp_path / "figures.json")
    assert len(json.loads((tmp_path / "figures.json").read_text())["results"]) == len(results)
    assert table(results).count("\n") == len(results) + 1


def test_ratios_are_medians_over_rounds():
    result = measure(Case("work", lambda: sum(range(2000)), {"half": lambda: sum(range(1000))}), 3)
    assert result.ours_ms > 0
    assert set(result.ratios) == {"half"}
