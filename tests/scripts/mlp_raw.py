"""A multi-layer perceptron from plain variables, with clipping and a weight penalty."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(2)
data = rng.uniform(-1, 1, [256, 2]).astype(np.float32)
target = (data[:, :1] * data[:, 1:] > 0).astype(np.float32)


def dense(inputs, size, name, seed):
    with tf.variable_scope(name):
        shape = [inputs.get_shape()[1].value, size]
        start = np.random.RandomState(seed).normal(0, 0.5, shape).astype(np.float32)
        w = tf.get_variable("w", initializer=start)
        b = tf.get_variable("b", [size], initializer=tf.constant_initializer(0.0))
        return tf.nn.xw_plus_b(inputs, w, b)


x = tf.placeholder(tf.float32, [None, 2], name="x")
y = tf.placeholder(tf.float32, [None, 1], name="y")
hidden = tf.nn.tanh(dense(x, 16, "hidden1", 3))
hidden = tf.nn.relu(dense(hidden, 16, "hidden2", 4))
logits = dense(hidden, 1, "output", 5)
xent = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
penalty = tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "w" in v.name])
loss = xent + 1e-4 * penalty

optimizer = tf.train.AdamOptimizer(0.02)
gradients, variables = zip(*optimizer.compute_gradients(loss))
gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
train_op = optimizer.apply_gradients(zip(gradients, variables))

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(150):
        _, value = sess.run([train_op, loss], feed_dict={x: data, y: target})
        losses.append(value)
    weights = sess.run(tf.trainable_variables())
    print("loss", losses[-1])
assert losses[-1] < 0.25
