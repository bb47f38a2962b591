"""An optimizer of one's own, a subclass with TF1's hooks: AddSign."""

import numpy as np

import optkit as tf


class AddSign(tf.train.Optimizer):
    def __init__(self, learning_rate=0.1, alpha=1.0, beta=0.9, use_locking=False, name="AddSign"):
        super(AddSign, self).__init__(use_locking, name)
        self._lr = learning_rate
        self._alpha = alpha
        self._beta = beta

    def _create_slots(self, var_list):
        for v in var_list:
            self._zeros_slot(v, "m", self._name)

    def _prepare(self):
        self._lr_t = tf.convert_to_tensor(self._lr, name="learning_rate")

    def _apply_dense(self, grad, var):
        lr = tf.cast(self._lr_t, var.dtype.base_dtype)
        m = self.get_slot(var, "m")
        m_t = m.assign(self._beta * m + (1 - self._beta) * grad)
        step = lr * grad * (self._alpha + tf.sign(grad) * tf.sign(m_t))
        return tf.group(tf.assign_sub(var, step), m_t)

    _resource_apply_dense = _apply_dense

    def _apply_sparse(self, grad, var):
        raise NotImplementedError("Sparse gradient updates are not supported.")


target = np.array([1.0, -2.0, 3.0], np.float32)
w = tf.Variable(np.zeros(3, np.float32), name="w")
loss = tf.reduce_sum(tf.square(w - target))
step = tf.train.get_or_create_global_step()
optimizer = AddSign(0.05)
train_op = optimizer.minimize(loss, global_step=step)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(40):
        losses.append(sess.run([loss, train_op])[0])
    weights = sess.run([w, optimizer.get_slot(w, "m"), step])
print("loss", losses[-1])
assert optimizer.get_slot_names() == ["m"]
assert losses[-1] < 0.1
