"""Intrinsic rewards: what the reward-free peers maximise; they know no learner."""

from rover.intrinsic.apt import APT, APTConfig
from rover.intrinsic.cic import CIC, CICConfig, TransitionEmbedding, skill_information
from rover.intrinsic.density import (
    KernelDensity,
    PrincipalComponents,
    fit_density,
    fit_principal_components,
)
from rover.intrinsic.icm import IntrinsicCuriosity
from rover.intrinsic.knn import (
    knn_distances,
    knn_distances_to,
    particle_entropy,
    particle_reward,
)
from rover.intrinsic.making import (
    INTRINSIC_CONFIGS,
    IntrinsicConfig,
    make_intrinsic,
    make_intrinsic_config,
)
from rover.intrinsic.maxent import MaxEnt, MaxEntConfig
from rover.intrinsic.merging import MergedTransitions, merge_transitions
from rover.intrinsic.observation import ObservationSpec
from rover.intrinsic.protocol import IntrinsicReward
from rover.intrinsic.rnd import RND, RNDConfig
from rover.intrinsic.smm import SMM, SMMConfig
from rover.intrinsic.vae import ConditionalVAE

__all__ = [
    "APT",
    "CIC",
    "INTRINSIC_CONFIGS",
    "RND",
    "SMM",
    "APTConfig",
    "CICConfig",
    "ConditionalVAE",
    "IntrinsicConfig",
    "IntrinsicCuriosity",
    "IntrinsicReward",
    "KernelDensity",
    "MaxEnt",
    "MaxEntConfig",
    "MergedTransitions",
    "ObservationSpec",
    "PrincipalComponents",
    "RNDConfig",
    "SMMConfig",
    "TransitionEmbedding",
    "fit_density",
    "fit_principal_components",
    "knn_distances",
    "knn_distances_to",
    "make_intrinsic",
    "make_intrinsic_config",
    "merge_transitions",
    "particle_entropy",
    "particle_reward",
    "skill_information",
]
