"""A multi-layer perceptron from tf.layers, with dropout and tf.losses."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(3)
data = rng.normal(0, 1, [200, 5]).astype(np.float32)
labels = (np.abs(data).sum(1) > 4).astype(np.int32)

tf.set_random_seed(1)
features = tf.placeholder(tf.float32, [None, 5])
targets = tf.placeholder(tf.int32, [None])
is_training = tf.placeholder_with_default(False, [])
net = tf.layers.dense(
    features,
    32,
    activation=tf.nn.relu,
    kernel_initializer=tf.truncated_normal_initializer(stddev=0.5),
    kernel_regularizer=tf.contrib.layers.l2_regularizer(1e-4),
    name="fc1",
)
net = tf.layers.dropout(net, rate=0.2, training=is_training)
logits = tf.layers.dense(net, 2, name="fc2")
tf.losses.sparse_softmax_cross_entropy(labels=targets, logits=logits)
total_loss = tf.losses.get_total_loss()
train_op = tf.train.AdamOptimizer(0.01).minimize(
    total_loss, global_step=tf.train.get_or_create_global_step()
)
correct = tf.equal(tf.cast(tf.argmax(logits, 1), tf.int32), targets)
accuracy = tf.reduce_mean(tf.to_float(correct))

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(150):
        feed = {features: data, targets: labels, is_training: True}
        losses.append(sess.run([total_loss, train_op], feed)[0])
    final_accuracy = sess.run(accuracy, {features: data, targets: labels})
    weights = sess.run(tf.trainable_variables())
    print("accuracy", final_accuracy)
assert [v.name for v in tf.trainable_variables()][0] == "fc1/kernel:0"
assert final_accuracy > 0.9
