"""The switches between TF 1 and TF 2 behaviour: optkit behaves as TF 1, so they change nothing."""

__all__ = [
    "disable_resource_variables",
    "disable_v2_behavior",
    "disable_v2_tensorshape",
    "enable_resource_variables",
]


def disable_v2_behavior() -> None:
    """Do nothing: optkit has TF 1's behaviour."""


def disable_v2_tensorshape() -> None:
    """Do nothing: shapes hold `Dimension` objects, as in TF 1."""


def enable_resource_variables() -> None:
    """Do nothing: variables have the deterministic semantics of resource variables."""


def disable_resource_variables() -> None:
    """Do nothing: see `enable_resource_variables`."""
