//! Kernels give the same bits on any number of threads.

use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use rlox_kernels::divergence;
use rlox_kernels::env::{Actions, ObsMut, ObsType, StepBuffers, make_vec, native_env_ids};
use rlox_kernels::gae::{Discount, EnvMajor, Estimates, TimeMajor, gae_env_major, gae_time_major};
use rlox_kernels::groups::{Normalization, Scale, group_advantages};
use rlox_kernels::replay::{
    Batch, DType, Field, Goals, Hindsight, HindsightReplay, Importance, Layout, NStep,
    PrioritizedReplay, Selection, Sequences, Stream, Transitions, UniformReplay, Values, ValuesMut,
};
use rlox_kernels::rng::Pcg64;
use rlox_kernels::threads::{LEAST_WORK, set_least_work, set_limit};
use rlox_kernels::vtrace::{Targets, Truncation, vtrace};

/// The settings belong to the process.
static SETTINGS: Mutex<()> = Mutex::new(());

/// Results of `kernel` on 1, 2, 3 and 8 threads, even with little work.
fn on_threads<T>(kernel: impl Fn() -> T) -> Vec<T> {
    let _guard = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    set_least_work(0);
    let results = [1, 2, 3, 8].map(|threads| {
        set_limit(Some(threads)).expect("a possible number");
        kernel()
    });
    set_least_work(LEAST_WORK);
    results.into()
}

fn uniform(rng: &mut Pcg64, n: usize) -> Vec<f32> {
    #[expect(clippy::cast_precision_loss, reason = "any numbers will do")]
    let draw = |_| (rng.next_u64() >> 40) as f32 / 8_388_608.0 - 1.0;
    (0..n).map(draw).collect()
}

fn flags(rng: &mut Pcg64, n: usize) -> Vec<bool> {
    (0..n).map(|_| rng.next_u64().is_multiple_of(16)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A replay buffer's random content, and the output of its draws.
struct Rows {
    layout: Layout,
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Rows {
    fn random(rng: &mut Pcg64, layout: Layout, n: usize) -> Self {
        Self {
            layout,
            obs: uniform(rng, n * layout.obs.len),
            next_obs: uniform(rng, n * layout.obs.len),
            actions: uniform(rng, n),
            rewards: uniform(rng, n),
            terminated: flags(rng, n),
            truncated: flags(rng, n),
        }
    }

    fn zeros(layout: Layout, n: usize) -> Self {
        let [obs, next_obs] = [(); 2].map(|()| vec![0.0; n * layout.obs.len]);
        let [actions, rewards] = [(); 2].map(|()| vec![0.0; n]);
        let [terminated, truncated] = [(); 2].map(|()| vec![false; n]);
        Self { layout, obs, next_obs, actions, rewards, terminated, truncated }
    }

    fn transitions(&self) -> Transitions<'_> {
        Transitions {
            obs: Values::of::<f32>(&self.obs),
            actions: Values::of::<f32>(&self.actions),
            rewards: &self.rewards,
            terminated: &self.terminated,
            truncated: &self.truncated,
            next_obs: Some(Values::of::<f32>(&self.next_obs)),
        }
    }

    fn batch<'a>(&'a mut self, discounts: Option<&'a mut [f32]>) -> Batch<'a> {
        Batch {
            obs: ValuesMut::of::<f32>(&mut self.obs),
            next_obs: Some(ValuesMut::of::<f32>(&mut self.next_obs)),
            actions: ValuesMut::of::<f32>(&mut self.actions),
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            discounts,
        }
    }

    fn bits(self) -> (Vec<u32>, Vec<bool>) {
        let numbers = [self.obs, self.next_obs, self.actions, self.rewards].concat();
        (bits(&numbers), [self.terminated, self.truncated].concat())
    }
}

/// A layout with `obs` numbers per observation, and the number of rows in several of its blocks.
fn wide(obs: usize, capacity: usize, n_step: NStep, frames: usize) -> (Layout, usize) {
    let field = |len| Field { dtype: DType::F32, len };
    let layout = Layout { capacity, obs: field(obs), action: field(1), n_step, frames };
    (layout, 3 * (1 << 18) / (8 * obs) + 7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gae_in_both_layouts(n_envs in 1_usize..900, n_steps in 0_usize..40, seed: u64) {
        let (rng, n) = (&mut Pcg64::from_seed(seed), n_envs * n_steps);
        let [rewards, values, final_values] = [(); 3].map(|()| uniform(rng, n));
        let [terminated, truncated] = [(); 2].map(|()| flags(rng, n));
        let last_values = &uniform(rng, n_envs)[..];
        let (rewards, values) = (&rewards[..], &values[..]);
        let discount = Discount::new(0.99, 0.95).expect("factors in range");
        let results = on_threads(|| {
            let mut arrays = [(); 4].map(|()| vec![0.0; n]);
            let [advantages, returns, env_advantages, env_returns] = &mut arrays;
            let rollout = TimeMajor {
                rewards,
                values,
                terminated: &terminated,
                truncated: &truncated,
                final_values: &final_values,
                last_values,
            };
            let output = &mut Estimates { advantages, returns };
            gae_time_major(&rollout, discount, output).expect("lengths that fit");
            let trajectories = EnvMajor { rewards, values, dones: &terminated, last_values };
            let output = &mut Estimates { advantages: env_advantages, returns: env_returns };
            gae_env_major(&trajectories, n_steps, discount, output).expect("lengths that fit");
            arrays.map(|array| bits(&array))
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn steps_of_every_env(n_envs in 100_usize..700, env in 0..native_env_ids().len(), seed: u64) {
        let id = native_env_ids()[env];
        let results = on_threads(|| {
            let rng = &mut Pcg64::from_seed(seed);
            let mut envs = make_vec(id, n_envs).expect("a native env");
            let seeds: Vec<_> = (0..n_envs as u64).map(|env| seed.wrapping_add(env)).collect();
            envs.seed_all(&seeds).expect("a seed for each");
            let dim = envs.spec().obs_dim();
            assert_eq!(envs.obs_type(), ObsType::F32);
            let mut obs = vec![0.0_f32; n_envs * dim];
            let mut final_obs = obs.clone();
            envs.reset_all(ObsMut::from(&mut obs)).expect("room for all");
            let mut seen = bits(&obs);
            let [mut terminated, mut truncated] = [(); 2].map(|()| vec![false; n_envs]);
            let mut rewards = vec![0.0; n_envs];
            for _ in 0..30 {
                let continuous = uniform(rng, n_envs);
                let discrete: Vec<_> = continuous.iter().map(|&x| i64::from(x > 0.0)).collect();
                let is_continuous = id.contains("Continuous") || id.contains("Pendulum");
                let actions = if is_continuous {
                    Actions::Continuous(&continuous)
                } else {
                    Actions::Discrete(&discrete)
                };
                let mut out = StepBuffers {
                    obs: ObsMut::from(&mut obs),
                    rewards: &mut rewards,
                    terminated: &mut terminated,
                    truncated: &mut truncated,
                    final_obs: ObsMut::from(&mut final_obs),
                };
                envs.step_all(actions, &mut out).expect("actions of the space");
                seen.extend(bits(&obs));
                seen.extend(bits(&final_obs));
            }
            (seen, envs.state())
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn vtrace_of_rollouts(n_envs in 1_usize..300, n_steps in 0_usize..20, seed: u64) {
        let (rng, n) = (&mut Pcg64::from_seed(seed), n_envs * n_steps);
        let [rewards, values, final_values, log_rhos] = [(); 4].map(|()| uniform(rng, n));
        let [terminated, truncated] = [(); 2].map(|()| flags(rng, n));
        let rollout = TimeMajor {
            rewards: &rewards[..],
            values: &values,
            terminated: &terminated[..],
            truncated: &truncated,
            final_values: &final_values,
            last_values: &uniform(rng, n_envs),
        };
        let bars = Truncation { rho_bar: 1.0, c_bar: 0.9 };
        let results = on_threads(|| {
            let [mut vs, mut pg_advantages] = [(); 2].map(|()| vec![0.0; n]);
            let output = &mut Targets { vs: &mut vs, pg_advantages: &mut pg_advantages };
            vtrace(&rollout, &log_rhos, 0.99, bars, output).expect("lengths that fit");
            [bits(&vs), bits(&pg_advantages)]
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn advantages_of_groups(group_size in 1_usize..600, n_groups in 0_usize..80, seed: u64) {
        let rewards = uniform(&mut Pcg64::from_seed(seed), group_size * n_groups);
        let results = on_threads(|| {
            [Scale::Group, Scale::Batch, Scale::None].map(|scale| {
                let how = Normalization { scale, ddof: 0, eps: 1e-4 };
                let mut advantages = vec![0.0; rewards.len()];
                group_advantages(&rewards, group_size, how, &mut advantages).expect("groups");
                bits(&advantages)
            })
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn divergences_of_tokens(seq_len in 1_usize..9_000, n in 0_usize..8, seed: u64) {
        let rng = &mut Pcg64::from_seed(seed);
        let [p, q] = [(); 2].map(|()| uniform(rng, seq_len * n));
        let results = on_threads(|| {
            let totals = [divergence::token_kl(&p, &q), divergence::token_kl_schulman(&p, &q)];
            let [mut kl, mut schulman] = [(); 2].map(|()| vec![0.0; n]);
            divergence::batch_token_kl(&p, &q, seq_len, &mut kl).expect("sequences");
            divergence::batch_token_kl_schulman(&p, &q, seq_len, &mut schulman).expect("sequences");
            (totals.map(|total| total.expect("equal lengths").to_bits()), [bits(&kl), bits(&schulman)])
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
        // A single sequence is summed as among others.
        let alone = p.chunks(seq_len).zip(q.chunks(seq_len)).map(|(p, q)| {
            let total = divergence::token_kl(p, q).expect("equal lengths");
            #[expect(clippy::cast_possible_truncation, reason = "as the kernel rounds")]
            (total as f32).to_bits()
        });
        prop_assert_eq!(alone.collect::<Vec<_>>(), results[0].1[0].clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn uniform_draws(obs in 30_usize..2_000, n_step in 1_usize..4, frames: bool, seed: u64) {
        let obs = 3 * obs;
        let n_step = NStep { n_envs: 2, n_step, gamma: 0.9 };
        let (layout, n) = wide(obs, 50, n_step, if frames { 3 } else { 0 });
        let rows = Rows::random(&mut Pcg64::from_seed(seed), layout, 60);
        let results = on_threads(|| {
            let mut buffer = UniformReplay::new(layout, Stream::from_seed(seed)).expect("sizes");
            buffer.push(&rows.transitions(), ()).expect("rows");
            let (mut drawn, mut discounts) = (Rows::zeros(rows.layout, n), vec![0.0; n]);
            buffer.sample(None, &mut drawn.batch(Some(&mut discounts)), &mut ()).expect("a draw");
            let mut pieces = Rows::zeros(rows.layout, 5 * n);
            let [mut mask, mut is_first] = [(); 2].map(|()| vec![false; 5 * n]);
            let batch = pieces.batch(None);
            let mut out = Sequences { batch, is_first: &mut is_first, mask: &mut mask };
            buffer.sample_sequences(None, 5, false, &mut out).expect("sequences");
            (drawn.bits(), bits(&discounts), pieces.bits(), mask, is_first)
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn prioritized_draws(obs in 1_usize..500, seed: u64) {
        let (layout, n) = wide(obs, 5_000, NStep::ONE, 0);
        let n = n.max(3_000);
        let rng = &mut Pcg64::from_seed(seed);
        let rows = Rows::random(rng, layout, 5_000);
        let priorities: Vec<_> = uniform(rng, 5_000).into_iter().map(f64::from).collect();
        let results = on_threads(|| {
            let stream = Stream::from_seed(seed);
            let mut buffer = PrioritizedReplay::new(layout, 0.6, 0.4, stream).expect("sizes");
            buffer.push(&rows.transitions(), Some(&priorities)).expect("rows");
            let mut drawn = Rows::zeros(rows.layout, n);
            let (mut weights, mut indices) = (vec![0.0; n], vec![0; n]);
            let importance = &mut Importance { weights: &mut weights, indices: &mut indices };
            buffer.sample(None, &mut drawn.batch(None), importance).expect("a draw");
            (drawn.bits(), bits(&weights), indices)
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn draws_with_hindsight(obs in 4_usize..500, selection in 0_usize..3, seed: u64) {
        let (layout, n) = wide(obs, 500, NStep::ONE, 0);
        let rows = Rows::random(&mut Pcg64::from_seed(seed), layout, 700);
        let hindsight = Hindsight {
            goals: Goals { len: 2, achieved: 0, desired: 2 },
            selection: [Selection::Future, Selection::Final, Selection::Episode][selection],
            n_sampled_goal: 4,
            threshold: Some(0.5),
        };
        let results = on_threads(|| {
            let stream = Stream::from_seed(seed);
            let mut buffer = HindsightReplay::new(layout, hindsight, stream).expect("sizes");
            buffer.push(&rows.transitions(), ()).expect("rows");
            let (mut drawn, mut relabelled) = (Rows::zeros(rows.layout, n), vec![false; n]);
            buffer.sample(None, &mut drawn.batch(None), &mut relabelled[..]).expect("a draw");
            (drawn.bits(), relabelled)
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }
}
