"""Pictures as lists of numbers: blocks that are the cells a world is drawn with."""

import numpy as np
import pytest

from rover.contexts.codes import as_numbers, block_side


def drawn(cells: np.ndarray, side: int) -> np.ndarray:
    """Pictures (n, h·side, w·side, 3) of cells (n, h, w): a shade with a square of another."""
    tile = np.full((side, side, 3), 30, np.uint8)
    tile[side // 4 : side // 2 + 1, side // 4 : -1] = (10, 80, 50)
    n, height, width = cells.shape
    tiles = tile[None, None, :, None] * (1 + cells[:, :, None, :, None, None])
    return tiles.reshape(n, height * side, width * side, 3).astype(np.uint8)


@pytest.mark.parametrize(("side", "n_cells"), [(8, 7), (12, 7), (8, 9), (7, 9)])
def test_blocks_are_the_cells_that_pictures_are_drawn_with(side, n_cells):
    cells = np.random.default_rng(0).integers(3, size=(300, n_cells, n_cells))
    pictures = drawn(cells, side)
    assert block_side(pictures) == side
    assert block_side(pictures[..., 0]) == side
    assert block_side(np.concatenate([pictures, pictures[::-1]], axis=3)) == side
    numbers = as_numbers(pictures, side)
    assert numbers.shape == (300, n_cells**2 * 3)
    # One value for each kind of cell, and another one for each other kind.
    first = numbers.reshape(300, n_cells, n_cells, 3)[..., 0]
    assert len(np.unique(np.stack([first, cells]).reshape(2, -1), axis=1).T) == 3


def test_means_are_those_of_the_pixels_and_the_last_blocks_may_be_smaller():
    pictures = np.random.default_rng(1).integers(256, size=(3, 33, 40), dtype=np.uint8)
    numbers = as_numbers(pictures, 8).reshape(3, 5, 5)
    assert numbers[1, 2, 3] == np.floor(pictures[1, 16:24, 24:32].mean() + 0.5)
    assert numbers[2, 4, 1] == np.floor(pictures[2, 32:, 8:16].mean() + 0.5)
