"""TF1's session options: accepted and recorded, so that scripts need no change.

optkit runs on one device, in one process; nothing here changes what is computed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["ConfigProto", "GPUOptions", "RunMetadata", "RunOptions"]


class _Options(SimpleNamespace):
    """Named options with defaults; unknown names are refused, as a typo would otherwise hide."""

    _fields: dict[str, Any] = {}  # noqa: RUF012 - each class replaces it, nothing changes it

    def __init__(self, **options: Any) -> None:
        unknown = options.keys() - self._fields.keys()
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: unknown options {sorted(unknown)}; it has "
                f"{sorted(self._fields)}"
            )
        super().__init__(**self._fields)
        for name, value in options.items():
            setattr(self, name, value)


class GPUOptions(_Options):
    """GPU memory options (`tf.GPUOptions`); recorded."""

    _fields = {  # noqa: RUF012
        "allow_growth": False,
        "per_process_gpu_memory_fraction": 0.0,
        "visible_device_list": "",
        "allocator_type": "",
        "deferred_deletion_bytes": 0,
        "polling_active_delay_usecs": 0,
        "polling_inactive_delay_msecs": 0,
        "force_gpu_compatible": False,
    }


class ConfigProto(_Options):
    """Session options (`tf.ConfigProto`); recorded in `Session.config`."""

    _fields = {  # noqa: RUF012
        "allow_soft_placement": False,
        "log_device_placement": False,
        "device_count": None,
        "intra_op_parallelism_threads": 0,
        "inter_op_parallelism_threads": 0,
        "use_per_session_threads": False,
        "isolate_session_state": False,
        "operation_timeout_in_ms": 0,
        "gpu_options": None,
        "graph_options": None,
        "device_filters": None,
        "session_inter_op_thread_pool": None,
        "placement_period": 0,
        "cluster_def": None,
        "share_cluster_devices_in_session": False,
        "rpc_options": None,
        "experimental": None,
    }

    gpu_options: Any
    graph_options: Any
    device_count: Any
    experimental: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Scripts write config.gpu_options.allow_growth = True without making the object first.
        self.gpu_options = self.gpu_options or GPUOptions()
        self.graph_options = self.graph_options or SimpleNamespace(
            optimizer_options=SimpleNamespace(global_jit_level=0, opt_level=0),
            rewrite_options=SimpleNamespace(),
        )
        self.device_count = dict(self.device_count or {})
        self.experimental = self.experimental or SimpleNamespace()


class RunOptions(_Options):
    """Options of one run (`tf.RunOptions`); recorded."""

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = range(4)

    _fields = {  # noqa: RUF012
        "trace_level": 0,
        "timeout_in_ms": 0,
        "inter_op_thread_pool": 0,
        "output_partition_graphs": False,
        "report_tensor_allocations_upon_oom": False,
        "debug_options": None,
        "experimental": None,
    }


class RunMetadata(_Options):
    """What a run reports about itself (`tf.RunMetadata`); stays empty."""

    _fields = {  # noqa: RUF012
        "step_stats": None,
        "cost_graph": None,
        "partition_graphs": (),
    }
