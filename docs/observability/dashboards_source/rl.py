"""The dashboard ``rl``: a reinforcement-learning run, and the environments that it plays in."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import Board, Panel, Query, Row
from .choices import RANKS_OF_THE_RUN as SCOPE
from .choices import run_and_rank
from .gym import ENVIRONMENTS
from .promql import RANGE, aggregate, share
from .queries import over_ranks, percentiles

# A step of reinforcement learning takes minutes: longer than the windows that fit the metrics' interval.
EVERY = "1m"
GENERATION, ROLLOUT = semconv.RL_GENERATION_DURATION_MS, semconv.RL_ROLLOUT_DURATION_MS


def total(metric: str) -> str:
    """Return what a histogram of durations recorded a second, over the time shown."""
    return aggregate("sum", SCOPE.over("rate", metric, part="sum", window=RANGE))


POLICY = Row(
    "Does it learn?",
    "Reward, and what says that the policy goes astray.",
    (
        Panel(
            "Reward",
            "timeseries",
            "none",
            "Mean reward of a step: mean, smallest and largest over the ranks. It should rise. A sudden rise "
            "together with ever longer or ever shorter responses is often a hole in the reward.",
            "Read some responses of the step of the jump.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_REWARD_MEAN, "avg", "min", "max"),
        ),
        Panel(
            "KL divergence",
            "timeseries",
            "none",
            "From the reference policy. A slow rise is learning; an explosion is a policy that leaves what it was "
            "trained on.",
            "Lower the learning rate, or weigh the divergence more.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_KL_DIVERGENCE, "avg", "max"),
        ),
        Panel(
            "Losses",
            "timeseries",
            "none",
            "Of the policy and of the value function, mean over the ranks. That of the policy lies around zero and "
            "says little; that of the value function should fall.",
            "A value loss that rises: the rewards have changed their scale.",
            "metrics",
            (
                Query(aggregate("avg", SCOPE.latest(semconv.RL_POLICY_LOSS)), "policy"),
                Query(aggregate("avg", SCOPE.latest(semconv.RL_VALUE_LOSS)), "value"),
            ),
            width=8,
        ),
        Panel(
            "Entropy",
            "timeseries",
            "none",
            "Of the policy. It falls slowly; near zero the policy says the same again and again and explores no more.",
            "Raise the temperature of the rollouts, or the weight of the entropy.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_ENTROPY, "avg", "min"),
            width=8,
        ),
        Panel(
            "Norm of the gradient",
            "timeseries",
            "none",
            "Mean and largest over the ranks, on a logarithmic scale. Peaks before the divergence explodes.",
            "See the clipping, and the rewards of that step.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_GRAD_NORM, "avg", "max"),
            width=4,
            logarithmic=True,
        ),
        Panel(
            "Learning rate",
            "timeseries",
            "sci",
            "As the schedule has it.",
            "A warm-up after a restart: the state of the scheduler was not loaded.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_LEARNING_RATE, "max"),
            width=4,
        ),
    ),
)

ROLLOUTS = Row(
    "Where does the time go?",
    "Length of responses, generation against rollout, throughput.",
    (
        Panel(
            "Length of a response",
            "timeseries",
            "si: tok",
            "Mean length over the ranks. At the limit of the generation responses are cut off, and the reward falls.",
            "Raise the limit, or reward shorter answers.",
            "metrics",
            over_ranks(SCOPE, semconv.RL_RESPONSE_LENGTH_MEAN, "avg", "max"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Generation and rollout",
            "timeseries",
            "ms",
            "Mean duration of generating the responses of a step, and of a rollout. The difference is environments, "
            "tools and verification.",
            "Generation dominates: the inference engine. The rest dominates: the environments, below.",
            "integrations/ray",
            (
                Query(SCOPE.mean(GENERATION), "generation"),
                Query(SCOPE.mean(ROLLOUT), "rollout"),
            ),
            width=8,
            minimum=0,
            every=EVERY,
        ),
        Panel(
            "Slowest rollouts",
            "timeseries",
            "ms",
            "Percentiles of rollouts, from buckets that double. The step waits for the last rollout: a p99 far over "
            "the median is time in which GPUs wait.",
            "Bound the turns or the tokens of a rollout; let generation of the next step begin before.",
            "integrations/ray",
            percentiles(SCOPE, ROLLOUT),
            width=8,
            minimum=0,
            every=EVERY,
        ),
        Panel(
            "Share of generation",
            "stat",
            "percentunit",
            "Time in generation by time in rollouts, in the time shown. Near 100%: environments cost nothing.",
            "See which of the two to make faster.",
            "integrations/ray",
            (Query(share(*(total(metric) for metric in (GENERATION, ROLLOUT))), "generation"),),
            width=8,
        ),
        Panel(
            "Tokens a second",
            "timeseries",
            "si: tok/s",
            "Sum over the ranks. A run that records the rate of the whole run in each rank is shown too large by the "
            "number of ranks.",
            "When it falls, see generation and rollouts.",
            "slow-run",
            over_ranks(SCOPE, semconv.RL_THROUGHPUT_TOKENS_PER_SEC, "sum"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Ranks with the longest generation",
            "bars",
            "ms",
            "Mean duration of generation in the time shown, the ten longest ranks. One that stands out has the longest "
            "prompts, or a slow GPU.",
            "Click for its traces.",
            "slow-run",
            (
                Query(
                    aggregate(
                        "topk",
                        SCOPE.mean(GENERATION, semconv.NV_DL_RANK, semconv.HOST_NAME, window=RANGE),
                        parameter=10,
                    ),
                    "{{nv_dl_rank}} {{host_name}}",
                ),
            ),
            width=8,
            traces=True,
        ),
    ),
)

BOARD = Board(
    "nemo-lens-rl",
    "NeMo Lens: reinforcement learning",
    "One reinforcement-learning run: reward and policy, where the time of a step goes, and the environments.",
    run_and_rank(semconv.RL_REWARD_MEAN),
    (POLICY, ROLLOUTS, ENVIRONMENTS),
)
