"""sequence_loss, one number after the other."""

import numpy as np
import pytest

from optkit.contrib.seq2seq import sequence_loss
from optkit.runtime.session import Session

RNG = np.random.default_rng(2)
LOGITS, TARGETS = RNG.normal(size=(3, 4, 5)), RNG.integers(0, 5, (3, 4))
WEIGHTS = np.array([[1, 0.5, 0, 0], [1, 1, 2, 0], [0, 0, 0, 0]])


def losses():
    found = np.empty((3, 4))
    for b in range(3):
        for t in range(4):
            row = LOGITS[b, t]
            found[b, t] = (np.log(np.exp(row).sum()) - row[TARGETS[b, t]]) * WEIGHTS[b, t]
    return found


def ratio(a, b):
    return np.divide(a, b, out=np.zeros(np.shape(a)), where=np.asarray(b) != 0)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((True, True), lambda x: x.sum() / WEIGHTS.sum()),
        ((True, False), lambda x: ratio(x.sum(1), WEIGHTS.sum(1))),
        ((False, True), lambda x: ratio(x.sum(0), WEIGHTS.sum(0))),
        ((False, False), lambda x: x),
        ((False, False, True, True), lambda x: x.sum() / 5),
        ((False, False, True, False), lambda x: ratio(x.sum(1), (WEIGHTS > 0).sum(1))),
        ((False, False, False, True), lambda x: ratio(x.sum(0), (WEIGHTS > 0).sum(0))),
    ],
)
def test_values(flags, expected):
    names = [
        "average_across_timesteps",
        "average_across_batch",
        "sum_over_timesteps",
        "sum_over_batch",
    ]
    loss = sequence_loss(LOGITS, TARGETS, WEIGHTS, **dict(zip(names, flags, strict=False)))
    wanted = expected(losses())
    assert loss.shape == list(np.shape(wanted))
    np.testing.assert_allclose(Session().run(loss), wanted, rtol=1e-12)


def test_a_loss_of_ones_own():
    loss = sequence_loss(
        LOGITS,
        TARGETS,
        np.ones((3, 4)),
        softmax_loss_function=lambda labels, logits: logits[:, 0] * 2.0,
    )
    np.testing.assert_allclose(Session().run(loss), 2 * LOGITS[:, :, 0].mean())


def test_mistakes():
    with pytest.raises(ValueError, match="logits: expected 3 axes"):
        sequence_loss(LOGITS[0], TARGETS, WEIGHTS)
    with pytest.raises(ValueError, match="weights: expected 2 axes"):
        sequence_loss(LOGITS, TARGETS, 1.0)
    with pytest.raises(ValueError, match="expected one at most"):
        sequence_loss(LOGITS, TARGETS, WEIGHTS, sum_over_batch=True)
