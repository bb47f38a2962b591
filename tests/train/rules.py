"""The ten optimizers as a table, and a way to run steps with them, for the tests beside it."""

import numpy as np

import optkit as tf

# Each takes a rate and a step, which only AdagradDA reads.
OPTIMIZERS = {
    "GradientDescent": lambda rate, step: tf.train.GradientDescentOptimizer(rate),
    "Momentum": lambda rate, step: tf.train.MomentumOptimizer(rate, 0.9),
    "Nesterov": lambda rate, step: tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True),
    "Adagrad": lambda rate, step: tf.train.AdagradOptimizer(rate),
    "AdagradDA": lambda rate, step: tf.train.AdagradDAOptimizer(rate, step),
    "Adam": lambda rate, step: tf.train.AdamOptimizer(rate),
    "Adadelta": lambda rate, step: tf.train.AdadeltaOptimizer(rate),
    "RMSProp": lambda rate, step: tf.train.RMSPropOptimizer(rate, momentum=0.5),
    "CenteredRMSProp": lambda rate, step: tf.train.RMSPropOptimizer(rate, centered=True),
    "Ftrl": lambda rate, step: tf.train.FtrlOptimizer(rate),
    "ProximalAdagrad": lambda rate, step: tf.train.ProximalAdagradOptimizer(rate),
    "ProximalGradientDescent": lambda rate, step: tf.train.ProximalGradientDescentOptimizer(rate),
}

# What a step does to rows that a sparse gradient leaves out, or whose gradient is zero.
DECAYS_ALL_ROWS = {"Adam"}
FORGETS_THE_VARIABLE = {"AdagradDA", "Ftrl"}


def new_step(start=0):
    """A global step."""
    return tf.Variable(np.int64(start), trainable=False, name="global_step")


def rows(values, indices, dtype="float32"):
    """IndexedSlices of constants."""
    return tf.IndexedSlices(tf.constant(np.asarray(values, dtype)), tf.constant(indices))


def state(session, optimizer, *variables):
    """The variables and all slots, as a dict from name to array."""
    held = [*variables, *optimizer.variables()]
    return {variable.op.name: session.value(variable) for variable in held}


def started():
    """A session of the default graph with everything initialised."""
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def run_steps(make, initial, grads, rate=0.1):
    """The variable and slots after each gradient of `grads` has been applied once, in a new graph.

    A gradient is an array, or (values, indices) for rows.
    """
    initial = np.asarray(initial)
    with tf.Graph().as_default():
        step = new_step()
        w = tf.Variable(initial, name="w")
        optimizer = make(rate, step)
        train_ops = [
            optimizer.apply_gradients(
                [(rows(*grad, initial.dtype) if isinstance(grad, tuple) else grad, w)], step
            )
            for grad in grads
        ]
        session = started()
        for train_op in train_ops:
            session.run(train_op)
        return state(session, optimizer, w)


def picture(graph, optimizer=None):
    """All that an error must leave as it was."""
    return (
        [op.name for op in graph.get_operations()],
        {key: list(graph.get_collection(key)) for key in graph.get_all_collection_keys()},
        graph.unique_name("w", mark_as_used=False),
        graph.unique_name("GradientDescent", mark_as_used=False),
        graph.unique_name("Adam", mark_as_used=False),
        list(graph.missing_gradients),
        optimizer and (optimizer.get_slot_names(), optimizer.variables()),
    )
