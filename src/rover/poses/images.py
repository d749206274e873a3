"""Isometries of the plane, and of a map onto itself.

A closed surface is drawn on the plane many times: each isometry of the map onto itself leads to
another image of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray

from rover.arrays import IntArray
from rover.poses.laws import _AREA, _CENTRE, _MISS, _NOTHING, _SHIFTS, _SIDE, _TIMES, _TURNS

_NEARBY: IntArray = (np.indices((5, 5)).reshape(2, -1).T - 2) @ _SHIFTS  # cells within two of one
_PEAKS = 16  # of a correlation that are tested; known ones are among them
_CORNERS, _OVERLAP = 16, 0.1  # corners, and share of the map, that an isometry has to foretell
_GLIDES = 0, 4, 5, 6, 7  # linear parts of those without a fixed point


def _placed(at: Any, poses: Any) -> Any:
    """Poses as seen by who takes the pose `at` for the first one; one or many of both."""
    (k, cell), (turned, others) = divmod(at, _AREA), divmod(poses, _AREA)
    rows, columns = others // _SIDE - _SIDE // 2, others % _SIDE - _SIDE // 2
    a, b, c, d = _TURNS.reshape(8, 4).T[:, k]
    moved = (a * rows + b * columns) * _SIDE + c * rows + d * columns
    return _TIMES[k, turned] * _AREA + cell + moved


def _undone(pose: int) -> int:
    """The inverse of a pose as an isometry."""
    turned = int(_TIMES[pose // _AREA].argmin()) * _AREA
    return int(turned + 2 * _CENTRE - _placed(turned + _CENTRE, pose) % _AREA)


def _far(poses: Any) -> Any:
    """Steps along rows and columns from where the map begins."""
    row, column = np.divmod(poses % _AREA, _SIDE)
    return abs(row - _SIDE // 2) + abs(column - _SIDE // 2)


def _corners(codes: NDArray[np.uint8], unknown: int) -> IntArray:
    """Numbers (n,) of the cells (h, w) at which two by two begin that are known and vary both ways:
    walls are alike all along, corners tell places."""
    a, b, c, d = codes[:-1, :-1], codes[:-1, 1:], codes[1:, :-1], codes[1:, 1:]
    found = ~(((a == b) & (c == d)) | ((a == c) & (b == d)))
    row, column = np.nonzero(found & (np.stack([a, b, c, d]) != unknown).all(axis=0))
    return np.asarray(row * codes.shape[1] + column, np.int64)


def _isometries(codes: NDArray[np.uint8], cells: IntArray, common: int) -> list[int]:
    """Isometries without a fixed point, as poses, that nothing in a map contradicts and enough
    speaks for: of `cells` (n,), one each of those that are known to be the same.

    They are peaks of a correlation. Rare symbols that meet speak for an isometry, and rare ones
    that meet `common`, the most frequent, against it.
    """
    everywhere = np.flatnonzero(codes != _NOTHING)
    begin = np.intersect1d(_corners(codes.reshape(_SIDE, _SIDE), _NOTHING), cells)
    if len(begin) < _CORNERS:
        return []
    blocks = begin + np.array([[0], [1], [_SIDE], [_SIDE + 1]])
    places, points = (np.stack(np.divmod(some, _SIDE), axis=1) for some in (everywhere, cells))
    size = scipy.fft.next_fast_len(2 * int(np.ptp(places, axis=0).max()) + 2, real=True)

    def spectra(points: IntArray, symbols: NDArray[np.uint8]) -> NDArray[np.complex64]:
        grids = np.zeros((2, size, size), np.float32)
        grids[(symbols != common).astype(np.int64), *(points - points.min(axis=0)).T] = 1.0
        return np.asarray(scipy.fft.rfft2(grids, overwrite_x=True))

    frequent, rare = spectra(places, codes[everywhere])
    surprise, found = -math.log((codes[cells] != common).mean()), list[int]()
    for k in _GLIDES:
        turned = points @ _TURNS[k].T
        others, same = spectra(turned, codes[cells]).conj()
        spectrum = surprise * rare * same + _MISS * (rare * others + frequent * same)
        heights = scipy.fft.irfft2(spectrum, (size, size), overwrite_x=True).ravel()
        peaks = np.argpartition(heights, -_PEAKS)[-_PEAKS:]
        shifts = (np.stack(np.divmod(peaks, size), axis=1) + size // 2) % size - size // 2
        shifts += _TURNS[k] @ [_SIDE // 2, _SIDE // 2] + places.min(axis=0) - turned.min(axis=0)
        for image in (k * _AREA + shifts @ _SHIFTS).tolist():
            # Done twice, an isometry without a fixed point is not the identity.
            if _placed(image, image) == _CENTRE or _far(image) > _SIDE // 4:
                continue
            known = (there := codes[_placed(image, cells) % _AREA]) != _NOTHING
            is_foretold = (codes[_placed(image, blocks) % _AREA] != _NOTHING).all(axis=0)
            is_enough = known.mean() >= _OVERLAP and is_foretold.sum() >= _CORNERS
            if is_enough and not (known & (there != codes[cells])).any():
                found.append(image)
    return sorted(found, key=_far)
