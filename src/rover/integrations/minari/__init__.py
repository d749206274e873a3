"""Transitions as Minari data sets, for offline learning outside this package, and back.

A replay buffer is written without loss: observations in their exact dtype, images not as JPEG, one
Minari episode for each of its episodes. What Minari has no word for, that the last episode was
unfinished or that another one had just begun, lies in the data set's metadata, so that a buffer
comes back as it was, to the bit. https://minari.farama.org
"""

from rover.integrations.minari.export import export_minari
from rover.integrations.minari.load import load_minari, read_certificate

__all__ = ["export_minari", "load_minari", "read_certificate"]
