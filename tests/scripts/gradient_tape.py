"""Eager training with GradientTape, as in TF 1.15's guide."""

import numpy as np

import optkit as tf

tf.enable_eager_execution()
rng = np.random.RandomState(14)
inputs = rng.normal(0, 1, [200]).astype(np.float32)
outputs = 3 * inputs + 2 + rng.normal(0, 0.1, [200]).astype(np.float32)


class Model(object):
    def __init__(self):
        self.W = tf.Variable(5.0)
        self.b = tf.Variable(0.0)

    def __call__(self, x):
        return self.W * x + self.b


def compute_loss(predicted, desired):
    return tf.reduce_mean(tf.square(predicted - desired))


def train_step(model, x, y):
    with tf.GradientTape() as tape:
        current_loss = compute_loss(model(x), y)
    variables = [model.W, model.b]
    gradients = tape.gradient(current_loss, variables)
    optimizer.apply_gradients(zip(gradients, variables), global_step=global_step)
    return current_loss


model = Model()
optimizer = tf.train.AdamOptimizer(learning_rate=0.2)
global_step = tf.train.get_or_create_global_step()
losses = [float(train_step(model, inputs, outputs)) for epoch in range(60)]
weights = [model.W.numpy(), model.b.numpy()]
print("W=%.2f b=%.2f after %d steps" % (weights[0], weights[1], global_step.numpy()))
assert abs(weights[0] - 3) < 0.2
assert abs(weights[1] - 2) < 0.2
