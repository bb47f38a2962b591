"""Multinomial draws, candidate samplers, and the losses made of them."""

import numpy as np
import pytest

from optkit.gradients import gradients
from optkit.ops import sampling
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.ops.sampled_losses import nce_loss, sampled_softmax_loss
from optkit.runtime.session import Session

TRUE = np.array([[0], [7], [3]])


def test_multinomial_draws_by_softmax():
    logits = np.log([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]])
    drawn = sampling.multinomial(logits, 20_000, seed=2)
    assert drawn.dtype == "int64"
    assert drawn.shape == [2, 20_000]
    session = Session()
    first, second = session.run(drawn), session.run(drawn)
    shares = [np.bincount(row, minlength=3) / 20_000 for row in first]
    np.testing.assert_allclose(shares, [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], atol=0.01)
    assert (first != second).any()
    np.testing.assert_array_equal(Session().run(drawn), first)
    assert sampling.multinomial(logits, 1, output_dtype="int32").dtype == "int32"
    with pytest.raises(ValueError, match="logits: expected two axes"):
        sampling.multinomial([1.0], 1)


def uniform(classes):
    return np.full(np.shape(classes), 0.1)


def log_uniform(classes):
    return (np.log(classes + 2.0) - np.log(classes + 1.0)) / np.log(11.0)


WEIGHTS = np.array([0, 3, 1, 0, 2, 2, 1, 4, 1, 2.0])


def unigram(classes):
    return (WEIGHTS**0.75 / (WEIGHTS**0.75).sum())[classes]


def fixed(*arguments, **settings):
    return sampling.fixed_unigram_candidate_sampler(
        *arguments, distortion=0.75, num_reserved_ids=1, unigrams=WEIGHTS[1:], **settings
    )


SAMPLERS = [
    (sampling.uniform_candidate_sampler, uniform),
    (sampling.log_uniform_candidate_sampler, log_uniform),
    (fixed, unigram),
]


@pytest.mark.parametrize(("sampler", "probability"), SAMPLERS)
def test_candidates_with_repetition(sampler, probability):
    found = sampler(TRUE, 1, 20_000, False, 10, seed=5)
    assert [x.shape.as_list() for x in found] == [[20_000], [3, 1], [20_000]]
    classes, true_expected, expected = Session().run(list(found))
    shares = np.bincount(classes, minlength=10) / 20_000
    np.testing.assert_allclose(shares, probability(np.arange(10)), atol=0.012)
    np.testing.assert_allclose(true_expected, 20_000 * probability(TRUE), rtol=1e-5)
    np.testing.assert_allclose(expected, 20_000 * probability(classes), rtol=1e-5)


@pytest.mark.parametrize(("sampler", "probability"), SAMPLERS)
def test_candidates_without_repetition(sampler, probability):
    found = sampler(TRUE, 1, 6, True, 10, seed=6)
    session = Session()
    seen = np.zeros(10)
    for _ in range(300):
        classes, true_expected, expected = session.run(list(found))
        assert len(set(classes)) == 6
        seen[classes] += 1
        # How often it drew follows from one expected count and gives all the others.
        p, truth = probability(classes), probability(TRUE)
        if np.allclose(expected, 6 * p, rtol=1e-6):
            np.testing.assert_allclose(true_expected, 6 * truth, rtol=1e-6)
            continue
        rare = np.argmin(p)
        tries = np.log1p(-float(expected[rare])) / np.log1p(-p[rare])
        assert tries == pytest.approx(round(tries), abs=1e-3)
        assert tries > 6.5
        for found_counts, chances in ((expected, p), (true_expected, truth)):
            wanted = 1 - (1 - chances) ** round(tries)
            np.testing.assert_allclose(found_counts, wanted, rtol=1e-5)
    assert (seen > 0).tolist() == (probability(np.arange(10)) > 0).tolist()


def test_samplers_refuse():
    with pytest.raises(ValueError, match="num_sampled: 11 different classes cannot be drawn"):
        sampling.uniform_candidate_sampler(TRUE, 1, 11, True, 10)
    with pytest.raises(ValueError, match="true_classes: expected shape"):
        sampling.uniform_candidate_sampler(TRUE, 2, 5, True, 10)
    with pytest.raises(ValueError, match="range_max: expected at least 1"):
        sampling.log_uniform_candidate_sampler(TRUE, 1, 5, True, 0)
    with pytest.raises(ValueError, match="range_max: expected 0 reserved"):
        sampling.fixed_unigram_candidate_sampler(TRUE, 1, 1, True, 10, unigrams=[1.0])
    with pytest.raises(ValueError, match="expected exactly one of them"):
        sampling.fixed_unigram_candidate_sampler(TRUE, 1, 1, True, 10)


def test_unigrams_from_a_file(tmp_path):
    path = tmp_path / "words.csv"
    path.write_text("the,30\na,10\n\nof,0\n", encoding="utf-8")
    found = sampling.fixed_unigram_candidate_sampler([[0]], 1, 2, False, 3, vocab_file=str(path))
    np.testing.assert_allclose(Session().run(found.true_expected_count), [[1.5]])


def test_accidental_hits():
    hits = sampling.compute_accidental_hits([[1, 2], [3, 9]], [9, 1, 3, 1], 2)
    rows, places, weights = Session().run(list(hits))
    assert list(zip(rows, places, strict=True)) == [(0, 1), (0, 3), (1, 2), (1, 0)]
    np.testing.assert_array_equal(weights, np.full(4, np.finfo(np.float32).min))


def problem(truths):
    rng = np.random.default_rng(truths)
    weights, biases = rng.normal(size=(20, 5)), rng.normal(size=20)
    labels, x = rng.integers(0, 20, (4, truths)), rng.normal(size=(4, 5))
    sampled = np.array([labels[1, 0], 5, 17])
    expected = rng.uniform(0.1, 0.9, (4, truths)), rng.uniform(0.1, 0.9, 3)
    return weights, biases, labels, x, sampled, expected


def logits_of(truths, hits):
    """One number after the other."""
    weights, biases, labels, x, sampled, (true_q, sampled_q) = problem(truths)
    logits = np.empty((4, truths + 3))
    for i in range(4):
        for j, k in enumerate(labels[i]):
            logits[i, j] = x[i] @ weights[k] + biases[k] - np.log(true_q[i, j])
        for j, k in enumerate(sampled):
            logits[i, truths + j] = x[i] @ weights[k] + biases[k] - np.log(sampled_q[j])
            if hits and k in labels[i]:
                logits[i, truths + j] = -np.inf
    targets = np.zeros((4, truths + 3))
    targets[:, :truths] = 1 / truths
    return logits, targets


def arguments(truths):
    weights, biases, labels, x, sampled, (true_q, sampled_q) = problem(truths)
    values = [constant(sampled), constant(true_q), constant(sampled_q)]
    return (constant(weights), constant(biases), labels, x, 3, 20, truths, values)


@pytest.mark.parametrize("hits", [True, False])
@pytest.mark.parametrize("truths", [1, 2])
def test_nce_loss(truths, hits):
    logits, targets = logits_of(truths, hits)
    finite = np.where(targets > 0, logits, 0)
    terms = np.logaddexp(0, logits) - targets * finite
    loss = nce_loss(*arguments(truths), remove_accidental_hits=hits)
    np.testing.assert_allclose(Session().run(loss), terms.sum(1), rtol=1e-10)


@pytest.mark.parametrize("hits", [True, False])
@pytest.mark.parametrize("truths", [1, 2])
def test_sampled_softmax_loss(truths, hits):
    logits, targets = logits_of(truths, hits)
    total = np.log(np.exp(logits).sum(1, keepdims=True))
    terms = targets * (total - np.where(targets > 0, logits, 0))
    loss = sampled_softmax_loss(*arguments(truths), remove_accidental_hits=hits)
    np.testing.assert_allclose(Session().run(loss), terms.sum(1), rtol=1e-10)


def test_losses_sample_by_themselves():
    weights, biases, labels, x, _, _ = problem(1)
    w, b = constant(weights.astype("float32")), constant(biases.astype("float32"))
    for function in (nce_loss, sampled_softmax_loss):
        loss = function(w, b, labels, x.astype("float32"), 8, 20)
        assert loss.shape == [4]
        dw, db = gradients(loss, [w, b])
        values = Session().run([loss, dw.values, db.values])
        assert all(np.isfinite(value).all() for value in values)
    with pytest.raises(ValueError, match="labels: expected shape"):
        nce_loss(w, b, labels, x.astype("float32"), 8, 20, num_true=2)
    with pytest.raises(ValueError, match="inputs: expected shape"):
        nce_loss(w, b, labels, placeholder("float32", [5]), 8, 20)
