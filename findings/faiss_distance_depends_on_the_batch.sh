#!/bin/sh
# Believed: the distances of an exact index (IndexFlatL2) depend on the query alone, so that a bonus for novelty may be
# asked for one state by one or for a whole batch.
# True (faiss-cpu 1.15.1; its variable distance_compute_blas_threshold is 128000): when queries times dimensions reach
# that number, distances are of |x|^2 + |y|^2 - 2xy in float32, before it of the differences themselves. Far from the
# origin nothing is left of the former: alone, the nearest neighbours are right; in a batch of 2000 they are others for
# nine states of ten, and the entropy of the states (the mean logarithm of the fifth distance) falls by 0.3. Subtract a mean first.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check faiss-cpu==1.15.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/venv/bin/python" - <<'PYTHON'
import faiss
import numpy as np

print("faiss", faiss.__version__, "threshold", faiss.cvar.distance_compute_blas_threshold)
rng = np.random.default_rng(0)
spread = 0.1 * rng.standard_normal((2000, 64))
same, fall = {}, {}
for centre in (0.0, 100.0):
    points = (spread + centre).astype(np.float32)
    index = faiss.IndexFlatL2(64)
    index.add(points)
    one_by_one = [index.search(point[None], 6) for point in points]
    alone, nearest = (np.concatenate([answer[i] for answer in one_by_one]) for i in (0, 1))
    together, nearest_together = index.search(points, 6)
    exact = np.sort(((points.astype(float)[0] - points.astype(float)) ** 2).sum(1))[:6]
    assert np.allclose(alone[0], exact, rtol=1e-4)
    same[centre] = (nearest[:, 1] == nearest_together[:, 1]).mean()
    fall[centre] = np.log(alone[:, 5]).mean() - np.log(np.maximum(together[:, 5], 1e-6)).mean()
    print(f"centre {centre:.0f}: nearest alike for {same[centre]:.1%} of states, mean logarithm {fall[centre]:.4f} less")
    print("  first state alone:   ", alone[0].round(3))
    print("  first state in batch:", together[0].round(3))
assert same[0.0] > 0.99
assert abs(fall[0.0]) < 1e-3
assert same[100.0] < 0.5
assert fall[100.0] > 0.1
PYTHON
