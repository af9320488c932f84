//! The thread that collects rollouts, and its synchronisation.
//!
//! Each rollout is ordered together with its weights, so its weights do not depend on timing: the
//! k-th rollout is collected with the newest weights at the time the (k - capacity)-th was
//! received. The first `capacity` rollouts are ordered at the start. With a capacity of 0 the
//! thread works only while a consumer waits; with 1 it collects the next rollout while the consumer
//! learns from the last.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::policy::{ActionRows, ActorCritic, Shape};
use crate::rollout::{Collector, CollectorState, Rollout};
use crate::{Error, Result};

/// Weights with their version, from 0 on.
#[derive(Debug)]
struct Weights {
    version: u64,
    flat: Vec<f32>,
}

#[derive(Debug)]
struct Exchange {
    newest: Arc<Weights>,
    orders: VecDeque<Arc<Weights>>,
    done: VecDeque<Rollout>,
    /// Rollouts ordered and not yet received.
    outstanding: usize,
    /// The reason of the thread's end, unless it was stopped.
    failure: Option<String>,
}

impl Exchange {
    fn order(&mut self) {
        self.orders.push_back(Arc::clone(&self.newest));
        self.outstanding += 1;
    }
}

struct Shared {
    exchange: Mutex<Exchange>,
    changed: Condvar,
    collector: Mutex<Collector>,
    stop: AtomicBool,
    shape: Shape,
    capacity: usize,
}

/// A background thread that collects rollouts; dropping it ends the thread.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process of the thread.
    process: u32,
}

impl Worker {
    /// Starts a thread that collects with an actor-critic of `shape`, at first with `weights`.
    ///
    /// # Errors
    /// Errors of the weights, and [`Error::Thread`].
    pub fn start(
        collector: Collector,
        shape: Shape,
        weights: Vec<f32>,
        capacity: usize,
    ) -> Result<Self> {
        ActorCritic::new(&shape, &weights)?;
        let mut exchange = Exchange {
            newest: Arc::new(Weights { version: 0, flat: weights }),
            orders: VecDeque::new(),
            done: VecDeque::new(),
            outstanding: 0,
            failure: None,
        };
        (0..capacity).for_each(|_| exchange.order());
        let shared = Arc::new(Shared {
            exchange: Mutex::new(exchange),
            changed: Condvar::new(),
            collector: Mutex::new(collector),
            stop: AtomicBool::new(false),
            shape,
            capacity,
        });
        let in_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("rlox-candle".to_owned())
            .spawn(move || in_thread.run())
            .map_err(|error| Error::Thread(error.to_string()))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }

    /// Checks that this process has the thread. A fork does not, and would wait forever for the
    /// thread or one of its locks.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// The next rollout, or `None` after `patience` without one.
    ///
    /// # Errors
    /// [`Error::Stopped`], and [`Error::Panic`] with the reason of the thread's end.
    pub fn receive(&self, patience: Duration) -> Result<Option<Rollout>> {
        let mut exchange = lock(&self.shared.exchange);
        if exchange.outstanding == 0 {
            exchange.order();
            self.shared.changed.notify_all();
        }
        let waiting = |exchange: &mut Exchange| {
            exchange.done.is_empty()
                && exchange.failure.is_none()
                && !self.shared.stop.load(Ordering::Relaxed)
        };
        (exchange, _) = self
            .shared
            .changed
            .wait_timeout_while(exchange, patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if self.shared.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        if let Some(rollout) = exchange.done.pop_front() {
            exchange.outstanding -= 1;
            while exchange.outstanding < self.shared.capacity {
                exchange.order();
            }
            self.shared.changed.notify_all();
            return Ok(Some(rollout));
        }
        exchange.failure.clone().map_or(Ok(None), |failure| Err(Error::Panic(failure)))
    }

    /// Makes `weights` the newest, and returns their version.
    ///
    /// # Errors
    /// Errors of the weights; the newest ones stay then.
    pub fn sync(&self, weights: Vec<f32>) -> Result<u64> {
        ActorCritic::new(&self.shared.shape, &weights)?;
        let mut exchange = lock(&self.shared.exchange);
        let version = exchange.newest.version + 1;
        exchange.newest = Arc::new(Weights { version, flat: weights });
        Ok(version)
    }

    /// A copy of the newest weights.
    #[must_use]
    pub fn weights(&self) -> Vec<f32> {
        lock(&self.shared.exchange).newest.flat.clone()
    }

    /// The version of the newest weights: the number of syncs.
    #[must_use]
    pub fn version(&self) -> u64 {
        lock(&self.shared.exchange).newest.version
    }

    /// Log-probabilities of `actions` and values of rows of observations, by the newest weights.
    ///
    /// # Errors
    /// [`KernelError::Shape`](rlox_kernels::KernelError::Shape) if rows and actions do not match.
    pub fn evaluate(&self, obs: &[f32], actions: &ActionRows) -> Result<(Vec<f32>, Vec<f32>)> {
        let weights = Arc::clone(&lock(&self.shared.exchange).newest);
        let policy = ActorCritic::new(&self.shared.shape, &weights.flat)?;
        let heads = policy.heads(obs)?;
        Ok((policy.log_probs(&heads, actions)?, heads.values))
    }

    /// A copy of the envs' complete state; waits for the rollout in progress.
    #[must_use]
    pub fn state(&self) -> CollectorState {
        lock(&self.shared.collector).state()
    }

    /// Restores the envs from `state`; waits for the rollout in progress.
    ///
    /// # Errors
    /// Errors of the state.
    pub fn set_state(&self, state: CollectorState) -> Result<()> {
        lock(&self.shared.collector).set_state(state)
    }

    /// Ends the thread, within one step of the envs, and waits for its end. May be called
    /// repeatedly; does nothing in a forked process.
    pub fn stop(&self) {
        if self.check_process().is_err() {
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            // Under the lock, so that no thread that has just read the flag waits past this.
            let _exchange = lock(&self.shared.exchange);
            self.shared.changed.notify_all();
        }
        if let Some(thread) = lock(&self.thread).take() {
            // It caught its panics and left the reason in the exchange.
            drop(thread.join());
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        // Networks this small are slower on several threads; rayon's own pool would use all cores.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let outcome = match pool {
            Ok(pool) => catch_unwind(AssertUnwindSafe(|| pool.install(|| self.serve()))),
            Err(error) => Ok(Err(Error::Thread(error.to_string()))),
        };
        let failure = match outcome {
            Ok(Ok(()) | Err(Error::Stopped)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => message(panic.as_ref()),
        };
        lock(&self.exchange).failure = Some(failure);
        self.changed.notify_all();
    }

    fn serve(&self) -> Result<()> {
        let mut policy: Option<(u64, ActorCritic)> = None;
        while let Some(weights) = self.next_order() {
            let (_, policy) = match &mut policy {
                Some(policy) if policy.0 == weights.version => policy,
                stale => {
                    let fresh = ActorCritic::new(&self.shape, &weights.flat)?;
                    stale.insert((weights.version, fresh))
                }
            };
            let rollout = lock(&self.collector).collect(policy, weights.version, &self.stop)?;
            lock(&self.exchange).done.push_back(rollout);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits for an order; `None` once it has to stop.
    fn next_order(&self) -> Option<Arc<Weights>> {
        let idle = |exchange: &mut Exchange| {
            exchange.orders.is_empty() && !self.stop.load(Ordering::Relaxed)
        };
        let mut exchange = self
            .changed
            .wait_while(lock(&self.exchange), idle)
            .unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::Relaxed) { None } else { exchange.orders.pop_front() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
