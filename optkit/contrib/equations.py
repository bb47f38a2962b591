"""The equations of all optimizers, so that their device kernels can be listed without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from optkit import train
from optkit.backend.cuda import TracedEquation, register_equations
from optkit.contrib import opt
from optkit.graph import Graph
from optkit.initializers import zeros_initializer
from optkit.ops.core import constant
from optkit.runtime.updates import scaled
from optkit.variable_scope import get_variable

__all__ = ["equations"]

_MAKERS: Mapping[str, Callable[[], Any]] = {
    "adadelta": lambda: train.AdadeltaOptimizer(),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adagrad_da": lambda: train.AdagradDAOptimizer(0.1, train.get_or_create_global_step()),
    "adam": lambda: train.AdamOptimizer(),
    "ftrl": lambda: train.FtrlOptimizer(0.1),
    "gradient_descent": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "momentum_nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.1),
    "proximal_gradient_descent": lambda: train.ProximalGradientDescentOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1),
    "rmsprop_centered": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "opt_adamax": lambda: opt.AdaMaxOptimizer(),
    "opt_adamw": lambda: opt.AdamWOptimizer(0.01),
    "opt_addsign": lambda: opt.AddSignOptimizer(),
    "opt_amsgrad": lambda: opt.AMSGradOptimizer(),
    "opt_lazy_adam": lambda: opt.LazyAdamOptimizer(),
    "opt_lion": lambda: opt.LionOptimizer(),
    "opt_momentumw": lambda: opt.MomentumWOptimizer(0.01, 0.1, 0.9),
    "opt_nadam": lambda: opt.NadamOptimizer(),
    "opt_powersign": lambda: opt.PowerSignOptimizer(),
}


def equations() -> Iterator[TracedEquation]:
    """Each optimizer's equation, as it is and with the factor of clipping in it."""
    for name, make in _MAKERS.items():
        with Graph().as_default() as graph:
            w = get_variable("w", [2], initializer=zeros_initializer())
            make().apply_gradients([(constant([1.0, 2.0]), w)])
        for op in graph.get_operations():
            if op.kind.name == "Update":
                attrs = op.attrs
                slots, hyper = attrs["count"] - 1, attrs["hyper"]
                yield TracedEquation(name, attrs["equation"], slots, hyper)
                yield TracedEquation(f"{name}_scaled", *scaled(attrs["equation"], slots, hyper))


register_equations(equations)
