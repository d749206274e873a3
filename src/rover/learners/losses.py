"""Targets and losses of a softmax actor and twin critics over finite actions, as pure functions.

Deterministic policy gradients (Lillicrap et al., 2016) carried over to finite actions: every
expectation over the policy is a sum over actions, so nothing is sampled and nothing is relaxed.
With the policy's entropy in values and objective this is soft actor-critic (Haarnoja et
al., 2018; Christodoulou, 2019). The least of two critics counters overestimation (Fujimoto et al.,
2018). Without an actor, critics are kept low where there are no data by conservative Q-learning
(Kumar et al., 2020).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def critic_targets(
    returns: Tensor,
    discounts: Tensor,
    next_log_probs: Tensor,
    next_q: Tensor,
    *,
    temperature: float = 0.0,
) -> Tensor:
    """y = R + γ^j Σ_a π(a|x') (min(Q1', Q2')(x', a) − α log π(a|x')), (n,), without gradient.

    With α > 0 the entropy enters through the value that is bootstrapped, and not on the j − 1 steps
    between: R is of rewards alone. Of a policy that is certain of the greatest value of critics
    that learn, these are the targets of double Q-learning (van Hasselt et al., 2016).

    Args:
        returns: (n,) n-step returns R; `discounts` (n,) γ^j, zero after termination.
        next_log_probs: (n, A) log π(·|x'); `next_q` (2, n, A) target critics at x'.
        temperature: α ≥ 0; 0: DDPG.
    """
    soft_q = next_q.amin(dim=0)
    # CQL's greedy policy has log π = −∞, and 0 · −∞ is NaN: no entropy unless it is asked for.
    if temperature > 0.0:
        soft_q = soft_q - temperature * next_log_probs
    return (returns + discounts * (next_log_probs.exp() * soft_q).sum(dim=1)).detach()


def critic_loss(q: Tensor, targets: Tensor) -> Tensor:
    """Mean over transitions of (q − y)², summed over both critics: `q` (2, n), `targets` (n,)."""
    # torch takes the mean over both critics too: twice that is their sum.
    return 2.0 * F.mse_loss(q, targets.expand_as(q))


def conservative_loss(q: Tensor, taken: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i log Σ_a exp Q(x_i, a) less the mean of Q(x, a), summed over both critics: of `q` (2,
    r, A), whose rows stand for shares `weights` (r,) of the batch, and values `taken` (2, n) of the
    actions in the data."""
    return (torch.logsumexp(q, dim=2) @ weights - taken.mean(dim=1)).sum()


def policy_entropy(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i H(π(·|x_i)) in nats, of `log_probs` (r, A) and `weights` (r,)."""
    return -((log_probs.exp() * log_probs).sum(dim=1) @ weights)


def actor_loss(
    log_probs: Tensor, q: Tensor, weights: Tensor, *, entropy_coefficient: float = 0.0
) -> Tensor:
    """−Σ_i w_i (Σ_a π(a|x_i) min(Q1, Q2)(x_i, a) + c H(π(·|x_i))), of log π (r, A), both critics
    `q` (2, r, A) without gradient, shares w (r,) of the batch, and the entropy coefficient c."""
    values = (log_probs.exp() * q.detach().amin(dim=0)).sum(dim=1)
    loss = -(values @ weights)
    if entropy_coefficient > 0.0:
        loss = loss - entropy_coefficient * policy_entropy(log_probs, weights)
    return loss
