//! One worker, many users: invariants for any order of calls.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use _candle::Error;
use _candle::policy::{ActionRows, Shape};
use _candle::rollout::Collector;
use _candle::worker::Worker;
use rlox_kernels::env::{CartPole, VecEnv, VectorEnv};
use rlox_kernels::gae::Discount;
use rlox_kernels::rng::Pcg64;

const ENVS: usize = 2;
const STEPS: usize = 3;

fn worker(seed: u64, capacity: usize) -> Worker {
    let envs = VecEnv::new(ENVS, || Ok(CartPole::default())).unwrap();
    let shape = Shape::of(envs.spec(), [vec![4; 2], vec![4; 2]]);
    let weights = shape.initial_weights(&mut Pcg64::from_seed(seed));
    let discount = Discount::new(0.9, 0.9).unwrap();
    let collector = Collector::new(Box::new(envs), Pcg64::from_seed(seed), STEPS, discount);
    Worker::start(collector, shape, weights, capacity).unwrap()
}

/// Receives until the worker is stopped; rollouts are whole, their versions never fall.
fn receive_all(worker: &Worker) {
    let mut newest = 0;
    loop {
        match worker.receive(Duration::from_millis(50)) {
            Ok(Some(rollout)) => {
                assert_eq!(rollout.rewards.len(), ENVS * STEPS);
                assert!(rollout.weights_version >= newest);
                newest = rollout.weights_version;
            }
            Ok(None) => {}
            Err(Error::Stopped) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn repeat_until(over: &AtomicBool, mut work: impl FnMut()) {
    while !over.load(Ordering::Relaxed) {
        work();
    }
}

#[test]
fn users_of_one_worker_do_not_disturb_each_other() {
    for (seed, capacity) in [(0, 0), (1, 1), (2, 3)] {
        let worker = worker(seed, capacity);
        let over = AtomicBool::new(false);
        let (worker, over) = (&worker, &over);
        thread::scope(|scope| {
            scope.spawn(|| receive_all(worker));
            scope.spawn(|| {
                let mut version = 0;
                repeat_until(over, || {
                    let next = worker.sync(worker.weights()).unwrap();
                    assert_eq!(next, version + 1);
                    version = next;
                });
            });
            scope.spawn(|| {
                let obs = [0.1; 4];
                repeat_until(over, || {
                    let (log_probs, values) =
                        worker.evaluate(&obs, &ActionRows::Discrete(vec![1])).unwrap();
                    assert!(log_probs[0] < 0.0 && values[0].is_finite());
                });
            });
            scope.spawn(|| {
                repeat_until(over, || worker.set_state(worker.state()).unwrap());
            });
            thread::sleep(Duration::from_millis(400));
            over.store(true, Ordering::Relaxed);
            worker.stop();
        });
    }
}

#[test]
fn it_may_be_stopped_by_several_at_once_and_at_any_moment() {
    let started = Instant::now();
    for (round, capacity) in (0..60).zip([0, 1, 2].into_iter().cycle()) {
        let worker = worker(round, capacity);
        let worker = &worker;
        thread::scope(|scope| {
            scope.spawn(|| receive_all(worker));
            for _ in 0..2 {
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(round * 40));
                    worker.stop();
                });
            }
        });
        assert!(matches!(worker.receive(Duration::ZERO), Err(Error::Stopped)));
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}
