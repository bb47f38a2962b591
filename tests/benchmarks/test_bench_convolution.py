"""That the benchmark of convolutions compares the same thing; no times are asserted."""

from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks import bench_convolution as bench
from tests.benchmarks.harness import measure, table, torch_or_none

pytestmark = pytest.mark.slow

SMALL = [replace(problem, images=2, size=6) for problem in bench.PROBLEMS]


def test_every_case_runs():
    results = []
    for case in bench.cases(0.01):
        case.repeats = 1
        results.append(measure(case, rounds=1))
    assert len(results) == 2 * len(bench.PROBLEMS)
    assert "convolution 5x5x1x32 NHWC, with gradients" in table(results)


@pytest.mark.skipif(torch_or_none() is None, reason="torch is not installed")
@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_both_sides_compute_the_same(problem):
    forward, both = bench.ours(problem, values=True)
    peers = bench.pytorchs(torch_or_none(), problem)
    for step, peer in zip((forward, both), peers, strict=True):
        y, *rest = step()
        theirs = [each.detach().numpy() for each in peer()]
        if problem.data_format == "NHWC":
            theirs[:2] = [each.transpose(0, 2, 3, 1) for each in theirs[:2]]
        if rest:
            theirs[2] = theirs[2].transpose(2, 3, 1, 0)
        for a, b in zip([y, *rest], theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
