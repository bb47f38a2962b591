"""`tf.compat`: the same API under the name that later TF 1 scripts import it by."""

from optkit.compat import v1

__all__ = ["v1"]
