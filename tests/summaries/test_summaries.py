import pkgutil

import summaries


def test_the_public_names_are_these():
    assert summaries.__all__ == [
        "EXTRA_SUMMARIES",
        "OPTIMIZER_SUMMARIES",
        "EventLog",
        "OptimizerSummaries",
        "SummaryWriter",
        "dashboard",
        "encode_histogram",
        "encode_image",
        "encode_scalar",
        "encode_tensor",
        "encode_text",
        "plot",
        "read",
        "write_experiment",
    ]


def test_public_names_and_their_parameters_are_documented():
    for name in summaries.__all__:
        if not name.isupper():
            assert getattr(summaries, name).__doc__


def test_no_module_loads_tensorboardx_or_optkit_when_imported(run_python):
    names = [f"summaries.{module.name}" for module in pkgutil.iter_modules(summaries.__path__)]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n    importlib.import_module(name)\n"
        "print(*sys.modules)\n"
    )
    status, output, errors = run_python(code, *names)
    assert (status, errors) == (0, "")
    loaded = set(output.split())
    assert "summaries" in loaded
    others = {"PIL", "google.protobuf", "optkit", "tensorboard", "tensorboardX", "torch"}
    assert loaded & others == set()


def test_numbers_are_written_without_tensorboardx(tmp_path, run_python):
    """A process that forks while a thread imports a module leaves its lock held in the child."""
    code = (
        "import sys\n"
        "import summaries\n"
        "with summaries.SummaryWriter(sys.argv[1], resume_step=0) as writer:\n"
        "    writer.add_scalar('a', 1, 0, None, 'A', 'described')\n"
        "    writer.add_histogram('h', [1.0, 2.0], 0)\n"
        "    steps = summaries.OptimizerSummaries(writer)\n"
        "    steps.step(1, loss=0.5, gradients={'w': [1.0, 2.0]})\n"
        "print(sum(name in sys.modules for name in ('tensorboardX', 'google.protobuf')))\n"
    )
    assert run_python(code, tmp_path) == (0, "0\n", "")


def test_writing_does_not_need_tensorboard(tmp_path, run_python):
    code = (
        "import sys\n"
        "sys.modules['tensorboard'] = sys.modules['PIL'] = None\n"
        "import summaries\n"
        "with summaries.SummaryWriter(sys.argv[1]) as writer:\n"
        "    writer.add_image('i', [[[0.5]]], 0)\n"
        "    writer.add_text('t', 'x', 0)\n"
        "print(len(list(summaries.read(sys.argv[1]))))\n"
    )
    assert run_python(code, tmp_path) == (0, "2\n", "")
