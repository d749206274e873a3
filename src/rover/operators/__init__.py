"""Estimate: kernels, the transition operator, its resolvent and the occupancy objective."""

from rover.operators.kernels import Dirac as Dirac
from rover.operators.kernels import Gaussian as Gaussian
from rover.operators.kernels import Interpolation as Interpolation
from rover.operators.kernels import Kernel as Kernel
from rover.operators.kernels import Linear as Linear
from rover.operators.kernels import make_kernel as make_kernel
from rover.operators.mirror_descent import MirrorDescentResult as MirrorDescentResult
from rover.operators.mirror_descent import Objective as Objective
from rover.operators.mirror_descent import Occupancy as Occupancy
from rover.operators.mirror_descent import SparseOperator as SparseOperator
from rover.operators.mirror_descent import TransitionOperator as TransitionOperator
from rover.operators.mirror_descent import mirror_descend as mirror_descend
from rover.operators.mirror_descent import solve_occupancy as solve_occupancy
from rover.operators.support import Support as Support
from rover.operators.support import exact_support as exact_support
from rover.operators.support import nystrom_support as nystrom_support
from rover.operators.transition import DenseOperator as DenseOperator
from rover.operators.transition import TransitionModel as TransitionModel
from rover.operators.transition import fit_transition_model as fit_transition_model
