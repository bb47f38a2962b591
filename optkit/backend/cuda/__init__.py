"""optkit's own kernels for CUDA devices, and what else only a device has.

CuPy does the bulk of the work. What is here is what a training step would wait for otherwise: one
launch that updates all variables, sums in a fixed order, checks of indices that the host need not
see, one copy of all that a step brings home, and histograms of which only the counts travel.

Importing this package imports no CuPy. All kernels are compiled with `--fmad=false`, so what is
made of + - * / and square roots gives NumPy's bits; CuPy always adds `-ftz=true`, which takes
float32 numbers below 1.2e-38 for zero.
"""

from optkit.backend.cuda.sources import TracedEquation, kernel_sources, register_equations

__all__ = ["TracedEquation", "kernel_sources", "register_equations"]
