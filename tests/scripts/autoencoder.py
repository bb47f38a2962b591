"""An autoencoder with dictionaries of weights and RMSProp."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(6)
codes = rng.normal(0, 1, [200, 2])
data = 1 / (1 + np.exp(-codes.dot(rng.normal(0, 1, [2, 8]))))
data = data.astype(np.float32)


def start(shape):
    return tf.Variable(rng.normal(0, 1, shape).astype(np.float32))


weights_of = {
    "encoder_h1": start([8, 6]),
    "encoder_h2": start([6, 2]),
    "decoder_h1": start([2, 6]),
    "decoder_h2": start([6, 8]),
}
biases_of = {
    "encoder_b1": start([6]),
    "encoder_b2": start([2]),
    "decoder_b1": start([6]),
    "decoder_b2": start([8]),
}


def layer(x, part, i):
    return tf.nn.sigmoid(
        tf.add(tf.matmul(x, weights_of["%s_h%d" % (part, i)]), biases_of["%s_b%d" % (part, i)])
    )


X = tf.placeholder("float", [None, 8])
encoded = layer(layer(X, "encoder", 1), "encoder", 2)
decoded = layer(layer(encoded, "decoder", 1), "decoder", 2)
loss = tf.reduce_mean(tf.pow(X - decoded, 2))
optimizer = tf.train.RMSPropOptimizer(0.02).minimize(loss)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(120):
        _, value = sess.run([optimizer, loss], feed_dict={X: data})
        losses.append(value)
    weights = sess.run([weights_of["encoder_h1"], biases_of["decoder_b2"]])
print("reconstruction error", losses[-1])
assert losses[-1] < losses[0] / 2
