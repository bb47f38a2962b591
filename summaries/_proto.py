"""TensorBoard's protocol buffers: the one module that names tensorboardX, which ships them.

They are loaded at first use, because `import tensorboardX` imports torch where torch is installed.
Other modules write `_proto.Event(...)`; each name below is resolved once and then kept here.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Event": "event_pb2",
    "SessionLog": "event_pb2",
    "TaggedRunMetadata": "event_pb2",
    "GraphDef": "graph_pb2",
    "NodeDef": "node_def_pb2",
    "HistogramProto": "summary_pb2",
    "Summary": "summary_pb2",
    "SummaryMetadata": "summary_pb2",
    "TensorProto": "tensor_pb2",
    "TensorShapeProto": "tensor_shape_pb2",
    "DataType": "types_pb2",
    "Experiment": "api_pb2",
    "HParamInfo": "api_pb2",
    "MetricInfo": "api_pb2",
    "MetricName": "api_pb2",
    "HParamsPluginData": "plugin_hparams_pb2",
    "SessionEndInfo": "plugin_hparams_pb2",
    "SessionStartInfo": "plugin_hparams_pb2",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = getattr(import_module(f"tensorboardX.proto.{_HOMES[name]}"), name)
    globals()[name] = message
    return message


def data_error() -> type[Exception]:
    """The exception that protobuf raises for bytes that are no message."""
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def tensorboardx_writer() -> type[Any]:
    """The writer of tensorboardX itself, which knows kinds of summaries that are rare here."""
    writer: type[Any] = import_module("tensorboardX").SummaryWriter
    return writer
