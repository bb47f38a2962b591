"""Skip-gram word vectors with noise-contrastive estimation."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(9)
vocabulary, size = 40, 8
words = rng.randint(0, vocabulary, 4000)
contexts = (words // 10) * 10 + rng.randint(0, 10, 4000)  # words keep to groups of ten

tf.set_random_seed(9)
train_inputs = tf.placeholder(tf.int32, shape=[None])
train_labels = tf.placeholder(tf.int32, shape=[None, 1])
with tf.name_scope("embeddings"):
    embeddings = tf.Variable(tf.random_uniform([vocabulary, size], -1.0, 1.0))
    embed = tf.nn.embedding_lookup(embeddings, train_inputs)
with tf.name_scope("weights"):
    nce_weights = tf.Variable(tf.truncated_normal([vocabulary, size], stddev=1.0 / np.sqrt(size)))
with tf.name_scope("biases"):
    nce_biases = tf.Variable(tf.zeros([vocabulary]))
with tf.name_scope("loss"):
    loss = tf.reduce_mean(
        tf.nn.nce_loss(
            weights=nce_weights,
            biases=nce_biases,
            labels=train_labels,
            inputs=embed,
            num_sampled=8,
            num_classes=vocabulary,
        )
    )
optimizer = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
normalized = embeddings / norm
similarity = tf.matmul(normalized, normalized, transpose_b=True)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(600):
        batch = rng.randint(0, 4000, 64)
        feed = {train_inputs: words[batch], train_labels: contexts[batch][:, None]}
        _, value = sess.run([optimizer, loss], feed_dict=feed)
        losses.append(value)
    close = similarity.eval()
    weights = sess.run([embeddings, nce_biases])
group = np.arange(vocabulary) // 10
same = group[:, None] == group[None]
print("similarity within groups %.2f, between %.2f" % (close[same].mean(), close[~same].mean()))
assert close[same].mean() > close[~same].mean() + 0.3
