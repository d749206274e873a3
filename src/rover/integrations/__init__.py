"""Bridges to other libraries, each an extra: see the module of its name.

``RecordCoverage`` needs none of them: it writes coverage figures into the ``info`` of whatever
learner steps its environment.
"""

from rover.integrations.coverage import RecordCoverage

__all__ = ["RecordCoverage"]
