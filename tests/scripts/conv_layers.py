"""A convolutional net from tf.layers with batch normalisation, trained by create_train_op."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(5)
images = rng.normal(0, 0.3, [64, 12, 12, 1]).astype(np.float32)
labels = rng.randint(0, 2, [64]).astype(np.int32)
images[labels == 1, 4:8, :, :] += 1
images[labels == 0, :, 4:8, :] += 1

tf.set_random_seed(2)


def model(inputs, training):
    net = tf.layers.conv2d(inputs, 8, [3, 3], padding="same", activation=None)
    net = tf.layers.batch_normalization(net, training=training, momentum=0.9)
    net = tf.nn.relu(net)
    net = tf.layers.max_pooling2d(net, pool_size=2, strides=2)
    net = tf.layers.conv2d(net, 8, 3, padding="valid", activation=tf.nn.relu)
    net = tf.layers.flatten(net)
    return tf.layers.dense(net, 2)


x = tf.placeholder(tf.float32, [None, 12, 12, 1])
y = tf.placeholder(tf.int32, [None])
training = tf.placeholder(tf.bool, [])
logits = model(x, training)
loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
optimizer = tf.train.RMSPropOptimizer(0.005)
train_op = tf.contrib.training.create_train_op(
    loss, optimizer, transform_grads_fn=tf.contrib.training.clip_gradient_norms_fn(5.0)
)
accuracy = tf.reduce_mean(tf.cast(tf.nn.in_top_k(logits, y, 1), tf.float32))

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(40):
        losses.append(sess.run(train_op, {x: images, y: labels, training: True}))
    final_accuracy = sess.run(accuracy, {x: images, y: labels, training: False})
    weights = sess.run(tf.trainable_variables())
    steps = tf.train.global_step(sess, tf.train.get_global_step())
print("accuracy", final_accuracy)
assert (final_accuracy, steps) == (1, 40)
