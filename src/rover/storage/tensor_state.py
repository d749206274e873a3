"""The state of something that trains, as named tensors: checked before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rover.errors import ArtefactError


def copied_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that no later training changes."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def check_tensor_names(
    expected: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Check that a state has exactly the expected names.

    Raises:
        ArtefactError: a tensor is missing or unknown.
    """
    missing, unknown = sorted(expected.keys() - state), sorted(state.keys() - expected)
    if missing or unknown:
        raise ArtefactError(
            f"the state of {owner} lacks {missing or 'nothing'} and has unknown "
            f"{unknown or 'nothing'}: build {owner} with the settings it was saved with"
        )


def check_tensors(
    expected: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Check that a state has the expected names, shapes and dtypes.

    Args:
        expected: tensors like those that the state must have.
        state: what was stored.
        owner: what the state is of, for the message: "the trainer".

    Raises:
        ArtefactError: a tensor is missing, unknown, or of another shape or dtype.
    """
    check_tensor_names(expected, state, owner=owner)
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape or state[name].dtype != tensor.dtype:
            raise ArtefactError(
                f"{name} has shape {tuple(state[name].shape)} and {state[name].dtype}, {owner} "
                f"needs {tuple(tensor.shape)} and {tensor.dtype}: build {owner} with the settings "
                "it was saved with"
            )


def restore_tensors(
    targets: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Copy a state into `targets` in place, or change nothing.

    Raises:
        ArtefactError: see :func:`check_tensors`.
    """
    check_tensors(targets, state, owner=owner)
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(state[name])
