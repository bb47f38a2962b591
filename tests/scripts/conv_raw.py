"""A convolutional net from tf.nn, as in TensorFlow's first tutorials."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(4)
images = rng.normal(0, 0.3, [64, 12, 12, 1]).astype(np.float32)
labels = rng.randint(0, 2, [64])
images[labels == 1, 4:8, :, :] += 1  # bars lie or stand
images[labels == 0, :, 4:8, :] += 1


def weight_variable(shape, seed):
    initial = np.random.RandomState(seed).normal(0, 0.1, shape).astype(np.float32)
    return tf.Variable(tf.constant(initial))


def bias_variable(shape):
    return tf.Variable(tf.constant(0.1, shape=shape))


def conv2d(x, W):
    return tf.nn.conv2d(x, W, strides=[1, 1, 1, 1], padding="SAME")


def max_pool_2x2(x):
    return tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")


x = tf.placeholder(tf.float32, [None, 12, 12, 1])
y_ = tf.placeholder(tf.float32, [None, 2])
h_conv1 = tf.nn.relu(conv2d(x, weight_variable([3, 3, 1, 4], 1)) + bias_variable([4]))
h_pool1 = max_pool_2x2(h_conv1)
h_conv2 = tf.nn.relu(conv2d(h_pool1, weight_variable([3, 3, 4, 8], 2)) + bias_variable([8]))
h_pool2 = max_pool_2x2(h_conv2)
flat = tf.reshape(h_pool2, [-1, 3 * 3 * 8])
keep_prob = tf.placeholder(tf.float32)
dropped = tf.nn.dropout(flat, keep_prob)
y_conv = tf.matmul(dropped, weight_variable([72, 2], 3)) + bias_variable([2])
cross_entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=y_conv))
train_step = tf.train.AdamOptimizer(1e-2).minimize(cross_entropy)
correct_prediction = tf.equal(tf.argmax(y_conv, 1), tf.argmax(y_, 1))
accuracy = tf.reduce_mean(tf.cast(correct_prediction, tf.float32))

losses = []
one_hot = np.eye(2, dtype=np.float32)[labels]
sess = tf.InteractiveSession()
tf.global_variables_initializer().run()
for i in range(30):
    feed = {x: images, y_: one_hot, keep_prob: 1.0}
    losses.append(cross_entropy.eval(feed))
    train_step.run(feed_dict=feed)
final_accuracy = accuracy.eval({x: images, y_: one_hot, keep_prob: 1.0})
weights = sess.run(tf.trainable_variables())
sess.close()
print("accuracy", final_accuracy)
assert final_accuracy == 1
