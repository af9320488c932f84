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

impl Learner<f32> {
    /// Draws an action for each observation in turn; without a generator, takes the mode.
    ///
    /// A categorical policy draws one number u in [0, 1) and takes the first action whose cumulative
    /// probability exceeds u. A Gaussian one draws two, u and v, per component:
    /// √(-2 ln(1 - u)) cos 2πv, by Box and Muller 1958.
    ///
    /// # Errors
    /// [`KernelError`] if a length does not fit or a mask allows nothing.
    pub fn act(
        &mut self,
        parameters: &[f32],
        rng: Option<&mut Pcg64>,
        request: &mut ActionRequest<'_>,
    ) -> Result<()> {
        let (rows, width) = (request.log_probs.len(), self.shape.head.width());
        check_len("parameters", parameters.len(), "the networks", self.shape.n_parameters())?;
        check_len("obs", request.obs.len(), "log_probs * obs_dim", rows * self.shape.seen_dim())?;
        match (&request.actions, self.shape.head) {
            (ActionBuffer::Discrete(actions), Head::Categorical(_)) => {
                let expected = rows * self.shape.choices.len();
                check_len("actions", actions.len(), "log_probs * choices", expected)?;
            }
            (ActionBuffer::Continuous(actions), Head::Gaussian(_)) => {
                check_len("actions", actions.len(), "log_probs * act_dim", rows * width)?;
            }
            _ => {
                let (env_id, expected, got) = ("the policy", "its own kind of", "other");
                return Err(KernelError::ActionKind { env_id: env_id.to_owned(), expected, got });
            }
        }
        if let Some(masks) = request.masks {
            let masked = rows * self.shape.head.n_masked();
            check_len("action_masks", masks.len(), "log_probs * n_actions", masked)?;
            check_choices(masks, &self.shape.choices)?;
        }
        self.packed.load_policy(&self.shape, parameters);
        Arch::new().dispatch(Act { learner: self, rng, request });
        Ok(())
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
    rng: Option<&'c mut Pcg64>,
    request: &'a mut ActionRequest<'b>,
}

impl WithSimd for Act<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { learner, rng, request } = self;
        let (obs, log_probs) = (request.obs, &mut *request.log_probs);
        match &mut request.actions {
            ActionBuffer::Discrete(actions) => {
                learner.choose(simd, rng, obs, request.masks, actions, log_probs);
            }
            ActionBuffer::Continuous(actions) => {
                learner.perturb(simd, rng, obs, actions, log_probs);
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
        mut rng: Option<&mut Pcg64>,
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
                    let chosen = match &mut rng {
                        Some(rng) => draw(probabilities, rng.next_double()),
                        None => largest(probabilities),
                    };
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
        mut rng: Option<&mut Pcg64>,
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
                for ((action, &mean), &log_std) in
                    actions.iter_mut().zip(outputs).zip(&packed.log_std)
                {
                    let noise = rng.as_deref_mut().map_or(0.0, |rng| f32::of(normal(rng)));
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
fn largest(numbers: &[f32]) -> usize {
    let numbers = numbers.iter().enumerate();
    let found = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
    found.map_or(0, |(place, _)| place)
}

/// A number from the standard normal distribution.
fn normal(rng: &mut Pcg64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_double()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_double()).cos()
}
