"""A variational autoencoder with its reparametrised noise."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(7)
angles = rng.uniform(0, 2 * np.pi, [256, 1])
basis = rng.normal(0, 1, [2, 10])
data = np.concatenate([np.cos(angles), np.sin(angles)], 1).dot(basis)
data = (data > 0).astype(np.float32)

tf.set_random_seed(7)
x = tf.placeholder(tf.float32, [None, 10])
with tf.variable_scope("encoder", initializer=tf.contrib.layers.xavier_initializer()):
    w1 = tf.get_variable("w1", [10, 16])
    b1 = tf.get_variable("b1", [16], initializer=tf.zeros_initializer())
    hidden = tf.nn.softplus(tf.matmul(x, w1) + b1)
    mean = tf.matmul(hidden, tf.get_variable("w_mean", [16, 2]))
    log_variance = tf.matmul(hidden, tf.get_variable("w_variance", [16, 2]))
noise = tf.random_normal(tf.shape(mean), 0, 1, dtype=tf.float32)
z = mean + tf.sqrt(tf.exp(log_variance)) * noise
with tf.variable_scope("decoder", initializer=tf.contrib.layers.xavier_initializer()):
    hidden = tf.nn.softplus(tf.matmul(z, tf.get_variable("w1", [2, 16])))
    logits = tf.matmul(hidden, tf.get_variable("w2", [16, 10]))
reconstruction = tf.reduce_sum(
    tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), axis=1
)
latent = -0.5 * tf.reduce_sum(
    1 + log_variance - tf.square(mean) - tf.exp(log_variance), reduction_indices=1
)
cost = tf.reduce_mean(reconstruction + latent)
train_op = tf.train.AdamOptimizer(learning_rate=0.01).minimize(cost)

losses = []
with tf.Session() as sess:
    sess.run(tf.initialize_all_variables())
    for i in range(200):
        losses.append(sess.run((train_op, cost), feed_dict={x: data})[1])
    weights = sess.run([w1, b1])
print("cost", losses[-1])
assert losses[-1] < losses[0] - 1.5
