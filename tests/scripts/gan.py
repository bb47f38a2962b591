"""A generative adversarial net: two optimizers, each with its own list of variables."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(8)


def start(shape):
    return rng.normal(0, 1 / np.sqrt(shape[0] / 2.0), shape).astype(np.float32)


X = tf.placeholder(tf.float32, shape=[None, 1])
Z = tf.placeholder(tf.float32, shape=[None, 4])
D_W1, D_b1 = tf.Variable(start([1, 8])), tf.Variable(tf.zeros(shape=[8]))
D_W2, D_b2 = tf.Variable(start([8, 1])), tf.Variable(tf.zeros(shape=[1]))
theta_D = [D_W1, D_W2, D_b1, D_b2]
G_W1, G_b1 = tf.Variable(start([4, 8])), tf.Variable(tf.zeros(shape=[8]))
G_W2, G_b2 = tf.Variable(start([8, 1])), tf.Variable(tf.zeros(shape=[1]))
theta_G = [G_W1, G_W2, G_b1, G_b2]


def generator(z):
    return tf.matmul(tf.nn.relu(tf.matmul(z, G_W1) + G_b1), G_W2) + G_b2


def discriminator(x):
    return tf.matmul(tf.nn.leaky_relu(tf.matmul(x, D_W1) + D_b1), D_W2) + D_b2


G_sample = generator(Z)
D_logit_real = discriminator(X)
D_logit_fake = discriminator(G_sample)
xent = tf.nn.sigmoid_cross_entropy_with_logits
D_loss = tf.reduce_mean(
    xent(logits=D_logit_real, labels=tf.ones_like(D_logit_real))
) + tf.reduce_mean(xent(logits=D_logit_fake, labels=tf.zeros_like(D_logit_fake)))
G_loss = tf.reduce_mean(xent(logits=D_logit_fake, labels=tf.ones_like(D_logit_fake)))
D_solver = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(D_loss, var_list=theta_D)
G_solver = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(G_loss, var_list=theta_G)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(60):
        real = rng.normal(3, 0.5, [32, 1])
        noise = rng.uniform(-1.0, 1.0, size=[32, 4])
        _, D_loss_curr = sess.run([D_solver, D_loss], feed_dict={X: real, Z: noise})
        _, G_loss_curr = sess.run([G_solver, G_loss], feed_dict={Z: noise})
        losses += [D_loss_curr, G_loss_curr]
    weights = sess.run(theta_D + theta_G)
    made = sess.run(G_sample, {Z: rng.uniform(-1, 1, [256, 4])})
print("mean of what is generated", made.mean())
assert np.isfinite(losses).all()
