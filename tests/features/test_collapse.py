from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from rover.errors import CollapsedFeaturesWarning, ConfigurationError, NonFiniteError
from rover.features import feature_diagnostics, warn_if_collapsed


def test_orthonormal_features() -> None:
    diagnostics = feature_diagnostics(np.eye(6, 9, dtype=np.float32))
    assert diagnostics.n_observations == 6
    assert diagnostics.mean_cosine == pytest.approx(0.0)
    assert diagnostics.max_cosine == pytest.approx(0.0)
    assert diagnostics.effective_rank == pytest.approx(6.0)
    assert diagnostics.nearest_distance_min == pytest.approx(math.sqrt(2.0))
    assert diagnostics.nearest_distance_median == pytest.approx(math.sqrt(2.0))


def test_known_distances_and_cosines() -> None:
    features = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    diagnostics = feature_diagnostics(features)
    assert diagnostics.mean_cosine == pytest.approx(1.0 / 3.0)
    assert diagnostics.max_cosine == pytest.approx(1.0)
    nearest = [math.sqrt(2.0), math.sqrt(2.0), 2.0]
    assert diagnostics.nearest_distance_min == pytest.approx(min(nearest))
    assert diagnostics.nearest_distance_median == pytest.approx(np.median(nearest))
    assert diagnostics.nearest_distance_q05 == pytest.approx(np.quantile(nearest, 0.05))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_features_are_collapsed_and_the_warning_says_what_to_try(value: float) -> None:
    diagnostics = feature_diagnostics(np.full((5, 3), value))
    assert diagnostics.mean_cosine == pytest.approx(1.0)
    assert diagnostics.effective_rank == pytest.approx(1.0)
    assert diagnostics.nearest_distance_min == pytest.approx(0.0, abs=1e-7)
    with pytest.warns(
        CollapsedFeaturesWarning,
        match=r"5 distinct observations .* mean cosine of 1\.000 .* effective rank of 1\.0: .* "
        r"more encoder updates .* lower temperature",
    ):
        assert warn_if_collapsed(diagnostics)


def test_features_that_are_apart_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_if_collapsed(feature_diagnostics(np.eye(4)))


def test_large_sets_are_thinned_evenly() -> None:
    features = np.random.default_rng(0).normal(size=(500, 4))
    assert feature_diagnostics(features, max_observations=50).n_observations == 50


def test_unusable_features_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"at least two distinct .* got shape \(1, 3\)"):
        feature_diagnostics(np.zeros((1, 3)))
    features = np.eye(3)
    features[1, 2] = np.nan
    with pytest.raises(NonFiniteError, match="observation 1 are not finite: lower the learning"):
        feature_diagnostics(features)
