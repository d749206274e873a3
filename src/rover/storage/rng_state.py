"""The state of random number generators as plain data, so that a resumed run draws the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rover.errors import ArtefactError

_BIT_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    cls.__name__: cls
    for cls in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of ``rng`` as JSON-able values, to be given to :func:`restore_generator`.

    The seed sequence is part of it, because ``rng.spawn`` draws from that and not from the bits.

    Raises:
        ArtefactError: a bit generator that is not numpy's own.
    """
    bits = rng.bit_generator
    seeds = bits.seed_seq
    if type(bits).__name__ not in _BIT_GENERATORS or not isinstance(seeds, np.random.SeedSequence):
        raise ArtefactError(
            f"the state of a {type(bits).__name__} seeded by {type(seeds).__name__} cannot be "
            "stored; use numpy.random.default_rng(seed)"
        )
    entropy: Any = seeds.entropy
    return {
        "bits": _plain(bits.state),
        "seeds": {
            "entropy": None if entropy is None else _plain(entropy),
            "spawn_key": [int(key) for key in seeds.spawn_key],
            "pool_size": int(seeds.pool_size),
            "n_children_spawned": int(seeds.n_children_spawned),
        },
    }


def restore_generator(state: Mapping[str, Any]) -> np.random.Generator:
    """A generator that continues where the one given to :func:`generator_state` was.

    Raises:
        ArtefactError: ``state`` is not such a state.
    """
    try:
        seeds = np.random.SeedSequence(**state["seeds"])
        bits = _BIT_GENERATORS[state["bits"]["bit_generator"]](seeds)
        template: Any = bits.state
        checked = _like(template, state["bits"])
        _check_positions(checked)
        bits.state = checked
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ArtefactError(
            f"this is not the state of a random number generator ({error!r}); "
            "use what generator_state returned"
        ) from None
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _like(template: Any, value: Any) -> Any:
    """``value`` with the arrays that ``template``, a state of the same generator, has.

    Checked here because numpy accepts some wrong states and draws from them.
    """
    if isinstance(template, Mapping):
        if not isinstance(value, Mapping) or set(value) != set(template):
            raise ValueError(f"expected the fields {sorted(template)}")
        return {key: _like(item, value[key]) for key, item in template.items()}
    if isinstance(template, np.ndarray):
        array = np.array(value, dtype=template.dtype)
        if array.shape != template.shape:
            raise ValueError(f"expected {template.shape} numbers")
        return array
    if type(value) is not type(template):
        raise ValueError(f"expected {type(template).__name__}, found {type(value).__name__}")
    return value


def _check_positions(state: Mapping[str, Any]) -> None:
    """Refuse positions beyond the end of the buffer that they point into."""
    inner = state["state"]
    for position, limit in (
        (inner.get("pos"), len(inner["key"]) if "pos" in inner else 0),
        (state.get("buffer_pos"), len(state.get("buffer", ()))),
    ):
        if position is not None and not 0 <= position <= limit:
            raise ValueError(f"position {position} is outside a buffer of {limit}")


def torch_generator_state(generator: torch.Generator) -> Tensor:
    """The state of a torch generator.

    Returns:
        1-d uint8 tensor on the CPU, its length depending on the device of ``generator``.
    """
    return generator.get_state().clone()


def restore_torch_generator(
    state: Tensor, *, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator on ``device`` that continues where ``state`` was taken.

    Args:
        state: from :func:`torch_generator_state`, of a generator on the same kind of device.
        device: where the generator lives.

    Raises:
        ArtefactError: ``state`` is not the state of a generator on such a device.
    """
    generator = torch.Generator(device=device)
    try:
        generator.set_state(state)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ArtefactError(
            f"this is not the state of a torch generator on {device} ({reason}); "
            "use what torch_generator_state returned on the same kind of device"
        ) from None
    return generator
