"""Two losses with two optimize_loss calls, a target network, and a huber loss, as in DQN."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(12)


def q_network(state, scope, reuse=None):
    with tf.variable_scope(scope, reuse=reuse):
        w = (
            tf.get_variable(
                "w", initializer=tf.constant(rng.normal(0, 0.3, [4, 8]).astype(np.float32))
            )
            if not reuse
            else tf.get_variable("w", [4, 8])
        )
        v = (
            tf.get_variable(
                "v", initializer=tf.constant(rng.normal(0, 0.3, [8, 2]).astype(np.float32))
            )
            if not reuse
            else tf.get_variable("v", [8, 2])
        )
        return tf.matmul(tf.nn.relu(tf.matmul(state, w)), v)


global_step = tf.train.get_or_create_global_step()
state = tf.placeholder(tf.float32, [None, 4])
next_state = tf.placeholder(tf.float32, [None, 4])
action = tf.placeholder(tf.int32, [None])
reward = tf.placeholder(tf.float32, [None])
done = tf.placeholder(tf.float32, [None])

q = q_network(state, "q")
q_next = q_network(next_state, "target")
chosen = tf.reduce_sum(q * tf.one_hot(action, 2), axis=1)
goal = reward + 0.9 * (1.0 - done) * tf.reduce_max(q_next, axis=1)
td_error = chosen - tf.stop_gradient(goal)
huber = tf.where(tf.abs(td_error) < 1.0, 0.5 * tf.square(td_error), tf.abs(td_error) - 0.5)
q_loss = tf.reduce_mean(huber)
q_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="q/")
target_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="target/")
train_q = tf.contrib.layers.optimize_loss(
    q_loss,
    global_step,
    0.01,
    "Adam",
    clip_gradients=10.0,
    variables=q_vars,
    name="q_train",
    summaries=["loss", "gradient_norm"],
)
model = tf.get_variable("model", [4, 4], initializer=tf.zeros_initializer())
model_loss = tf.losses.mean_squared_error(next_state, tf.matmul(state, model))
train_model = tf.contrib.layers.optimize_loss(
    model_loss,
    global_step,
    0.1,
    "SGD",
    variables=[model],
    name="model_train",
    increment_global_step=False,
)
sync = tf.group(*[t.assign(s) for t, s in zip(target_vars, q_vars)])

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(sync)
    for i in range(60):
        s = rng.normal(0, 1, [32, 4])
        a = rng.randint(0, 2, 32)
        feed = {
            state: s,
            next_state: 0.5 * s,
            action: a,
            reward: (s[:, 0] > 0) == (a == 1),
            done: rng.uniform(size=32) < 0.1,
        }
        losses.append(sess.run([train_q, train_model], feed)[0])
        if i % 10 == 9:
            sess.run(sync)
    weights = sess.run(q_vars + [model])
    steps = sess.run(global_step)
print("q loss", losses[-1], "steps", steps)
assert steps == 60
assert losses[-1] < losses[0]
