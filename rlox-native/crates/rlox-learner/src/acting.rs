//! Actions drawn from the policy.

use pulp::{Arch, Simd, WithSimd};

use super::Real;
use super::actor_critic::{Head, parts};
use super::block::Block;
use super::distribution::gaussian_log_prob;
use super::linalg::BLOCK_ROWS;
use super::memory::Memory;
use super::passes::forward;
use super::runs::Hidden;
use super::update::Learner;
use rlox_kernels::error::{KernelError, Result, check_len};
use rlox_kernels::rng::Pcg64;

/// Output buffer of actions: N for a step of N envs, or T × N for a rollout.
#[derive(Debug)]
pub enum ActionBuffer<'a> {
    /// N × choices.
    Discrete(&'a mut [i64]),
    /// N × `act_dim`, as sampled: the envs receive them clipped to their bounds.
    Continuous(&'a mut [f32]),
}

/// A request for the actions of N observations, with optional masks.
#[derive(Debug)]
pub struct ActionRequest<'a> {
    /// N × `obs_dim`; for a policy with a memory, the N states after the observations.
    pub obs: &'a [f32],
    /// For a categorical policy, N × actions, zero for forbidden ones; `None` allows all.
    pub masks: Option<&'a [u8]>,
    /// The actions, as sampled.
    pub actions: ActionBuffer<'a>,
    /// Log-probabilities of the actions, N.
    pub log_probs: &'a mut [f32],
}

/// Source of the actions' randomness.
#[derive(Debug)]
pub enum Draws<'a> {
    /// A generator. A categorical policy draws one number u in [0, 1) and takes the first action
    /// whose cumulative probability exceeds u. A Gaussian one draws two, u and v, per component:
    /// √(-2 ln(1 - u)) cos 2πv, by Box and Muller 1958.
    Stream(&'a mut Pcg64),
    /// Numbers drawn in advance, one row of the head's width per observation: standard normal, or
    /// exponential for a categorical policy, which takes the action with the largest ratio of
    /// probability to number: the first of competing exponential clocks.
    Given(&'a [f32]),
    /// No randomness: the mode.
    Mode,
}

impl Draws<'_> {
    /// Checks that there are numbers for `rows` observations.
    pub(super) fn check(&self, rows: usize, width: usize) -> Result<()> {
        let Self::Given(numbers) = self else { return Ok(()) };
        check_len("noise", numbers.len(), "log_probs * actions", rows * width)
    }

    /// The next `n` of the given numbers.
    fn next(numbers: &mut &[f32], n: usize) -> impl Iterator<Item = f32> {
        let (now, rest) = numbers.split_at(n);
        *numbers = rest;
        now.iter().copied()
    }

    /// An action of a categorical policy.
    #[inline(always)]
    fn choose(&mut self, probabilities: &[f32]) -> usize {
        match self {
            Self::Stream(rng) => draw(probabilities, rng.next_double()),
            Self::Given(numbers) => {
                let clocks = Self::next(numbers, probabilities.len());
                largest(probabilities.iter().zip(clocks).map(|(&p, clock)| p / clock))
            }
            Self::Mode => largest(probabilities.iter().copied()),
        }
    }

    /// A component's distance from its mean, in deviations.
    #[inline(always)]
    fn noise(&mut self) -> f32 {
        match self {
            Self::Stream(rng) => f32::of(normal(rng)),
            Self::Given(numbers) => Self::next(numbers, 1).next().unwrap_or_default(),
            Self::Mode => 0.0,
        }
    }
}

impl Learner<f32> {
    /// Draws an action for each observation in turn, with the held parameters if none are given.
    ///
    /// # Errors
    /// [`KernelError`] if a length does not fit, parameters are missing or a mask allows nothing.
    pub fn act(
        &mut self,
        parameters: Option<&[f32]>,
        draws: &mut Draws<'_>,
        request: &mut ActionRequest<'_>,
    ) -> Result<()> {
        let (rows, width) = (request.log_probs.len(), self.shape.head.width());
        self.check_parameters(parameters)?;
        check_len("obs", request.obs.len(), "log_probs * obs_dim", rows * self.shape.seen_dim())?;
        match (&request.actions, self.shape.head) {
            (ActionBuffer::Discrete(actions), Head::Categorical(_)) => {
                let expected = rows * self.shape.choices.len();
                check_len("actions", actions.len(), "log_probs * choices", expected)?;
            }
            (ActionBuffer::Continuous(actions), Head::Gaussian(_) | Head::ScaledGaussian(_)) => {
                check_len("actions", actions.len(), "log_probs * act_dim", rows * width)?;
            }
            _ => {
                let (env_id, expected, got) = ("the policy", "its own kind of", "other");
                return Err(KernelError::ActionKind { env_id: env_id.to_owned(), expected, got });
            }
        }
        draws.check(rows, width)?;
        if let Some(masks) = request.masks {
            let masked = rows * self.shape.head.n_masked();
            check_len("action_masks", masks.len(), "log_probs * n_actions", masked)?;
            check_choices(masks, &self.shape.choices)?;
        }
        if let Some(parameters) = parameters {
            self.packed.load_policy(&self.shape, parameters);
        }
        Arch::new().dispatch(Act { learner: self, draws, request });
        Ok(())
    }

    /// Copies parameters for [`act`](Self::act), [`values`](Self::values) and
    /// [`remember`](Self::remember), which use them if called without parameters. Any call with
    /// parameters discards them.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if the length does not fit.
    pub fn hold(&mut self, parameters: &[f32]) -> Result<()> {
        self.check_parameters(Some(parameters))?;
        self.packed.load(&self.shape, parameters);
        self.packed.held = true;
        Ok(())
    }

    /// Checks that there are parameters, given or held.
    pub(super) fn check_parameters(&self, given: Option<&[f32]>) -> Result<()> {
        let expected = self.shape.n_parameters();
        match given {
            Some(given) => check_len("parameters", given.len(), "the networks", expected),
            None if self.packed.held => Ok(()),
            None => check_len("parameters", 0, "the networks, as none are held", expected),
        }
    }
}

/// Checks that each row of flags allows an action of each choice.
pub(super) fn check_choices(masks: &[u8], choices: &[usize]) -> Result<()> {
    let empty = |row: &[u8]| parts(row, choices).any(|part| part.iter().all(|&flag| flag == 0));
    match masks.chunks_exact(choices.iter().sum()).position(empty) {
        Some(row) => Err(KernelError::NoChoice { row }),
        None => Ok(()),
    }
}

/// The arguments of [`Learner::act`].
struct Act<'a, 'b, 'c> {
    learner: &'a mut Learner<f32>,
    draws: &'a mut Draws<'c>,
    request: &'a mut ActionRequest<'b>,
}

impl WithSimd for Act<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { learner, draws, request } = self;
        let (obs, log_probs) = (request.obs, &mut *request.log_probs);
        match &mut request.actions {
            ActionBuffer::Discrete(actions) => {
                learner.choose(simd, draws, obs, request.masks, actions, log_probs);
            }
            ActionBuffer::Continuous(actions) => {
                learner.perturb(simd, draws, obs, actions, log_probs);
            }
        }
    }
}

impl Learner<f32> {
    /// Draws an action of each choice for each row of `obs` from the categorical policy.
    #[inline(always)]
    pub(super) fn choose<S: Simd>(
        &mut self,
        simd: S,
        draws: &mut Draws<'_>,
        obs: &[f32],
        masks: Option<&[u8]>,
        actions: &mut [i64],
        log_probs: &mut [f32],
    ) {
        let Self { shape, packed, block, .. } = self;
        let Block { actor, distribution, chosen, memory, .. } = block;
        chosen.possible.fill(true);
        let obs = seen(memory, 0, obs);
        let rows = obs.chunks(BLOCK_ROWS * shape.actor.input_stride);
        let (choices, n) = (&shape.choices[..], shape.choices.len());
        let results = actions.chunks_mut(BLOCK_ROWS * n).zip(log_probs.chunks_mut(BLOCK_ROWS));
        for (i, (obs, (actions, log_probs))) in rows.zip(results).enumerate() {
            if let Some(masks) = masks {
                let masks = &masks[i * BLOCK_ROWS * shape.head.width()..];
                for (possible, &flag) in chosen.possible.iter_mut().zip(masks) {
                    *possible = flag != 0;
                }
            }
            let rows = log_probs.len();
            forward(simd, &shape.actor, &packed.actor, obs, rows, actor, Hidden::Overwritten);
            let stride = shape.actor.output_stride();
            distribution.normalise(simd, actor.output(), stride, rows, &chosen.possible);
            let results = actions.chunks_exact_mut(n).zip(log_probs);
            for ((actions, log_prob), (probabilities, table)) in results.zip(distribution.rows()) {
                *log_prob = 0.0;
                let tables = parts(probabilities, choices).zip(parts(table, choices));
                for (action, (probabilities, table)) in actions.iter_mut().zip(tables) {
                    let chosen = draws.choose(probabilities);
                    *action = i64::try_from(chosen).unwrap_or(i64::MAX);
                    *log_prob += table[chosen];
                }
            }
        }
    }

    /// Draws an action for each row of `obs` from the Gaussian policy.
    #[inline(always)]
    pub(super) fn perturb<S: Simd>(
        &mut self,
        simd: S,
        draws: &mut Draws<'_>,
        obs: &[f32],
        actions: &mut [f32],
        log_probs: &mut [f32],
    ) {
        let Self { shape, packed, block, .. } = self;
        let Block { actor, memory, .. } = block;
        let width = shape.head.width();
        let obs = seen(memory, 0, obs);
        let rows = obs.chunks(BLOCK_ROWS * shape.actor.input_stride);
        let results = actions.chunks_mut(BLOCK_ROWS * width).zip(log_probs.chunks_mut(BLOCK_ROWS));
        for (obs, (actions, log_probs)) in rows.zip(results) {
            forward(
                simd,
                &shape.actor,
                &packed.actor,
                obs,
                log_probs.len(),
                actor,
                Hidden::Overwritten,
            );
            let outputs = actor.output().chunks_exact(shape.actor.output_stride());
            for ((actions, log_prob), outputs) in
                actions.chunks_exact_mut(width).zip(log_probs).zip(outputs)
            {
                *log_prob = 0.0;
                let (means, scales) = outputs.split_at(width);
                for (i, (action, &mean)) in actions.iter_mut().zip(means).enumerate() {
                    let log_std = packed.log_std.get(i).copied();
                    let log_std = log_std.unwrap_or_else(|| scales[i].tanh());
                    let noise = draws.noise();
                    *action = mean + log_std.exp() * noise;
                    *log_prob += gaussian_log_prob(noise, log_std);
                }
            }
        }
    }
}

/// Input of network `which`, 0 for the policy's: observations, or the outputs of its memory in the
/// states after them.
pub(super) fn seen<'a, F: Real>(
    memory: &'a mut Option<Memory<F>>,
    which: usize,
    obs: &'a [F],
) -> &'a [F] {
    memory.as_mut().map_or(obs, |memory| memory.recall(which, obs))
}

/// The first action whose cumulative probability exceeds `u`; if rounding leaves none, the last
/// possible one.
fn draw(probabilities: &[f32], u: f64) -> usize {
    let mut sum = 0.0;
    let mut last = 0;
    for (action, &p) in probabilities.iter().enumerate() {
        sum += f64::from(p);
        if p > 0.0 {
            last = action;
        }
        if u < sum {
            return action;
        }
    }
    last
}

/// The index of the largest number, the first if several are equal.
fn largest(numbers: impl Iterator<Item = f32>) -> usize {
    let found = numbers.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    found.map_or(0, |(place, _)| place)
}

/// A number from the standard normal distribution.
fn normal(rng: &mut Pcg64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_double()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_double()).cos()
}
