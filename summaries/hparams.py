"""Hyper-parameters of a run, in the run itself, and what a sweep says of all its runs.

TensorBoard's page of hyper-parameters reads the columns of its table from every run's
`session_start_info`: it is all that a run needs. It keeps the first one that it sees of a run.
"""

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np

from summaries import _proto
from summaries._arrays import to_numpy
from summaries.event_log import EventLog
from summaries.tags import utf8

Scalar: TypeAlias = bool | int | float | str
Status: TypeAlias = Literal["success", "failure", "unknown"]
Domain: TypeAlias = type | tuple[float, float] | Sequence[object]
_Metric: TypeAlias = str | tuple[str, str]

_START, _END, _EXPERIMENT = (
    f"_hparams_/{name}" for name in ("session_start_info", "session_end_info", "experiment")
)


def check_hparam(name: str, value: object) -> Scalar:
    """The value as a bool, int, float or str; NumPy's kinds and 0-d arrays count as theirs.

    Raises:
        TypeError: it is something else; the message has the name.
        ValueError: it is not finite, or beyond float64, which TensorBoard's page cannot show.
    """
    utf8("the name of a hyper-parameter", name)
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        utf8(f"hyper-parameter {name!r}", value)
        return str(value)
    number: object = value
    if not isinstance(value, Real) or isinstance(value, np.timedelta64):
        array = to_numpy(value) if hasattr(value, "dtype") else np.asarray(None)
        if array.ndim or array.dtype.kind not in "biufU":
            raise TypeError(
                f"hyper-parameter {name!r} takes a bool, int, float or str, "
                f"not {type(value).__name__} {value!r:.60}"
            )
        number = array.item()
        if isinstance(number, str | bool):
            return number
    try:
        real = float(number)  # type: ignore[arg-type]
    except OverflowError:
        real = math.inf
    if not math.isfinite(real):
        raise ValueError(f"hyper-parameter {name!r} takes a finite number, not {value!r:.60}")
    return int(number) if isinstance(number, Integral) else real


def session_start(hparams: Mapping[str, Scalar], group: str | None) -> bytes:
    """The Summary of a run's checked hyper-parameters.

    Args:
        hparams: name -> value.
        group: the runs with one group, those of several seeds say, share a row of the table.
    """
    info = _proto.SessionStartInfo(group_name=group or "", start_time_secs=time.time())
    for name, value in hparams.items():
        _set_value(info.hparams[name], value)
    return _summary(_START, session_start_info=info)


def session_end(status: Status) -> bytes:
    """The Summary of a run's end."""
    number = {"unknown": 0, "success": 1, "failure": 2}[status]
    info = _proto.SessionEndInfo(status=number, end_time_secs=time.time())
    return _summary(_END, session_end_info=info)


def write_experiment(
    logdir: str | os.PathLike[str],
    hparams: Mapping[str, Domain],
    metrics: Iterable[_Metric],
    *,
    name: str = "",
    description: str = "",
) -> None:
    """Write what TensorBoard's page of hyper-parameters shows of a sweep, for all of its runs.

    It is not needed: without it the page shows every hyper-parameter and every scalar of the runs.
    With it, these and no others, also those that only later runs have. TensorBoard takes one such
    record of all that it finds, so write one, into the directory above the runs.

    Args:
        logdir: the directory of the sweep.
        hparams: name -> its kind (bool, int, float or str), its range `(low, high)` as a tuple, or
            a list of the values it takes.
        metrics: the tags of scalars; `(tag, group)` is one in the directory `group` of each run,
            such as "eval".
        name: the title of the experiment.
        description: in Markdown.

    Raises:
        OSError: the directory cannot be written.
        TypeError: a domain or metric is of another kind.
        ValueError: a domain is empty, mixes strings with numbers or has a number that is not
            finite.
    """
    data = experiment(hparams, metrics, name=name, description=description)
    with EventLog(logdir) as log:
        log.add_encoded(data)


def experiment(
    hparams: Mapping[str, Domain],
    metrics: Iterable[_Metric],
    *,
    name: str = "",
    description: str = "",
) -> bytes:
    """The Summary of a sweep; arguments and errors as those of `write_experiment`."""
    record = _proto.Experiment(
        name=name,
        description=description,
        time_created_secs=time.time(),
        hparam_infos=[_hparam_info(each, domain) for each, domain in hparams.items()],
        metric_infos=[_metric_info(metric) for metric in metrics],
    )
    return _summary(_EXPERIMENT, experiment=record)


def _hparam_info(name: str, domain: Domain) -> Any:
    info = _proto.HParamInfo(name=name)
    if isinstance(domain, type):
        info.type = _kind(name, domain)
    elif isinstance(domain, tuple):
        if len(domain) != 2:
            raise ValueError(f"hyper-parameter {name!r}: a range is (low, high), not {domain!r}")
        low, high = (check_hparam(name, end) for end in domain)
        if isinstance(low, str) or isinstance(high, str) or not low <= high:
            raise ValueError(f"hyper-parameter {name!r}: a range is (low, high), not {domain!r}")
        info.type = _kind(name, float)
        info.domain_interval.min_value = low
        info.domain_interval.max_value = high
    else:
        if isinstance(domain, str) or not isinstance(domain, Iterable):
            raise TypeError(
                f"hyper-parameter {name!r} takes a type, a range (low, high) or a list of values, "
                f"not {domain!r:.60}"
            )
        values = [check_hparam(name, value) for value in domain]
        kinds = {_kind(name, type(value)) for value in values}
        if len(kinds) != 1:
            problem = "several kinds of values" if kinds else "no values"
            raise ValueError(f"hyper-parameter {name!r} has {problem}: {domain!r:.60}")
        info.type = kinds.pop()
        for value in values:
            _set_value(info.domain_discrete.values.add(), value)
    return info


def _kind(name: str, kind: type) -> int:
    """The number of TensorBoard's DataType."""
    if issubclass(kind, bool | np.bool):
        return 2
    if issubclass(kind, str):
        return 1
    if issubclass(kind, Real):
        return 3
    raise TypeError(f"hyper-parameter {name!r} is a bool, int, float or str, not {kind.__name__}")


def _metric_info(metric: object) -> Any:
    pair = (metric, "") if isinstance(metric, str) else metric
    if not isinstance(pair, tuple) or [*map(type, pair)] != [str, str]:
        raise TypeError(f"a metric is a tag or a pair of tag and group, not {metric!r:.60}")
    name = _proto.MetricName(tag=pair[0], group=pair[1])
    return _proto.MetricInfo(name=name)


def _set_value(message: Any, value: Scalar) -> None:
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, str):
        message.string_value = value
    else:
        message.number_value = value


def _summary(tag: str, **content: Any) -> bytes:
    data = _proto.HParamsPluginData(version=0, **content)
    # No data class, unlike elsewhere: TensorBoard knows this older form, and needs no value then.
    plugin = _proto.SummaryMetadata.PluginData(
        plugin_name="hparams", content=data.SerializeToString()
    )
    metadata = _proto.SummaryMetadata(plugin_data=plugin)
    value = _proto.Summary.Value(tag=tag, metadata=metadata)
    serialized: bytes = _proto.Summary(value=[value]).SerializeToString()
    return serialized
