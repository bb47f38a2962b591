"""A recurrent classifier: an LSTM over time, its last output to a softmax."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(11)
timesteps, num_input, num_hidden = 8, 3, 12
data = rng.normal(0, 1, [128, timesteps, num_input]).astype(np.float32)
labels = (data[:, :, 0].sum(1) > 0).astype(np.int64)

X = tf.placeholder("float", [None, timesteps, num_input])
Y = tf.placeholder(tf.int64, [None])
w_start = rng.normal(0, 0.3, [num_hidden, 2]).astype(np.float32)
out_weights = tf.Variable(w_start)
out_biases = tf.Variable(tf.zeros([2]))


def RNN(x):
    steps = tf.unstack(x, timesteps, 1)
    cell = tf.nn.rnn_cell.BasicLSTMCell(num_hidden, forget_bias=1.0)
    outputs, states = tf.nn.static_rnn(cell, steps, dtype=tf.float32)
    return tf.matmul(outputs[-1], out_weights) + out_biases


kernel_start = rng.normal(0, 0.2, [num_input + num_hidden, 4 * num_hidden]).astype(np.float32)
with tf.variable_scope("net", initializer=tf.constant_initializer(kernel_start)):
    logits = RNN(X)
loss_op = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=Y))
train_op = tf.train.AdamOptimizer(0.02).minimize(loss_op)
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), Y), tf.float32))

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(50):
        sess.run(train_op, feed_dict={X: data, Y: labels})
        losses.append(sess.run(loss_op, feed_dict={X: data, Y: labels}))
    final_accuracy = sess.run(accuracy, {X: data, Y: labels})
    weights = sess.run(tf.trainable_variables())
print("accuracy", final_accuracy)
assert final_accuracy > 0.9
