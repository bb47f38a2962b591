"""Arrays into TensorBoard event files, and back: works with any training loop.

It needs NumPy, tensorboardX (for TensorBoard's messages) and crc32c, and none of them is slow to
import here: tensorboardX is loaded with the first summary.
"""

from summaries.charts import plot
from summaries.dashboards import dashboard
from summaries.encode import (
    encode_histogram,
    encode_image,
    encode_scalar,
    encode_tensor,
    encode_text,
)
from summaries.event_log import EventLog
from summaries.hparams import write_experiment
from summaries.optimizer import OPTIMIZER_SUMMARIES, OptimizerSummaries
from summaries.quantities import EXTRA_SUMMARIES
from summaries.runs import read
from summaries.writer import SummaryWriter

__all__ = [
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
