"""Which process of a distributed job writes."""

import os

# torchrun, Open MPI, MPICH and Intel MPI. Not Slurm's: `srun` also starts independent runs.
_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def is_chief() -> bool:
    """Whether this process has rank 0, or no rank at all, by the first variable that is set."""
    ranks = [os.environ[name] for name in _VARIABLES if os.environ.get(name)]
    return not ranks or not ranks[0].isdecimal() or int(ranks[0]) == 0
