"""The loose form with the arrays of other libraries."""

import numpy as np
import pytest

from summaries import OPTIMIZER_SUMMARIES, OptimizerSummaries, SummaryWriter, read
from summaries.quantities import EXTRA_SUMMARIES

ARRAYS = {
    "w": np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32),
    "b": np.float32([0, -1, 2]),
}


def torch_arrays():
    torch = pytest.importorskip("torch")
    arrays = {name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()}
    return torch.tensor(0.5, requires_grad=True) * 2, arrays


def torch_parameters():
    """Leaves of a graph, one of them transposed."""
    torch = pytest.importorskip("torch")
    arrays = {
        name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in ARRAYS.items()
    }
    arrays["w"] = torch.nn.Parameter(torch.from_numpy(ARRAYS["w"].T.copy())).T
    return torch.tensor(1.0), arrays


def torch_sparse():
    """Rows of an embedding, one of them twice."""
    torch = pytest.importorskip("torch")
    arrays = {}
    for name, array in ARRAYS.items():
        values = torch.from_numpy(np.concatenate([array, array[:1]]) / 2)
        values[1 : len(array)] *= 2
        rows = torch.arange(len(array) + 1) % len(array)
        shape = (99, *array.shape[1:])
        arrays[name] = torch.sparse_coo_tensor(rows[None], values, shape, check_invariants=True)
    return torch.tensor(1.0), arrays


def jax_arrays():
    jax_numpy = pytest.importorskip("jax.numpy")
    return jax_numpy.float32(1), {name: jax_numpy.asarray(a) for name, a in ARRAYS.items()}


def cupy_arrays():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("CuPy finds no device")
    return cupy.float32(1), {name: cupy.asarray(array) for name, array in ARRAYS.items()}


class DLPack:
    """An array that offers nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def dlpack_arrays():
    return DLPack(np.array(1.0)), {name: DLPack(array) for name, array in ARRAYS.items()}


def write(logdir, loss, arrays):
    with OptimizerSummaries(logdir, [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]) as summaries:
        summaries.step(
            3,
            loss=loss,
            learning_rate=0.5,
            gradients=arrays,
            unclipped=arrays,
            weights=arrays,
            updates=arrays,
        )
    return {record.tag: (record.step, record.value) for record in read(logdir)}


@pytest.mark.parametrize(
    "library",
    [torch_arrays, torch_parameters, torch_sparse, jax_arrays, cupy_arrays, dlpack_arrays],
)
def test_any_library_gives_what_numpy_gives(tmp_path, library):
    loss, arrays = library()
    theirs = write(tmp_path / "theirs", loss, arrays)
    expected = write(tmp_path / "numpy", np.float32(1), ARRAYS)
    assert list(theirs) == list(expected)
    assert len(theirs) > 18
    for tag, (step, value) in expected.items():
        assert theirs[tag][0] == step
        if hasattr(value, "counts"):
            np.testing.assert_array_equal(theirs[tag][1].counts, value.counts)
            np.testing.assert_array_equal(theirs[tag][1].limits, value.limits)
        elif isinstance(value, float):
            assert theirs[tag][1] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
def test_small_floats_of_pytorch(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    gradient = torch.tensor([-3.0, 0.5, 1.25]).to(getattr(torch, dtype)).requires_grad_()
    loss = torch.tensor(1.5, requires_grad=True).to(gradient.dtype)
    with OptimizerSummaries(tmp_path) as summaries:
        summaries.step(1, loss=loss, gradients={"w": gradient})
    run = read(tmp_path)
    assert run.scalars("loss").values == [1.5]
    (histogram,) = run.histograms("gradients/w").values
    assert (histogram.min, histogram.max, histogram.sum) == (-3, 1.25, -1.25)


def test_a_tensor_without_values_names_the_tag(tmp_path):
    torch = pytest.importorskip("torch")
    with OptimizerSummaries(tmp_path) as summaries:
        with pytest.raises(TypeError, match="'gradients/w' takes real numbers: "):
            summaries.step(1, gradients={"w": torch.empty(3, device="meta")})
        with pytest.raises(TypeError, match="'loss' takes real numbers: "):
            summaries.step(1, loss=torch.empty((), device="meta"))


def test_a_pytorch_training_loop(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    losses, norms = [], []
    with SummaryWriter(tmp_path, histograms_every_n_steps=2) as writer:
        summaries = OptimizerSummaries(writer)
        for n in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
            with writer.step(n):
                summaries.step(
                    n,
                    loss=loss,
                    learning_rate=optimizer.param_groups[0]["lr"],
                    gradients={name: p.grad for name, p in model.named_parameters()},
                    global_norm=norms[-1],
                )
                writer.add_scalar("weight", model.weight[0, 0])
            optimizer.step()
            losses.append(loss.item())
    run = read(tmp_path)
    np.testing.assert_allclose(run.scalars("loss").values, losses, rtol=1e-6)
    np.testing.assert_allclose(run.scalars("global_norm/gradient_norm").values, norms, rtol=1e-6)
    total = (
        run.scalars("gradient_norm/weight").values ** 2
        + run.scalars("gradient_norm/bias").values ** 2
    )
    np.testing.assert_allclose(np.sqrt(total), 0.1, rtol=1e-4)
    assert list(run.histograms("gradients/weight").steps) == [0, 2]
    assert len(run.scalars("weight").values) == 4
