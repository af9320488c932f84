//! A worker with a failing env.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use _candle::Error;
use _candle::policy::Shape;
use _candle::rollout::Collector;
use _candle::worker::Worker;
use rlox_kernels::env::{ActionSpace, Env, EnvSpec, Outcome, VecEnv, VectorEnv};
use rlox_kernels::gae::Discount;
use rlox_kernels::rng::Pcg64;

/// An env that panics in its third step.
#[derive(Clone, Default)]
struct Broken {
    steps: u32,
}

impl Env for Broken {
    type Action<'a> = i64;
    type Obs = f32;

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "Broken-v0".to_owned(),
            obs_low: vec![0.0],
            obs_high: vec![9.0],
            action_space: ActionSpace::Discrete { n: 2 },
            max_episode_steps: 100,
            state_low: vec![0.0],
            state_high: vec![9.0],
        }
    }

    fn reset(&mut self, _rng: &mut Pcg64) {
        self.steps = 0;
    }

    fn step(&mut self, _action: i64, _rng: &mut Pcg64) -> Outcome {
        self.steps += 1;
        assert!(self.steps < 3, "the wheel came off");
        Outcome { reward: 0.0, terminated: false }
    }

    fn observe(&self, obs: &mut [f32]) {
        obs.fill(0.5);
    }

    fn save(&self, state: &mut [f64]) {
        state.fill(f64::from(self.steps));
    }

    fn load(&mut self, _state: &[f64]) {}
}

fn worker(n_steps: usize) -> Worker {
    let envs = VecEnv::new(2, || Ok(Broken::default())).unwrap();
    let shape = Shape::of(envs.spec(), [vec![4; 2], vec![4; 2]]);
    let weights = shape.initial_weights(&mut Pcg64::from_seed(0));
    let discount = Discount::new(0.9, 0.9).unwrap();
    let collector = Collector::new(Box::new(envs), Pcg64::from_seed(0), n_steps, discount);
    Worker::start(collector, shape, weights, 1).unwrap()
}

fn next(worker: &Worker) -> _candle::Result<usize> {
    for _ in 0..100 {
        if let Some(rollout) = worker.receive(Duration::from_millis(100))? {
            return Ok(rollout.rewards.len());
        }
    }
    panic!("no rollout and no error within ten seconds")
}

#[test]
fn a_panic_reaches_who_waits_and_everybody_after() {
    let worker = worker(4);
    for _ in 0..2 {
        let error = next(&worker).unwrap_err();
        assert!(matches!(error, Error::Panic(_)));
        let text = "the collecting thread failed: the wheel came off";
        assert_eq!(error.to_string(), text);
    }
    worker.stop();
    worker.stop();
    assert!(matches!(next(&worker), Err(Error::Stopped)));
}

#[test]
fn rollouts_from_before_the_failure_are_still_received() {
    let worker = worker(2);
    assert_eq!(next(&worker).unwrap(), 4);
    assert!(matches!(next(&worker), Err(Error::Panic(_))));
}
