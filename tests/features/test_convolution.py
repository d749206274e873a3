import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.features import convolution


def _images(
    seed: int, n: int, height: int, width: int, channels: int, changed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of one random image with ``changed`` random pixels replaced in each."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randint(0, 256, (height, width, channels), generator=generator, dtype=torch.uint8)
    images = base.repeat(n, 1, 1, 1)
    for image in images:
        for _ in range(changed):
            y = int(torch.randint(height, (), generator=generator))
            x = int(torch.randint(width, (), generator=generator))
            image[y, x] = torch.randint(0, 256, (channels,), generator=generator, dtype=torch.uint8)
    return images, base.float()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(
        st.integers(1, 3), st.integers(5, 20), st.integers(5, 20), st.sampled_from([1, 3])
    ),
    changed=st.integers(0, 4),
    kernel=st.integers(1, 4),
    strides=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_sparse_convolution_equals_the_ordinary_one(seed, shape, changed, kernel, strides):
    images, center = _images(seed, *shape, changed)
    generator = torch.Generator().manual_seed(seed)
    scale = 1.0 + torch.rand(center.shape, generator=generator)
    expected = ((images - center) / scale).permute(0, 3, 1, 2).double()
    padding = kernel // 2
    kernels = []
    for i, stride in enumerate(strides):
        fan_in = shape[-1] if i == 0 else 4
        kernels.append(torch.randn(4, kernel, kernel, fan_in, generator=generator))
        weight = kernels[-1].double().permute(0, 3, 1, 2)
        expected = F.relu(F.conv2d(expected, weight, stride=stride, padding=padding))
    result = convolution.convolved(images, center, scale, kernels, strides=strides, padding=padding)
    tolerance = 1e-5 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=tolerance)


def test_gradients_equal_those_of_the_ordinary_convolution(monkeypatch):
    images, center = _images(3, 4, 18, 15, 3, 3)
    scale = torch.full_like(center, 255.0)
    generator = torch.Generator().manual_seed(0)
    shapes = (5, 3, 3, 3), (6, 3, 3, 5)
    initial = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = []
    for fraction in (1.0, 0.0):  # sparse to the end, and dense from the beginning
        monkeypatch.setattr(convolution, "DENSE_FRACTION", fraction)
        weights = [one.clone().requires_grad_() for one in initial]
        output = convolution.convolved(images, center, scale, weights, strides=(2, 2), padding=1)
        (output.square().sum() + output[:, 0].sum()).backward()
        gradients.append([weight.grad for weight in weights])
    for ours, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-5)
