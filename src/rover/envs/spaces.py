"""Observations and actions of environments, and the arrays and numbers that they are stored as.

Observations become integers (Discrete), vectors or uint8 images (Box). Grey images get a channel,
images with their channels first have them last, the frames of a stack become channels, and float
images of bounded numbers become bytes. All other numbers are one vector, as of
:func:`gymnasium.spaces.flatten`. Actions are numbers 0 to A − 1, which stand for the elements of
:func:`action_set` where the environment takes something else.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from rover.arrays import signed
from rover.envs.actions import MAX_ACTIONS, MOST_NUMBERS, _recorded_set, action_set, element
from rover.errors import ConfigurationError, NonFiniteError, UnsupportedSpaceError, abridge, shorten

_DTYPES = "uint8", "int64", "float32", "float64"  # of vectors that encoders take
_COLOURS = 1, 3, 4
# Larger stacks were read as vectors of bytes, at 600 ms a step; they are refused.
_MOST_CHANNELS = 16
# Axes of arrays of 2 to 4 dimensions that are height, width, and channels or frames and colours,
# by preference.
_LAYOUTS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    2: ((0, 1),),
    3: ((0, 1, 2), (1, 2, 0)),
    4: ((1, 2, 0, 3), (2, 3, 0, 1)),
}
_SMALLEST = 8  # pixels of an image's side; smaller arrays are boards
_SIDE_OF_IMAGES = 32  # pixels of both sides from which on bytes are images, and no board
_MOST_VALUES = 32  # of whole numbers in Dict and Tuple, where each is a name
_LARGEST_FLOAT = 1e6  # bound beyond which there is none: some write the largest float for infinity


@dataclass(frozen=True)
class Spaces:
    """The observations and actions of an environment.

    Attributes:
        observed, acted: the environment's own spaces.
        observation: the space of stored observations.
        form: what makes stored observations of elements.
        shape: of a stored observation; () of Discrete states.
        dtype: of stored observations: int64 of Discrete states, whatever dtype their space has.
        actions: (A, *action shape), what the numbers of actions stand for; None: themselves.
        n_actions: A.
    """

    observed: gym.Space[Any]
    acted: gym.Space[Any]
    observation: spaces.Discrete | spaces.Box
    form: StoredForm
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    actions: NDArray[Any] | None
    n_actions: int

    @classmethod
    def of(cls, env: Any) -> Spaces:
        """The spaces of an environment, or of a data set with spaces.

        Raises:
            ConfigurationError: no environment, its class, or many at once.
            UnsupportedSpaceError: observations without a form above, or actions without a set of
                at most 65,536.
        """
        is_env = hasattr(env, "action_space") and hasattr(env, "observation_space")
        if inspect.isclass(env) or not is_env or isinstance(getattr(env, "num_envs", None), int):
            raise ConfigurationError(
                f"{shorten(env)} is no single environment: give a gymnasium.Env, as gymnasium.make "
                "returns it; to collect in several at once, give its id or a function, and the "
                "setting num_envs"
            )
        observed, acted = env.observation_space, env.action_space
        form, actions = StoredForm.of(observed), None
        stored = form.space
        if isinstance(acted, spaces.Discrete) and acted.start == 0 and acted.n <= MAX_ACTIONS:
            n_actions = int(acted.n)
        elif (actions := action_set(acted)) is not None:
            n_actions = len(actions)
        else:
            raise UnsupportedSpaceError(
                f"action space {abridge(acted)} is not supported: wrap the environment to take at "
                f"most {MAX_ACTIONS} actions, or up to {MOST_NUMBERS} bounded floats "
                "(gymnasium.wrappers.TransformAction)"
            )
        dtype = np.dtype(np.int64 if isinstance(stored, spaces.Discrete) else stored.dtype)
        return cls(observed, acted, stored, form, stored.shape or (), dtype, actions, n_actions)

    @cached_property
    def details(self) -> dict[str, Any]:
        """Entries of a policy's details that say what its observations and actions are.

        Empty where both are stored as they are.
        """
        details = {} if self.actions is None else {"action_set": self.actions.tolist()}
        if self.observation is not self.observed:
            details["observation_space"] = description_of(self.form.observed)
        return details

    def read(self, observation: Any, where: object) -> NDArray[Any]:
        """An observation (*shape), as it is stored: a copy. `where` is the step, for messages.

        ConfigurationError: it is not of the environment's space. NonFiniteError: NaN or infinity.
        """
        try:
            fitting = _fitting(observation, self.form.observed)
        except ValueError:
            raise ConfigurationError(
                f"{where}: the environment returned an observation which is not of its "
                f"observation space {abridge(self.observed)}: "
                f"{misfit(observation, self.observed) or type(observation).__name__}; correct one "
                "of them"
            ) from None
        row: NDArray[Any] = fitting
        if self.observation is not self.observed:
            row = self.form.row(fitting)
        elif row.dtype != self.dtype:  # Discrete states of other integers
            row = row.astype(self.dtype)
        if row.dtype.kind == "f" and not np.isfinite(row).all():
            raise NonFiniteError(
                f"{where}: the environment returned an observation with NaN or infinity, "
                f"{misfit(observation, self.observed) or row!r}: fix or wrap the environment"
            )
        return row

    def taken(self, number: int) -> Any:
        """The action with a number as the environment takes it, a copy that it may change."""
        if self.actions is None:
            dtype = self.acted.dtype
            return number if dtype is None else dtype.type(number)
        return element(self.actions, number)

    def numbered(self, taken: Any) -> tuple[Spaces, NDArray[np.int64]]:
        """Numbers (n,) of recorded actions (n, *action shape), and the spaces with their set:
        continuous ones that are not all of it are the data's own, at most 256. ConfigurationError:
        another one is not of the set."""
        actions = np.arange(self.n_actions) if self.actions is None else self.actions
        given = np.asarray(taken)
        flat, rows = (each.reshape(len(each), -1) for each in (actions, given))
        if rows.shape[1] != flat.shape[1] or rows.dtype.kind not in "biuf":
            raise ConfigurationError(f"actions of shape {given.shape} are not of {self.acted}")
        apart, numbers = map(np.asarray, scipy.spatial.KDTree(flat).query(rows))
        if not apart.any():
            return self, numbers
        is_continuous = given.dtype.kind == actions.dtype.kind == "f"
        if not is_continuous or given.shape[1:] != actions.shape[1:]:
            raise ConfigurationError(
                f"the data has actions that are not of the set of {abridge(self.acted)}: "
                f"{given[apart.argmax()]}"
            )
        own, numbers = _recorded_set(rows.astype(np.float64))
        own = own.reshape(-1, *actions.shape[1:]).astype(actions.dtype)
        return replace(self, actions=own, n_actions=len(own)), numbers

    def listed(self, seen: Any) -> list[Any]:
        """Observations one by one, of a list, an array, or of Dict and Tuple spaces one for each
        part."""
        if isinstance(seen, list):
            return seen
        return list(iterate(batch_space(self.observed, 1), seen))


class StoredForm(NamedTuple):
    """The form that elements of a space of observations are stored in.

    Attributes:
        observed: the space.
        space: of the arrays: Discrete from 0, or a Box of vectors or of uint8 images.
        row: makes the array (*shape) of an element.
    """

    observed: gym.Space[Any]
    space: spaces.Discrete | spaces.Box
    row: Callable[[Any], NDArray[Any]]

    @classmethod
    def of(cls, space: gym.Space[Any]) -> StoredForm:
        """The form of a space, or UnsupportedSpaceError."""
        match space:
            case spaces.Discrete(n=n, start=start):
                states = space if start == 0 else spaces.Discrete(int(n))
                return cls(space, states, partial(_counted_from, int(start)))
            case spaces.Box(shape=(_,) | (_, _, 1 | 3 | 4), dtype=dtype) if 0 not in space.shape:
                if dtype in (_DTYPES if len(space.shape) == 1 else ("uint8",)):
                    return cls(space, space, partial(np.asarray, dtype=dtype))
        if (image := _image_of(space)) is not None:
            pixels = spaces.Box(0, 255, image.shape, np.uint8)
            return cls(space, pixels, partial(_as_image, image))
        space = _counted(space)
        leaves = list(_leaves(space))
        if not leaves or not all(map(_is_vector, leaves)):
            raise UnsupportedSpaceError(
                f"observation space {abridge(space)} is not supported: wrap the environment to "
                f"return numbers alone, or one image of at most {_MOST_CHANNELS} channels "
                "(gymnasium.wrappers.TransformObservation)"
            )
        flat = spaces.flatten_space(space)
        assert isinstance(flat, spaces.Box)
        dtype = np.dtype(flat.dtype)
        if dtype not in _DTYPES:  # a type that encoders take and that holds all numbers of it
            is_whole = dtype.kind in "bi" or (dtype.kind == "u" and dtype.itemsize < 8)
            other = np.float32 if dtype == np.float16 else np.float64
            dtype = np.dtype(np.int64 if is_whole else other)
        box = spaces.Box(flat.low.astype(dtype), flat.high.astype(dtype), dtype=dtype.type)
        return cls(space, box, partial(_flattened, space, dtype))

    def rows(self, batch: Any) -> NDArray[Any]:
        """Stored rows (n, *shape) of n elements: an array, or of Dict and Tuple one for each part,
        as vector environments return them."""
        rows = [self.row(element) for element in iterate(batch_space(self.observed, 1), batch)]
        return np.array(rows).reshape(-1, *(self.space.shape or ()))

    def batch(self, observations: Any) -> tuple[NDArray[Any], bool]:
        """Stored rows (n, *shape) of one element of the space or of several, and whether it was
        one."""
        is_one = _is_single(self.observed, observations)
        return (self.row(observations)[None] if is_one else self.rows(observations)), is_one

    def elements(self, rows: NDArray[Any]) -> Any:
        """Stored rows (n, *shape) as functions of the user get them: of Dict and Tuple spaces an
        array for each part, as vector environments return them; of others a copy
        of the rows. Whole numbers are int64."""
        is_nested = isinstance(self.observed, spaces.Dict | spaces.Tuple)
        return _unflattened(self.observed, rows) if is_nested else signed(rows)


def _leaves(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """The spaces that a space is made of."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        yield from itertools.chain(*(_leaves(space[key]) for key in _keys(space)))
    else:
        yield space


def _counted(space: gym.Space[Any], *, is_part: bool = False) -> gym.Space[Any]:
    """A space whose parts of few whole numbers are MultiDiscrete, another spelling of the same."""
    match space:
        case spaces.Dict():
            return spaces.Dict({name: _counted(space[name], is_part=True) for name in space})
        case spaces.Tuple():
            return spaces.Tuple([_counted(part, is_part=True) for part in space])
        case spaces.Box(low=low, high=high) if is_part and np.dtype(space.dtype).kind in "iu":
            sizes = high.astype(np.float64) - low + 1.0
            if ((sizes > 1) & (sizes <= _MOST_VALUES)).all():
                return spaces.MultiDiscrete(sizes.astype(np.int64), start=low.astype(np.int64))
    return space


def _is_vector(space: gym.Space[Any]) -> bool:
    """True of numbers that are no image."""
    if not isinstance(space, spaces.Box):
        return isinstance(space, spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete)
    # Bytes are images by their sides, whatever the number of their channels.
    are_bytes = space.dtype == np.uint8 and bool((space.high == 255).all())
    is_image = are_bytes and space.shape[2:] and sorted(space.shape)[-2] >= _SIDE_OF_IMAGES
    is_numeric = np.dtype(space.dtype).kind in "biuf" and 0 not in space.shape
    return is_numeric and not is_image and _image_of(space) is None


class _Image(NamedTuple):
    """Form of an array that is an image.

    Stored in `shape` (height, width, channels), with the axes of the array in the order `axes`;
    its numbers are from `low` to `high`.
    """

    shape: tuple[int, int, int]
    axes: tuple[int, ...]
    low: float
    high: float


def _image_of(space: gym.Space[Any]) -> _Image | None:
    """Form of a space of images that are stored in another one; None of any other space."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in _LAYOUTS:
        return None
    low, high = float(space.low.min()), float(space.high.max())
    is_flat = np.all(space.low == low) and np.all(space.high == high)
    if not is_flat or max(abs(low), abs(high)) > _LARGEST_FLOAT:
        return None
    is_bytes = space.dtype == np.uint8 and (low, high) == (0.0, 255.0)
    if not is_bytes and not (np.dtype(space.dtype).kind == "f" and high in (1.0, 255.0)):
        return None
    for axes in _LAYOUTS[len(space.shape)]:
        height, width, *rest = (space.shape[axis] for axis in axes)
        channels, side = math.prod(rest), min(height, width)
        are_few = channels in _COLOURS or channels <= min(_MOST_CHANNELS, side // 4)
        if side >= _SMALLEST and are_few and (len(rest) < 2 or rest[1] in _COLOURS):
            return _Image((height, width, channels), axes, low, high)
    return None


def _fitting(observation: Any, space: gym.Space[Any]) -> Any:
    """A copy of an observation, of the shape and dtype of its space, or of each of its parts.

    Environments compute in float64 where their space is float32, and return lists: such digits may
    go, but whole numbers must be what they were.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or not set(space.spaces) <= set(observation):
            raise ValueError
        return {name: _fitting(observation[name], part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, Sequence) or len(observation) != len(space.spaces):
            raise ValueError
        return tuple(map(_fitting, observation, space.spaces))
    returned = row = np.array(observation)  # a copy: some environments write into one array
    dtype = np.dtype(np.int64) if space.dtype is None else np.dtype(space.dtype)
    if row.dtype.kind in "biuf":
        with np.errstate(all="ignore"):  # an infinity is named by whoever reads it
            row = row.astype(dtype, copy=False)
    fits = row.shape == space.shape and row.dtype == dtype
    fits = fits and (row.dtype.kind == "f" or np.array_equal(row, returned))
    if not fits or (not isinstance(space, spaces.Box) and misfit(row, space)):
        raise ValueError
    return row


def _is_single(space: gym.Space[Any], observation: Any) -> bool:
    """True of one element of a space, in contrast to a batch of them."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        first = _keys(space)[0]
        return _is_single(space[first], observation[first])
    return np.ndim(observation) == len(space.shape or ())


def _counted_from(start: int, element: Any) -> NDArray[Any]:
    return np.asarray(np.int64(element) - start)


def _flattened(space: gym.Space[Any], dtype: np.dtype[Any], element: Any) -> NDArray[Any]:
    return np.asarray(spaces.flatten(space, element)).astype(dtype)


def _unflattened(space: gym.Space[Any], flat: NDArray[Any]) -> Any:
    """The inverse of :func:`_flattened`, of rows (n, d)."""

    def split(widths: Sequence[int]) -> list[NDArray[Any]]:
        return np.split(flat, np.cumsum(widths)[:-1], axis=1)

    match space:
        case spaces.Dict() | spaces.Tuple():
            keys = _keys(space)
            columns = split([spaces.flatdim(space[key]) for key in keys])
            parts = {k: _unflattened(space[k], x) for k, x in zip(keys, columns, strict=True)}
            return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
        case spaces.Discrete(start=start):
            return flat.argmax(axis=1) + start
        case spaces.MultiDiscrete(nvec=nvec, start=start):
            numbers = [one.argmax(axis=1) for one in split(nvec.ravel().tolist())]
            return np.stack(numbers, axis=1).reshape(-1, *nvec.shape) + start
    return signed(flat.reshape(-1, *(space.shape or ())).astype(space.dtype))


def _keys(space: Any) -> list[Any]:
    """Keys of the parts of a Dict or Tuple space."""
    return list(space) if isinstance(space, spaces.Dict) else list(range(len(space)))


def misfit(observation: Any, space: gym.Space[Any], name: str = "observation") -> str:
    """The first number of an observation that is not of its space, for messages; empty: each is."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys = _keys(space)
        try:
            parts = [(observation[key], space[key], f"{name}[{key!r}]") for key in keys]
        except (KeyError, IndexError, TypeError):
            return f"{name} is not made of {', '.join(map(str, keys))}"
        return next(filter(None, (misfit(*part) for part in parts)), "")
    low: Any = 0
    high: Any = 1
    match space:
        case spaces.Discrete(start=low, n=n):
            high = low + n - 1
        case spaces.MultiDiscrete(start=low, nvec=nvec):
            high = low + nvec - 1
        case spaces.Box(low=low, high=high):
            pass
    row = np.asarray(observation)
    if row.shape != space.shape or row.dtype.kind not in "biuf":
        return f"{name} is {row.dtype} of shape {row.shape}, not {space.dtype} of {space.shape}"
    fits = (row >= low) & (row <= high) & np.isfinite(row)
    if np.dtype(space.dtype).kind != "f":
        fits &= row == np.round(row)
    if fits.all():
        return ""
    at = np.unravel_index(np.argmin(fits), row.shape)
    place = f"[{', '.join(map(str, at))}]" if at else ""
    bounds = (np.broadcast_to(bound, row.shape)[at] for bound in (low, high))
    return f"{name}{place} is {row[at]!s}, outside {' to '.join(map(str, bounds))}"


def _as_image(image: _Image, element: Any) -> NDArray[Any]:
    """An image (height, width, channels) as bytes."""
    turned = np.asarray(element).transpose(image.axes).reshape(image.shape)
    if turned.dtype == np.uint8:
        return np.ascontiguousarray(turned)
    share = (turned.astype(np.float64) - image.low) / max(image.high - image.low, 1e-300)
    return np.round(255.0 * np.clip(share, 0.0, 1.0)).astype(np.uint8)


def description_of(space: gym.Space[Any]) -> dict[str, Any]:
    """Description in JSON of a space's stored form, for :func:`described_space`."""
    match space:
        case spaces.Dict():
            return {"dict": [[name, description_of(part)] for name, part in space.spaces.items()]}
        case spaces.Tuple():
            return {"tuple": [description_of(part) for part in space.spaces]}
        case spaces.Discrete():
            return {"discrete": [int(space.n), int(space.start)]}
        case spaces.MultiBinary():
            return {"multibinary": list(space.shape)}
        case spaces.MultiDiscrete():
            return {"multidiscrete": [space.nvec.tolist(), space.start.tolist()]}
    assert isinstance(space, spaces.Box)
    # Bounds are what tells images from boards, and all of one image are equal.
    image = _image_of(space)
    bounds = [0, 0] if image is None else [image.low, image.high]
    return {"box": [list(space.shape), str(space.dtype), *bounds]}


def described_space(description: Mapping[str, Any]) -> gym.Space[Any]:
    """The space of a description; ValueError, TypeError, KeyError or AssertionError: it is none."""
    ((kind, content),) = description.items()
    match kind:
        case "dict":
            return spaces.Dict({str(name): described_space(part) for name, part in content})
        case "tuple":
            return spaces.Tuple([described_space(part) for part in content])
        case "discrete":
            return spaces.Discrete(content[0], start=content[1])
        case "multibinary":
            return spaces.MultiBinary(content)
        case "multidiscrete":
            return spaces.MultiDiscrete(np.array(content[0]), start=np.array(content[1]))
        case "box":
            shape, dtype, low, high = content
            if np.dtype(dtype).kind in "biuf":
                return spaces.Box(low, high, shape, np.dtype(dtype).type)
    raise ValueError(f"no space is described by {shorten(description)}")


def spaces_of_arrays(observations: Any, actions: Any) -> Any:
    """Spaces of arrays of observations and actions, as far as these show them."""

    def counted(array: NDArray[Any]) -> spaces.Space[Any]:
        if array.ndim == 1 and array.dtype.kind in "iu" and array.min(initial=0) >= 0:
            return spaces.Discrete(int(array.max(initial=0)) + 1)
        if array.dtype == np.uint8:
            return spaces.Box(0, 255, array.shape[1:], np.uint8)
        return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)

    seen, taken = (counted(np.asarray(one)) for one in (observations, actions))
    if isinstance(taken, spaces.Box):  # which actions are bounded by
        rows = np.asarray(actions)
        taken = spaces.Box(rows.min(axis=0), rows.max(axis=0), dtype=rows.dtype.type)
    return SimpleNamespace(observation_space=seen, action_space=taken)


def has_metric(table: NDArray[Any]) -> bool:
    """True if distances between observations (N, *shape) say how alike they are.

    True for vectors of floats, except for vectors of zeros and ones, which name states.
    """
    if table.ndim != 2 or table.dtype.kind != "f":
        return False
    return not bool(((table == 0) | (table == 1)).all())


def are_whole(table: NDArray[Any]) -> bool:
    """True if all numbers of observations (N, d) are whole."""
    return bool((table == np.floor(table)).all())
