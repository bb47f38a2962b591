"""Training in a MonitoredTrainingSession, twice in one directory, with hooks of all kinds."""

import shutil
import tempfile

import numpy as np

import optkit as tf

rng = np.random.RandomState(3)
x_data = rng.normal(0, 1, [64, 3]).astype(np.float32)
y_data = x_data.dot(np.array([[1.0], [-2.0], [0.5]], np.float32)) + 0.3

x = tf.placeholder(tf.float32, [None, 3], name="x")
y = tf.placeholder(tf.float32, [None, 1], name="y")
w = tf.get_variable("w", initializer=np.zeros([3, 1], np.float32))
b = tf.get_variable("b", initializer=np.zeros([1], np.float32))
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y), name="loss")
tf.summary.scalar("loss", loss)
global_step = tf.train.get_or_create_global_step()
train_op = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=global_step)

losses = []
told = []  # what hooks were told, as numbers


class LossHook(tf.train.SessionRunHook):
    def begin(self):
        self.doubled = 2 * loss
        told.append(-1)

    def after_create_session(self, session, coord):
        told.append(session.run(global_step))

    def before_run(self, run_context):
        return tf.train.SessionRunArgs({"loss": loss, "doubled": self.doubled})

    def after_run(self, run_context, run_values):
        losses.append(run_values.results["doubled"] - run_values.results["loss"])

    def end(self, session):
        told.append(-session.run(global_step))


class SaveListener(tf.train.CheckpointSaverListener):
    def before_save(self, session, global_step_value):
        told.append(1000 + global_step_value)

    def after_save(self, session, global_step_value):
        told.append(2000 + global_step_value)

    def end(self, session, global_step_value):
        told.append(3000 + global_step_value)


logdir = tempfile.mkdtemp()
saver = tf.train.CheckpointSaverHook(
    logdir + "/own", save_steps=4, saver=tf.train.Saver(), listeners=[SaveListener()]
)
final = tf.train.FinalOpsHook([w, b], {x: x_data, y: y_data})


def batches():
    while True:
        chosen = rng.randint(0, 64, 16)
        yield {x: x_data[chosen], y: y_data[chosen]}


feed = batches()
for steps in (10, 7):
    hooks = [
        LossHook(),
        tf.train.StopAtStepHook(num_steps=steps),
        tf.train.NanTensorHook(loss),
        tf.train.LoggingTensorHook({"loss": loss, "step": global_step}, every_n_iter=5),
        tf.train.FeedFnHook(lambda: next(feed)),
        final,
    ]
    if steps == 10:
        hooks.append(saver)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=logdir,
        hooks=hooks,
        save_checkpoint_secs=None,
        save_checkpoint_steps=6,
        save_summaries_steps=3,
    ) as sess:
        while not sess.should_stop():
            sess.run(train_op)

for name, shape in tf.train.list_variables(logdir):
    told.append(len(name) + 100 * len(shape))
told.append(float(tf.train.load_variable(logdir, "w/Adam")[1, 0]))
told.append(int(tf.train.latest_checkpoint(logdir).split("-")[-1]))
weights = final.final_ops_values + [np.array(told, np.float64)]
shutil.rmtree(logdir)
print("loss", losses[-1])
