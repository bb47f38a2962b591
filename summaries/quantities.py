"""What the summaries of an optimizer's step are called, and what they mean."""

from summaries.metadata import SCALAR, TENSOR, metadata_bytes

EXTRA_SUMMARIES = [
    "update_ratio",
    "weights",
    "weight_norm",
    "clip_fraction",
    "sparsity",
    "nonfinite",
]
"""Quantities of each variable that TensorFlow 1 does not have; the tags are `<name>/<variable>`."""

_HISTOGRAMS = {"gradients", "weights"}
_TEXTS = {
    "loss": ("loss", "The loss before the step."),
    "learning_rate": ("learning rate", "The learning rate of the step."),
    "global_norm/gradient_norm": (
        "global gradient norm",
        "√Σ‖g‖² over the gradients of all variables, **before** clipping.",
    ),
    "global_norm/clipped_gradient_norm": (
        "clipped global gradient norm",
        "√Σ‖g‖² over the gradients of all variables, **after** clipping.",
    ),
    "gradients": (
        "gradient of {}",
        "The gradient given to the optimizer, after noise, multipliers and clipping.",
    ),
    "gradient_norm": (
        "gradient norm of {}",
        "‖g‖ of the gradient given to the optimizer, after noise, multipliers and clipping.",
    ),
    "update_ratio": (
        "update ratio of {}",
        "‖Δw‖ / ‖w‖: how far the step moves the variable, relative to its size; 0 while the "
        "variable is zero. Around 1e-3 is usual.",
    ),
    "weights": ("{}", "The variable before the step."),
    "weight_norm": ("norm of {}", "‖w‖ of the variable before the step."),
    "clip_fraction": (
        "clipped part of {}",
        "1 − ‖clipped g‖ / ‖g‖: the part of the gradient's norm that clipping took away.",
    ),
    "sparsity": ("sparsity of {}", "The part of the variable's elements that are exactly 0."),
    "nonfinite": (
        "non-finite in the gradient of {}",
        "How many elements of the gradient are NaN or infinite, before clipping.",
    ),
}


def quantity_metadata(quantity: str, variable: str = "") -> bytes:
    """The bytes of a SummaryMetadata that tells what a quantity of an optimizer's step is.

    Args:
        quantity: the tag without scope and variable: "loss", "gradient_norm",
            "global_norm/gradient_norm", ...
        variable: whose it is, where it is not the whole step's.
    """
    title, text = _TEXTS[quantity]
    histogram = quantity in _HISTOGRAMS
    return metadata_bytes(
        "histograms" if histogram else "scalars",
        TENSOR if histogram else SCALAR,
        title.format(variable),
        text,
    )
