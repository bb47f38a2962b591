"""A program as TF1's were laid out: flags, logging, tf.app.run, layers, checkpoints, summaries."""

import os
import tempfile

import numpy as np

import optkit as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_float("learning_rate", 0.05, "Initial learning rate.")
flags.DEFINE_integer("max_steps", 30, "Number of steps to run.")
flags.DEFINE_string("train_dir", "", "Where to write; a temporary folder if empty.")
flags.DEFINE_boolean("batch_norm", True, "Whether to normalize.")

losses, weights = [], []


def constant(rng, shape):
    return tf.constant_initializer(rng.normal(0, 0.3, shape).astype(np.float32))


def inference(images, training):
    rng = np.random.RandomState(15)
    with tf.variable_scope("model"):
        net = tf.layers.conv2d(
            images,
            4,
            [3, 3],
            padding="same",
            use_bias=not FLAGS.batch_norm,
            kernel_initializer=constant(rng, [3, 3, 1, 4]),
            name="conv",
        )
        if FLAGS.batch_norm:
            net = tf.layers.batch_normalization(
                net, momentum=0.9, training=training, name="norm", fused=False
            )
        net = tf.nn.relu(net)
        net = tf.layers.average_pooling2d(net, 2, 2)
        net = tf.layers.flatten(net)
        return tf.layers.dense(net, 3, kernel_initializer=constant(rng, [64, 3]), name="logits")


def main(argv):
    tf.logging.set_verbosity(tf.logging.WARN)
    train_dir = FLAGS.train_dir or tempfile.mkdtemp()
    rng = np.random.RandomState(16)
    labels = rng.randint(0, 3, [60])
    images = rng.normal(0, 0.5, [60, 8, 8, 1]) + labels[:, None, None, None]
    images[labels == 2, ::2] = 0

    x = tf.placeholder(tf.float32, [None, 8, 8, 1])
    y = tf.placeholder(tf.int64, [None])
    training = tf.placeholder(tf.bool, [])
    logits = inference(x, training)
    tf.losses.softmax_cross_entropy(tf.one_hot(y, 3), logits, label_smoothing=0.05)
    loss = tf.losses.get_total_loss()
    tf.summary.scalar("loss", loss)
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(FLAGS.learning_rate, global_step, 40, 0.001)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdagradOptimizer(rate).minimize(loss, global_step=global_step)
    correct = tf.equal(tf.argmax(logits, 1), y)
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
    summary_op = tf.summary.merge_all()
    saver = tf.train.Saver(tf.global_variables(), max_to_keep=2)
    checkpoint = os.path.join(train_dir, "model.ckpt")

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        writer = tf.summary.FileWriter(train_dir, sess.graph)
        for step in range(FLAGS.max_steps):
            batch = slice(step % 3 * 20, step % 3 * 20 + 20)
            feed = {x: images[batch], y: labels[batch], training: True}
            _, value, summary = sess.run([train_op, loss, summary_op], feed_dict=feed)
            losses.append(value)
            if step % 10 == 9:
                saver.save(sess, checkpoint, global_step=global_step)
                writer.add_summary(summary, step)
                tf.logging.info("step %d: loss %.3f", step, value)
        writer.close()
    latest = tf.train.latest_checkpoint(train_dir)
    assert os.path.basename(latest) == "model.ckpt-30"
    assert len(tf.train.get_checkpoint_state(train_dir).all_model_checkpoint_paths) == 2
    with tf.Session() as sess:
        saver.restore(sess, latest)
        weights.extend(sess.run(tf.global_variables()))
        score = sess.run(accuracy, {x: images, y: labels, training: False})
        assert sess.run(global_step) == 30
    print("accuracy", score)
    assert score > 0.9


if __name__ == "__main__":
    tf.app.run(main=main)
