"""Linear regression by gradient descent, with summaries."""

import tempfile

import numpy as np

import optkit as tf

rng = np.random.RandomState(0)
train_x = rng.uniform(-1, 1, [100]).astype(np.float32)
train_y = 3 * train_x + 2 + rng.normal(0, 0.1, [100]).astype(np.float32)

X = tf.placeholder("float", [None], name="X")
Y = tf.placeholder("float", [None], name="Y")
W = tf.Variable(0.1, name="weight")
b = tf.Variable(-0.2, name="bias")
pred = tf.add(tf.multiply(X, W), b)
cost = tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * 100)
optimizer = tf.train.GradientDescentOptimizer(learning_rate=0.5).minimize(cost)
tf.summary.scalar("cost", cost)
merged = tf.summary.merge_all()

losses = []
with tf.Session() as sess:
    writer = tf.summary.FileWriter(tempfile.mkdtemp(), sess.graph)
    sess.run(tf.global_variables_initializer())
    for epoch in range(60):
        _, loss, summary = sess.run([optimizer, cost, merged], feed_dict={X: train_x, Y: train_y})
        writer.add_summary(summary, epoch)
        losses.append(loss)
    writer.close()
    weights = sess.run([W, b])
    print("W=%.3f b=%.3f" % tuple(weights))
