"""K-means from plain operations: assignments, segment means, and an update by hand."""

import numpy as np

import optkit as tf

rng = np.random.RandomState(10)
true_centers = np.array([[0, 5], [5, 0], [-4, -4]], np.float32)
data = (true_centers[rng.randint(0, 3, 150)] + rng.normal(0, 0.5, [150, 2])).astype(np.float32)

points = tf.constant(data)
centers = tf.Variable(
    tf.slice(points, [0, 0], [3, -1]) * 0 + [[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]
)
distances = tf.reduce_sum(
    tf.square(tf.subtract(tf.expand_dims(points, 0), tf.expand_dims(centers, 1))), 2
)
assignments = tf.argmin(distances, 0)
cost = tf.reduce_mean(tf.reduce_min(distances, 0))
counts = tf.unsorted_segment_sum(tf.ones([150]), assignments, 3)
sums = tf.unsorted_segment_sum(points, assignments, 3)
means = sums / tf.expand_dims(tf.maximum(counts, 1.0), 1)
update = tf.assign(centers, tf.where(counts > 0, means, centers))

losses = []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(12):
        losses.append(session.run(cost))
        session.run(update)
    weights = [session.run(centers)]
    sizes = session.run(counts)
print("cost", losses[-1], "sizes", sizes)
assert losses[-1] < 1
