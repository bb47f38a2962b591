import inspect
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf
from optkit import demo

VARIABLES = ["hidden/weights_0", "hidden/biases_0", "output/weights_0", "output/biases_0"]


@pytest.fixture(scope="module")
def digits():
    return demo.load()


def events(directory):
    """A run as TensorBoard's EventAccumulator reads it, with every point."""
    return EventAccumulator(str(directory), {"scalars": 0, "histograms": 0}).Reload()


def points(directory, tag):
    return [(event.step, event.value) for event in events(directory).Scalars(tag)]


# -- the data -------------------------------------------------------------------------------------


def test_digits_are_flat_images_with_pixels_from_0_to_1(digits):
    assert digits.train_images.shape == (1438, 64)
    assert digits.test_images.shape == (359, 64)
    assert digits.train_images.dtype == np.float32
    assert digits.train_labels.dtype == np.int64
    assert digits.train_images.min() == 0
    assert digits.train_images.max() == 1
    assert sorted(set(digits.test_labels.tolist())) == list(range(10))


def test_every_image_is_either_trained_on_or_held_out(digits):
    from sklearn.datasets import load_digits

    together = np.concatenate([digits.train_images, digits.test_images]) * 16
    given = load_digits().data
    assert sorted(map(tuple, together)) == sorted(map(tuple, given))


def test_the_seed_chooses_the_held_out_images(digits):
    np.testing.assert_array_equal(demo.load(0).test_images, digits.test_images)
    assert not np.array_equal(demo.load(1).test_images, digits.test_images)


def test_batches_show_every_image_once_before_any_twice():
    batches = demo._batches(10, 3, np.random.default_rng(0))
    epochs = [np.concatenate([next(batches) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 9
    assert epochs[0].tolist() != epochs[1].tolist()


# -- the settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [("adam", "Adam"), ("SGD", "SGD"), ("adagrad-da", "AdagradDA"), ("RMSPROP", "RMSProp")],
)
def test_an_optimizer_may_be_written_in_any_case(name, known):
    assert demo.Settings(name).optimizer == known


def test_a_decay_may_be_written_in_any_case():
    assert demo.Settings(decay="Cosine_Restarts").decay == "cosine-restarts"


def test_the_learning_rate_is_by_default_the_one_that_suits():
    assert demo.Settings("sgd").learning_rate == demo.OPTIMIZERS["SGD"].learning_rate
    assert demo.Settings("sgd", 0.25).learning_rate == 0.25


BAD_SETTINGS = [
    ({"optimizer": "Lion"}, r"optimizer: expected one of Adadelta, .*, SGD, got 'Lion'"),
    ({"optimizer": ""}, r"optimizer: expected one of .*, got ''"),
    ({"decay": "linear"}, r"decay: expected one of none, cosine, .*, got 'linear'"),
    ({"learning_rate": -0.1}, r"learning_rate: expected a number above 0, got -0.1"),
    ({"learning_rate": 0.0}, r"learning_rate: expected a number above 0, got 0.0"),
    ({"learning_rate": math.nan}, r"learning_rate: expected a number above 0, got nan"),
    ({"learning_rate": math.inf}, r"learning_rate: expected a number above 0, got inf"),
    ({"clip": 0.0}, r"clip: expected a number above 0, got 0.0"),
    ({"noise": -1.0}, r"noise: expected a number >= 0, got -1.0"),
    ({"noise": math.nan}, r"noise: expected a number >= 0, got nan"),
    ({"steps": 0}, r"steps: expected at least 1, got 0"),
    ({"batch_size": 0}, r"batch_size: expected at least 1, got 0"),
    ({"seed": -1}, r"seed: expected at least 0, got -1"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_a_bad_setting_is_refused(settings, message):
    with pytest.raises(demo.SettingError, match=f"^{message}$") as caught:
        demo.Settings(**settings)
    assert caught.value.setting in settings


def test_all_optimizers_are_there():
    step = tf.train.get_or_create_global_step()
    made = {type(method.make(0.1, step)) for method in demo.OPTIMIZERS.values()}
    classes = {value for _, value in inspect.getmembers(tf.train, inspect.isclass)}
    given = {each for each in classes if issubclass(each, tf.train.Optimizer)}
    assert made == given - {tf.train.Optimizer, tf.train.GradientAccumulationOptimizer}
    assert len(made) == len(demo.OPTIMIZERS) == 10


def test_all_decays_are_there():
    given = {name.removesuffix("_decay") for name in dir(tf.train) if name.endswith("_decay")}
    given -= {"piecewise_constant"}
    given |= {"none", "piecewise", "cosine_restarts", "sgdr"}  # whose functions end otherwise
    assert {name.replace("-", "_") for name in demo.DECAYS} == given
    assert len(demo.DECAYS) == 1 + 10


@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize("name", [name for name in demo.DECAYS if name != "none"])
def test_a_decay_starts_at_the_rate_and_ends_far_below(name, steps):
    step = tf.placeholder(tf.int64, [])
    tf.set_random_seed(0)
    rate = demo.DECAYS[name](steps)(tf.constant(8.0), step)
    with tf.Session() as session:
        rates = [session.run(rate, {step: s}) for s in range(steps + 1)]
    assert rates[0] == pytest.approx(8.0, rel=0.3 if name == "noisy-linear-cosine" else 0.002)
    assert np.isfinite(rates).all()
    if steps == 100 and name not in ("cosine-restarts", "sgdr"):
        assert -0.5 < rates[-1] < 1.0
        assert min(rates) > -0.5


def test_without_a_decay_there_is_no_function():
    assert demo.DECAYS["none"](100) is None


# -- the run's directory --------------------------------------------------------------------------


def test_runs_are_counted_up_for_each_optimizer(tmp_path):
    logdir = tmp_path / "deep" / "runs"
    names = [demo.new_run(logdir, name).name for name in ("Adam", "Adam", "SGD", "Adam")]
    assert names == ["demo-Adam-1", "demo-Adam-2", "demo-SGD-1", "demo-Adam-3"]


def test_a_run_never_takes_an_existing_directory(tmp_path):
    for name in ("demo-Adam-2", "demo-Adam-7", "demo-Adam-x", "demo-AdamW-9"):
        (tmp_path / name).mkdir()
    assert demo.new_run(tmp_path, "Adam").name == "demo-Adam-8"


def test_two_runs_made_at_once_get_two_directories(tmp_path, monkeypatch):
    mkdir = type(tmp_path).mkdir

    def slower(path, *arguments, **options):
        if path.name == "demo-Adam-1":
            mkdir(path)  # the other demo
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(type(tmp_path), "mkdir", slower)
    assert demo.new_run(tmp_path, "Adam").name == "demo-Adam-2"


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(demo.LogdirError, match=r"no run can be made in '.*file': File exists"):
        demo.new_run(tmp_path / "file", "Adam")


# -- training -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(digits, tmp_path_factory):
    """A short run with everything on, and what it reported."""
    reports = []
    settings = demo.Settings(clip=0.5, noise=0.001, decay="cosine", steps=25)
    result = demo.train(settings, digits, tmp_path_factory.mktemp("short"), reports.append)
    return result, reports


def test_the_run_holds_every_optimizer_summary(short):
    tags = events(short[0].directory).Tags()
    assert set(tags["scalars"]) == {
        "OptimizeLoss/loss",
        "OptimizeLoss/learning_rate",
        "OptimizeLoss/global_norm/gradient_norm",
        "OptimizeLoss/global_norm/clipped_gradient_norm",
        *(f"OptimizeLoss/gradient_norm/{name}" for name in VARIABLES),
        "test/loss",
        "test/accuracy",
    }
    assert set(tags["histograms"]) == {f"OptimizeLoss/gradients/{name}" for name in VARIABLES}
    assert tags["graph"]


def test_summaries_come_with_the_first_step_and_every_tenth_after_it(short):
    run = events(short[0].directory)
    assert [event.step for event in run.Scalars("OptimizeLoss/loss")] == [1, 11, 21]
    histograms = run.Histograms("OptimizeLoss/gradients/hidden/weights_0")
    assert [event.step for event in histograms] == [1, 11, 21]
    assert histograms[0].histogram_value.num == 64 * 64


def test_the_summaries_are_those_of_the_training(short):
    result, reports = short
    losses = dict(points(result.directory, "OptimizeLoss/loss"))
    assert losses == {step: np.float32(reports[step].loss) for step in (1, 11, 21)}
    rates = dict(points(result.directory, "OptimizeLoss/learning_rate"))
    for step, rate in rates.items():
        assert rate == pytest.approx(0.0025 * (1 + math.cos(math.pi * (step - 1) / 25)), rel=1e-5)
    clipped = points(result.directory, "OptimizeLoss/global_norm/clipped_gradient_norm")
    before = points(result.directory, "OptimizeLoss/global_norm/gradient_norm")
    assert [value for _, value in clipped] == pytest.approx([0.5] * 3, rel=1e-5)
    assert min(value for _, value in before) > 0.5


def test_held_out_images_are_tested_before_the_first_and_after_the_last_step(short):
    result, reports = short
    accuracies = points(result.directory, "test/accuracy")
    assert [step for step, _ in accuracies] == list(range(26))
    assert accuracies[-1][1] == np.float32(result.test_accuracy)
    assert reports[0].test_accuracy < 0.3
    assert reports[-1].test_accuracy == result.test_accuracy > 0.7


def test_held_out_images_are_tested_about_twenty_times(digits, tmp_path):
    result = demo.train(demo.Settings(steps=43), digits, tmp_path)
    steps = [step for step, _ in points(result.directory, "test/accuracy")]
    assert steps == [*range(0, 43, 2), 43]


def test_noise_changes_the_gradients(digits, tmp_path):
    norms = []
    for noise in (None, 1.0):
        result = demo.train(demo.Settings(noise=noise, steps=1), digits, tmp_path)
        ((_, norm),) = points(result.directory, "OptimizeLoss/global_norm/gradient_norm")
        norms.append(norm)
    # 4810 gradients, each with noise of a standard deviation of 0.88.
    assert norms[0] < 5
    assert norms[1] == pytest.approx(0.88 * 4810**0.5, rel=0.1)


def test_every_step_is_reported(short):
    assert [report.step for report in short[1]] == list(range(26))


@pytest.mark.parametrize("name", demo.OPTIMIZERS)
def test_every_optimizer_learns_from_the_first_steps(name, digits, tmp_path):
    reports = []
    demo.train(demo.Settings(name, steps=100), digits, tmp_path, reports.append)
    assert reports[-1].test_loss < 0.9 * reports[0].test_loss


def test_the_same_seed_gives_the_same_numbers(digits, tmp_path):
    runs = []
    for _ in range(2):
        reports = []
        settings = demo.Settings(noise=0.01, steps=12, seed=3)
        result = demo.train(settings, digits, tmp_path, reports.append)
        histograms = events(result.directory).Histograms("OptimizeLoss/gradients/output/biases_0")
        runs.append((reports, [event.histogram_value for event in histograms]))
    assert runs[0] == runs[1]


def test_another_seed_gives_other_numbers(digits, tmp_path):
    losses = [
        demo.train(demo.Settings(steps=2, seed=seed), digits, tmp_path).test_loss for seed in (0, 1)
    ]
    assert losses[0] != losses[1]


def test_a_batch_larger_than_the_data_leaves_no_directory(digits, tmp_path):
    message = "batch_size: expected at most 1438, the images to train on, got 1439"
    with pytest.raises(demo.SettingError, match=message):
        demo.train(demo.Settings(batch_size=1439), digits, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_may_be_all_the_data(digits, tmp_path):
    demo.train(demo.Settings(batch_size=1438, steps=1), digits, tmp_path)


def test_a_loss_that_is_nan_ends_the_training(digits, tmp_path):
    with pytest.raises(tf.errors.NanLossDuringTrainingError, match="the loss is NaN at step"):
        demo.train(demo.Settings("SGD", 1e30, steps=20), digits, tmp_path)


def test_an_interrupted_run_is_complete_up_to_there(digits, tmp_path):
    def interrupt(progress):
        if progress.step == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.train(demo.Settings(steps=100), digits, tmp_path, interrupt)
    run = events(tmp_path / "demo-Adam-1")
    assert [event.step for event in run.Scalars("OptimizeLoss/loss")] == [1, 11]
    assert [event.step for event in run.Scalars("test/loss")] == [0, 5, 10]


@pytest.mark.slow
def test_the_defaults_read_more_than_96_percent_of_the_held_out_digits(digits, tmp_path):
    result = demo.train(demo.Settings(), digits, tmp_path)
    assert result.test_accuracy > 0.96
    assert result.test_loss < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("name", demo.OPTIMIZERS)
def test_every_optimizer_learns_well_with_its_default_rate(name, digits, tmp_path):
    result = demo.train(demo.Settings(name), digits, tmp_path)
    assert result.test_accuracy > 0.96
