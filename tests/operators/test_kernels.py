import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rover.errors import ConfigurationError
from rover.operators import Dirac, Gaussian, Kernel, Linear, Riesz, make_kernel

ALL: list[Kernel] = [Linear(), Gaussian(0.7), Dirac(), Riesz(1.3, 0.5)]


def points(seed: int, n: int, width: int = 4) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, width)))


def scalar(kernel: Kernel, x: Tensor, y: Tensor) -> float:
    """The kernel of two points as its definition has it."""
    distance = math.dist(x.tolist(), y.tolist())
    match kernel:
        case Linear():
            return float(x @ y)
        case Gaussian():
            return math.exp(-(distance**2) / (2 * kernel.bandwidth**2))
        case Riesz():
            return (distance**2 + kernel.core**2) ** (-kernel.exponent / 2)
        case _:
            return float(distance == 0.0)


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
def test_gram_matrix_is_the_definition_pair_by_pair(kernel):
    x, y = points(0, 6), points(1, 5)
    y[2] = x[4]
    gram = kernel(x, y)
    expected = [[scalar(kernel, a, b) for b in y] for a in x]
    assert gram.shape == (6, 5)
    assert torch.allclose(gram, torch.tensor(expected, dtype=torch.float64), rtol=1e-12)
    assert torch.allclose(kernel(x, x).diagonal(), kernel.diagonal(x), rtol=1e-13)
    rows = torch.tensor([[0.0, 1.0], [1e-300, 1.0], [-0.0, 1.0]], dtype=torch.float64)
    assert Dirac()(rows, rows).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 20), which=st.integers(0, len(ALL) - 1))
def test_gram_matrices_are_symmetric_and_positive(seed, n, which):
    x = points(seed, n)
    x = torch.cat([x, x[:3]])  # repeated points make the matrix singular, not indefinite
    gram = ALL[which](x, x)
    assert torch.allclose(gram, gram.T, rtol=1e-12, atol=1e-14)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert float(eigenvalues.min()) >= -1e-12 * float(eigenvalues.max())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), offset=st.floats(-1e6, 1e6))
def test_distances_keep_their_digits_far_from_the_origin(seed, offset):
    x, y = points(seed, 7), points(seed + 1, 5)
    near = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    far = Riesz(exponent=2.0, core=1.0)(x + offset, y + offset)  # 1 / (‖x − y‖² + 1)
    # The offset itself rounds the coordinates to about 1e-10, and that is all that is lost.
    assert torch.allclose(1.0 / far - 1.0, near, rtol=1e-7, atol=1e-8)


def test_sharp_kernels_hold_no_subnormal_products():
    x = points(0, 30)
    gram = Gaussian(0.01)(x, x)
    off_diagonal = gram[~torch.eye(30).bool()]
    assert bool(((off_diagonal == 0.0) | (off_diagonal > 1e-30)).all())
    assert bool((off_diagonal == 0.0).any())
    assert torch.allclose(gram.diagonal(), torch.ones(30).double(), rtol=1e-10)


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
def test_name_and_parameters_make_the_same_kernel(kernel):
    assert make_kernel(kernel.name, **asdict(kernel)) == kernel


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("cosine", {}, "unknown kernel 'cosine'; choose one of linear, gaussian, dirac"),
        ("gaussian", {"sigma": 1.0}, "kernel 'gaussian' takes bandwidth; got sigma"),
        ("linear", {"bandwidth": 1.0}, "kernel 'linear' takes no parameters; got bandwidth"),
        ("gaussian", {"bandwidth": math.nan}, "bandwidth must be a positive finite number"),
    ],
)
def test_impossible_kernels_are_refused(name, parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        make_kernel(name, **parameters)
