"""Batch statistics and weights with moving averages: UPDATE_OPS and an ExponentialMovingAverage."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(13)
data = (3 + 2 * rng.normal(0, 1, [200, 4])).astype(np.float32)
target = data.dot(np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32))

x = tf.placeholder(tf.float32, [None, 4])
y = tf.placeholder(tf.float32, [None, 1])
mean, variance = tf.nn.moments(x, [0])
moving_mean = tf.Variable(tf.zeros([4]), trainable=False, name="moving_mean")
update = tf.assign_sub(moving_mean, 0.1 * (moving_mean - mean))
tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
normalized = (x - mean) / tf.sqrt(variance + 1e-3)
w = tf.Variable(tf.zeros([4, 1]), name="w")
b = tf.Variable(tf.zeros([1]), name="b")
loss = tf.reduce_mean(tf.square(tf.matmul(normalized, w) + b - y))
step = tf.train.get_or_create_global_step()
ema = tf.train.ExponentialMovingAverage(0.9, num_updates=step)
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    apply = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
with tf.control_dependencies([apply]):
    train_op = ema.apply([w, b])

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(60):
        batch = rng.randint(0, 200, 50)
        losses.append(sess.run([loss, train_op], {x: data[batch], y: target[batch]})[0])
    weights = sess.run([w, b, ema.average(w), moving_mean, step])
print("moving mean", weights[3])
assert np.allclose(weights[3], 3, atol=0.5)
assert ema.average_name(w) == "w/ExponentialMovingAverage"
