"""The command line: `optkit demo` and `optkit debug`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer

import optkit

if TYPE_CHECKING:
    from optkit.demo import Progress, Result, Settings
    from optkit.train.reproduction import Reproduction

__all__ = ["app", "main"]

app = typer.Typer(
    help="optkit: TensorFlow 1's training API on NumPy and CuPy.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

BAD_OPTION = 2
FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; a mistake is told in one line.

    Args:
        arguments: the words after the program's name; those it was started with if None.
    """
    try:
        status = app(
            sys.argv[1:] if arguments is None else list(arguments),
            prog_name="optkit",
            standalone_mode=False,
        )
    except _USAGE_ERROR as error:
        line = _one_line(error)
        if line:
            typer.echo(f"optkit: {line}", err=True)
        return BAD_OPTION
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


# Typer's own base class of these has moved between its versions; this one stays in place.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def _one_line(error: Any) -> str:
    """What a usage error says; nothing where there was no command and the help was shown."""
    command = error.ctx.command_path if error.ctx is not None else "optkit"
    text = " ".join(error.format_message().split())
    return f"{text} (see `{command} --help`)" if text else ""


def _plain(text: str) -> str:
    """Text from a file, without what a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _fail(message: object, status: int = BAD_OPTION, command: str = "demo") -> NoReturn:
    typer.echo(f"optkit {command}: " + _plain(" ".join(str(message).split())), err=True)
    raise typer.Exit(status)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"optkit {optkit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """optkit: TensorFlow 1's training API on NumPy and CuPy."""


@app.command()
def demo(
    optimizer: Annotated[str, typer.Option(help="One of the ten, in any case.")] = "Adam",
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: one that suits the optimizer.")
    ] = None,
    decay: Annotated[
        str, typer.Option(help="none, cosine, exponential, polynomial, ... over all steps.")
    ] = "none",
    clip: Annotated[float | None, typer.Option(help="Largest global norm of gradients.")] = None,
    noise: Annotated[float | None, typer.Option(help="Scale of noise on the gradients.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 64,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    logdir: Annotated[Path, typer.Option(help="Where the run's directory goes.")] = Path("runs"),
    backend: Annotated[
        str, typer.Option(envvar="OPTKIT_BACKEND", help="auto, numpy or cupy.")
    ] = "auto",
) -> None:
    """Train a small network on handwritten digits and write what TensorBoard shows."""
    from optkit import demo as script

    try:
        settings = script.Settings(
            optimizer, learning_rate, decay, clip, noise, steps, batch_size, seed
        )
        using = optkit.use_backend(backend)
    except script.SettingError as error:
        _fail(f"--{error.setting.replace('_', '-')}: {error.reason}")
    except (ValueError, RuntimeError) as error:
        _fail(f"--backend: {str(error).removeprefix('backend: ')}")
    try:
        with using:
            _train(settings, logdir.expanduser())
    except script.SettingError as error:
        _fail(f"--{error.setting.replace('_', '-')}: {error.reason}")
    except script.LogdirError as error:
        _fail(f"--logdir: {error}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        _fail(
            "the digits come with scikit-learn, which is not installed: pip install 'optkit[demo]'"
        )
    except BrokenPipeError:  # who read the lines, say `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except (OSError, optkit.errors.NanLossDuringTrainingError) as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        _fail("interrupted; what it wrote is complete up to here", INTERRUPTED)


@app.command()
def debug(
    file: Annotated[
        Path, typer.Argument(help="nonfinite-<step>.safetensors, as fit leaves it behind.")
    ],
    tensor: Annotated[
        list[str] | None, typer.Option(help="Print this tensor's values too; may be repeated.")
    ] = None,
) -> None:
    """Run a step again whose loss or gradient was not finite, and show where that came from.

    The exit status is 0 when the step gives what it gave, 1 when it gives something else.
    """
    from optkit.train import reproduction

    try:
        found = reproduction.load_reproduction(file.expanduser())
    except FileNotFoundError:
        _fail(f"there is no file {str(file)!r}", command="debug")
    except (OSError, ValueError) as error:
        _fail(error, FAILED, command="debug")
    unknown = [name for name in tensor or () if name not in found.trace.values]
    if unknown:
        _fail(f"--tensor: the step has no {', '.join(unknown)}", command="debug")
    status = _show_reproduction(found, tensor or ())
    if status:
        raise typer.Exit(status)


_PATH_SHOWN = 12


def _show_reproduction(found: Reproduction, tensors: Sequence[str]) -> int:
    """Print what a file says and what the new run gives; the exit status."""
    import numpy as np

    from optkit.runtime.diagnosis import describe_values

    def echo(text: str, err: bool = False) -> None:
        typer.echo(_plain(text), err=err)

    echo(str(found.report()))
    echo(f"  it was {found.batch}")
    path = found.path()
    if path:
        echo("how it went on from there:")
        for node in path[:_PATH_SHOWN]:
            for name in node.outputs:
                echo(f"  {node.type}: {describe_values(name, found.trace.values.get(name))}")
        if len(path) > _PATH_SHOWN:
            echo(f"  and {len(path) - _PATH_SHOWN} more")
    for name in tensors:
        echo(f"{name}:")
        echo(np.array2string(found.trace.values[name], threshold=1000))
    for name, why in found.failures.items():
        echo(f"{name} could not be run again: {why}", err=True)
    if found.differing:
        echo(
            f"other values than when the file was written: {', '.join(found.differing)}; it was "
            f"written by optkit {found.written_by}",
            err=True,
        )
        return FAILED
    echo("the step gave the same values again, bit for bit")
    return 0


def _train(settings: Settings, logdir: Path) -> None:
    """Train, showing a bar and a table on a terminal and plain lines elsewhere."""
    from optkit import demo as script

    digits = script.load(settings.seed)
    if settings.optimizer in script.SCALED_BY_RATE and settings.decay != "none":
        typer.echo(
            f"note: the weights of {settings.optimizer} are proportional to the rate; a rate that "
            "decays makes them small",
            err=True,
        )
    if sys.stdout.isatty():
        with _Bar(settings) as bar:
            result = script.train(settings, digits, logdir, bar)
        _show_table(settings, result)
    else:
        result = script.train(settings, digits, logdir, _Lines(settings))
        typer.echo(
            f"{settings.optimizer}: test loss {result.test_loss:.4f}, "
            f"test accuracy {result.test_accuracy:.2%}, "
            f"{result.steps_per_second:.0f} steps/s, run in {result.directory}"
        )
    typer.echo(f"To look at it: tensorboard --logdir {shlex.quote(str(logdir))}")


class _Lines:
    """One line now and then."""

    def __init__(self, settings: Settings) -> None:
        self._steps = settings.steps
        self._every = max(1, settings.steps // 10)

    def __call__(self, progress: Progress) -> None:
        if progress.step % self._every == 0 or progress.step == self._steps:
            typer.echo(
                f"step {progress.step}/{self._steps}: loss {progress.loss:.4f}, "
                f"test accuracy {progress.test_accuracy:.2%}"
            )


class _Bar:
    """A progress bar with the newest numbers."""

    def __init__(self, settings: Settings) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=settings.steps, desc=settings.optimizer, unit="step", file=sys.stdout
        )

    def __call__(self, progress: Progress) -> None:
        self._bar.set_postfix_str(
            f"loss {progress.loss:.4f}, test accuracy {progress.test_accuracy:.2%}", refresh=False
        )
        self._bar.update(progress.step - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def _show_table(settings: Settings, result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    row = {
        "optimizer": settings.optimizer,
        "test loss": f"{result.test_loss:.4f}",
        "test accuracy": f"{result.test_accuracy:.2%}",
        "steps/s": f"{result.steps_per_second:.0f}",
        "run directory": str(result.directory),
    }
    for name in row:
        table.add_column(name, overflow="fold")
    table.add_row(*row.values())
    Console().print(table)
