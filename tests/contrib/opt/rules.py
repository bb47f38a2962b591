"""The optimizers of contrib.opt as a table, and their recurrences written without optkit."""

import numpy as np

import optkit as tf

O = tf.contrib.opt  # noqa: E741 - short, as T for train
MAKERS = {
    "AdaMax": lambda: O.AdaMaxOptimizer(0.05, 0.8, 0.95, 1e-3),
    "Nadam": lambda: O.NadamOptimizer(0.05, 0.8, 0.95, 1e-3),
    "AMSGrad": lambda: O.AMSGradOptimizer(0.05, 0.8, 0.95, 1e-3),
    "LazyAdam": lambda: O.LazyAdamOptimizer(0.05, 0.8, 0.95, 1e-3),
    "AddSign": lambda: O.AddSignOptimizer(0.1, 1.5, 0.7, O.get_linear_decay_fn(10)),
    "PowerSign": lambda: O.PowerSignOptimizer(0.1, 2.0, 0.7, O.get_linear_decay_fn(10)),
    "AdamW": lambda: O.AdamWOptimizer(0.03, 0.05, 0.8, 0.95, 1e-3),
    "MomentumW": lambda: O.MomentumWOptimizer(0.03, 0.1, 0.9),
    "NesterovW": lambda: O.MomentumWOptimizer(0.03, 0.1, 0.9, use_nesterov=True),
    "AdagradW": lambda: O.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)(0.03, 0.1),
    "Lion": lambda: O.LionOptimizer(0.05, 0.6, 0.9, 0.1),
}

# Where a sparse gradient changes more than the rows it names.
MOVES_ALL = {"AMSGrad", "AdamW"}
DECAYS_SLOTS_OF_ALL = {"Nadam", "AddSign", "PowerSign"}


class Recurrence:
    """One variable's path by an optimizer's paper, in float64."""

    def __init__(self, name, w):
        self.name = name
        self.w = np.array(w, float)
        self.t = 0
        self.m, self.v, self.top = (np.zeros_like(self.w) for _ in range(3))
        if name == "AdagradW":
            self.v += 0.1

    def dense(self, g):
        """A step with a gradient of all elements."""
        self._step(np.asarray(g, float), np.ones(len(self.w), bool))

    def rows(self, values, indices):
        """A step with rows, which may repeat."""
        g, named = np.zeros_like(self.w), np.zeros(len(self.w), bool)
        for value, index in zip(values, indices, strict=True):
            g[index] += value
            named[index] = True
        self._step(g, named)

    def _step(self, g, named):
        self.t += 1
        before = self.w, self.m, self.v, self.top
        decay = 0.03 if self.name.endswith("W") else 0.0
        after = self._moved(self.w - decay * _column(named, self.w) * self.w, g)
        if self.name in MOVES_ALL:
            keep = [named | True] * 4
        elif self.name in DECAYS_SLOTS_OF_ALL:
            keep = [named, *[named | True] * 3]
        else:
            keep = [named] * 4
        self.w, self.m, self.v, self.top = (
            np.where(_column(rows, new), new, old)
            for rows, new, old in zip(keep, after, before, strict=True)
        )

    def _moved(self, w, g):
        m, v, top, t = self.m, self.v, self.top, self.t
        b1, b2, lr, eps = 0.8, 0.95, 0.05, 1e-3
        match self.name:
            case "AdaMax":
                m = b1 * m + (1 - b1) * g
                v = np.fmax(b2 * v, abs(g))
                w = w - lr * (m / (1 - b1**t)) / (v + eps)
            case "Nadam" | "AMSGrad" | "LazyAdam" | "AdamW":
                m = b1 * m + (1 - b1) * g
                v = b2 * v + (1 - b2) * g**2
                top = np.fmax(top, v)
                numerator = b1 * m + (1 - b1) * g if self.name == "Nadam" else m
                variance = top if self.name == "AMSGrad" else v
                root = np.sqrt(1 - b2**t)
                # The papers' ε is epsilon hat divided by the root.
                w = w - lr * (numerator / (1 - b1**t)) / (np.sqrt(variance) / root + eps / root)
            case "AddSign":
                m = 0.7 * m + 0.3 * g
                f = (10 - (t - 1)) / 10
                w = w - 0.1 * (1.5 + f * np.sign(g * m)) * g
            case "PowerSign":
                m = 0.7 * m + 0.3 * g
                f = (10 - (t - 1)) / 10
                w = w - 0.1 * 2.0 ** (f * np.sign(g * m)) * g
            case "MomentumW":
                m = 0.9 * m + g
                w = w - 0.1 * m
            case "NesterovW":
                m = 0.9 * m + g
                w = w - 0.1 * (g + 0.9 * m)
            case "AdagradW":
                v = v + g**2
                w = w - 0.1 * g / np.sqrt(v)
            case "Lion":
                w = w - 0.05 * (np.sign(0.6 * m + 0.4 * g) + 0.1 * w)
                m = 0.9 * m + 0.1 * g
        return w, m, v, top


def _column(rows, like):
    return rows.reshape(-1, *[1] * (like.ndim - 1))
