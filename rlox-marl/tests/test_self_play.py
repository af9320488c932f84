"""Self-play: pools of frozen policies, ratings, rows to learn from, checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from games import HigherNumber, PenaltyGame
from rlox.errors import ConfigError
from rlox_marl.ippo import IPPO
from rlox_marl.matches import MatchResult, play_match
from rlox_marl.self_play import OpponentPool, expected_score
from rlox_testing.probes import first_difference
from torch import nn

GAME = {
    "n_envs": 8, "n_steps": 16, "batch_size": 64, "n_epochs": 2, "hidden": 8,
    "learning_rate": 1e-2, "opponents": "even", "pool_interval": 256, "pool_size": 3,
}  # fmt: skip
TIC_TAC_TOE = "classic/tictactoe-v3"


class Constant(nn.Module):
    """A policy with a constant action."""

    def __init__(self, action=0):
        super().__init__()
        self.action = nn.Parameter(torch.tensor(float(action)))
        self.generator = None

    def get_action_and_logprob(self, obs, action_masks=None):
        actions = self.action.long().expand(len(obs["obs"]))
        return actions, torch.zeros(len(actions))


def make_pool(n_envs=4, drawn="even", share=1.0, size=3, seed=0):
    """Return a pool without members."""
    return OpponentPool(
        Constant(), n_envs, size=size, drawn=drawn, share=share, interval=100,
        rng=np.random.default_rng(seed), generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def test_ratings_follow_the_formula() -> None:
    """400 points are odds of 10 to 1; a game moves only the learner's rating, by K (S - E)."""
    assert expected_score(1_000.0, 1_400.0) == pytest.approx(1 / 11)
    pool = make_pool(n_envs=3)
    pool.freeze(Constant(), 0)
    pool.begin(np.ones(3, np.bool_))
    learner = pool.learning
    assert (learner.sum(1) == 1).all()
    # a win, a draw and a loss of the learner, in this order
    paid = np.where(learner, 1.0, -1.0) * np.array([[1.0], [0.0], [-1.0]])
    rating = 1_000.0
    for score in (1.0, 0.5, 0.0):
        rating += 16 * (score - 1 / (1 + 10 ** ((1_000 - rating) / 400)))
    pool.add(paid, np.ones(3, np.bool_))
    assert pool.rating == pytest.approx(rating)
    assert pool.games == 3
    assert pool.members[0][0] == 1_000.0


@pytest.mark.parametrize("drawn", ["even", "rating"])
def test_opponents_are_drawn_as_asked(drawn) -> None:
    """Evenly, or by their chance to win; sides are drawn evenly."""
    pool = make_pool(n_envs=20_000, drawn=drawn, share=0.75)
    for step, rating in ((0, 1_000.0), (100, 1_400.0)):
        pool.rating = rating
        pool.freeze(Constant(), step)
    pool.begin(np.ones(20_000, np.bool_))
    counts = np.bincount(pool.state_dict()["member"] + 1) / 20_000
    first = 0.5 if drawn == "even" else (1 / 11) / (1 / 11 + 0.5)
    np.testing.assert_allclose(counts, [0.25, 0.75 * first, 0.75 * (1 - first)], atol=0.02)
    alone = pool.learning[pool.state_dict()["member"] >= 0]
    assert alone[:, 0].mean() == pytest.approx(0.5, abs=0.02)


def test_members_act_on_their_side_only() -> None:
    """The learner's actions stay; a full pool keeps its first member."""
    pool = make_pool(n_envs=6, size=2)
    for step, action in ((0, 1), (50, 9), (100, 2), (200, 3)):
        pool.freeze(Constant(action), step)  # the second one is too early
    assert [int(member.action) for _, member in pool.members] == [1, 3]
    pool.begin(np.ones(6, np.bool_))
    acted = pool.act({"obs": torch.zeros(12, 1)}, None, np.full(12, 7)).reshape(6, 2)
    assert (acted[pool.learning] == 7).all()
    assert set(acted[~pool.learning].tolist()) == {1, 3}


def test_the_rating_rises_where_there_is_something_to_learn() -> None:
    """In the higher-number game, the learner outgrows its earlier policies."""
    with IPPO(HigherNumber, seed=0, **GAME) as algorithm:
        metrics = algorithm.train(4_096)
        assert metrics["elo"] > 1_100.0
        assert metrics["pool_policies"] == 3.0
        ratings = [rating for rating, _ in algorithm.collector.pool.members]
        assert ratings == sorted(ratings)
        shown = algorithm.collector.env.reset_all(0)
        assert (algorithm.predict_team(shown)["player"] == 3).all()


def test_steps_of_members_are_not_learnt_from() -> None:
    """With every game against the pool, a batch has one row per game of a single step."""
    with IPPO(HigherNumber, seed=0, **GAME, pool_share=1.0) as algorithm:
        algorithm.train(128)  # the first games begin before the pool has a member
        (batch,) = algorithm.collector.collect(algorithm.policies, 16).values()
        assert len(batch.returns) == 8 * 16
        ((unroll, active),) = algorithm.collector.unroll(algorithm.policies, 16).values()
        assert (active.reshape(16, 8, 2).sum(2) == 1).all()
        assert unroll.rewards.shape == (16, 16)


def test_a_pool_is_resumed(tmp_path) -> None:
    """Members, ratings and later draws equal those of an uninterrupted run."""
    options = {**GAME, "n_envs": 2, "n_steps": 32, "pool_interval": 64, "opponents": "rating"}
    with IPPO(TIC_TAC_TOE, seed=1, **options) as straight:
        straight.train(256)
        straight.save(tmp_path / "a.rlox")
        saved = straight.collector.pool.state_dict()
        assert saved["games"] > 0
        assert len(saved["ratings"]) == 3
    ends = []
    for _ in range(2):
        with IPPO.from_checkpoint(tmp_path / "a.rlox") as resumed:
            pool = resumed.collector.pool
            found = pool.state_dict()
            for key in ("rating", "games", "next", "ratings", "members"):
                assert first_difference({key: found[key]}, {key: saved[key]}) is None
            resumed.train(64)
            ends.append((pool.state_dict(), resumed.state_dict()["policies"]))
    assert first_difference(*ends) is None


def test_a_pool_that_is_resumed_with_a_smaller_size_shrinks() -> None:
    """The next frozen policy shrinks it to the first and the youngest member; games continue."""
    large, small = make_pool(size=6), make_pool(size=3)
    for k in range(6):
        large.rating = float(k)
        large.freeze(Constant(k), 100 * k)
    large._member[:] = [0, 2, 5, -1]
    small.load_state_dict(large.state_dict(), keep_games=True)
    assert len(small.members) == 6
    small.rating = 6.0
    small.freeze(Constant(6), 600)
    assert [rating for rating, _ in small.members] == [0.0, 5.0, 6.0]
    assert small._member.tolist() == [0, 1, 1, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: IPPO("mpe2/simple_spread_v3", opponents="even"),
            "need a game of two agents.*agent_2",
        ),
        (
            lambda: IPPO(PenaltyGame, opponents="even", share_parameters="agent"),
            "got 2 policies for row, column",
        ),
        (lambda: IPPO("CartPole-v1", opponents="even"), "opponents='even' needs an env of several"),
        (lambda: IPPO(HigherNumber, pool_size=3), "pool_size needs opponents"),
    ],
)
def test_wrong_calls_are_one_clear_error(make, message) -> None:
    """Each message states the given value and the remedy."""
    with pytest.raises(ConfigError, match=message):
        make()


class Fixed:
    """A predictor that always names the same number, and counts its moves in its state."""

    def __init__(self, number):
        self.number = number

    def predict_team(self, shown, deterministic=True, *, state=None, episode_start=None):
        assert (state is None) == bool(episode_start.all())
        return {"player": np.full((1, 2), self.number)}, 1 + (state or 0)


@pytest.mark.parametrize(
    ("numbers", "expected"), [((3, 1), (8, 0, 0)), ((1, 3), (0, 0, 8)), ((2, 2), (0, 8, 0))]
)
def test_a_match_counts_games_on_both_sides(numbers, expected) -> None:
    """The higher number wins, on either side."""
    result = play_match(*map(Fixed, numbers), HigherNumber, n_games=8)
    assert (result.wins, result.draws, result.losses) == expected
    assert result.score == (expected[0] + expected[1] / 2) / 8
    assert MatchResult(10, 0, 1).elo_difference == pytest.approx(400.0)
    with pytest.raises(ConfigError, match="two agents, got agent_0, agent_1, agent_2"):
        play_match(*map(Fixed, numbers), "mpe2/simple_spread_v3")


def test_runs_play_each_other_on_the_command_line(run, tmp_path) -> None:
    """``rlox marl match`` takes two checkpoints, and counts every game."""
    options = {key: value for key, value in GAME.items() if not key.startswith(("opp", "pool"))}
    for seed in (0, 1):
        with IPPO(TIC_TAC_TOE, seed=seed, **{**options, "n_envs": 2}) as algorithm:
            algorithm.save(tmp_path / f"{seed}.rlox")
    code, out, err = run("marl", "match", "0.rlox", "1.rlox", "--games", 4, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["env"] == TIC_TAC_TOE
    assert found["wins"] + found["draws"] + found["losses"] == 4
