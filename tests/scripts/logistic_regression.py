"""Softmax regression with a decayed rate and an accuracy."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(1)
centers = rng.normal(0, 2, [3, 4])
labels = rng.randint(0, 3, [300])
data = (centers[labels] + rng.normal(0, 1, [300, 4])).astype(np.float32)

x = tf.placeholder(tf.float32, [None, 4])
y = tf.placeholder(tf.int64, [None])
W = tf.Variable(tf.zeros([4, 3]))
b = tf.Variable(tf.zeros([3]))
logits = tf.matmul(x, W) + b
loss = tf.reduce_mean(
    tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(y, 3), logits=logits)
)
correct = tf.equal(tf.argmax(logits, 1), y)
accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
global_step = tf.Variable(0, trainable=False, name="global_step")
rate = tf.train.exponential_decay(0.5, global_step, 20, 0.9, staircase=True)
train_op = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=global_step)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(50):
        batch = slice(6 * i, 6 * i + 50)
        _, value = sess.run([train_op, loss], {x: data[batch], y: labels[batch]})
        losses.append(value)
    final_accuracy = accuracy.eval({x: data, y: labels})
    weights = sess.run([W, b, global_step])
    print("accuracy", final_accuracy)
assert final_accuracy > 0.8
