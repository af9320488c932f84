//! The buffers against a queue, their draws against NumPy's, their priorities against sums.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::error::StateError;
use rlox_kernels::replay::{
    Batch, DType, Field, Importance, Layout, MIN_PRIORITY, NStep, PrioritizedReplay, PriorityState,
    Stream, Transitions, UniformReplay, Values, ValuesMut,
};

const fn layout(capacity: usize, obs_len: usize) -> Layout {
    Layout {
        capacity,
        obs: Field { dtype: DType::F32, len: obs_len },
        action: Field { dtype: DType::I64, len: 1 },
        n_step: NStep::ONE,
        frames: 0,
    }
}

/// One transition, each field with a number of its own.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    obs: Vec<f32>,
    next_obs: Option<Vec<f32>>,
    action: i64,
    reward: f32,
    terminated: bool,
    truncated: bool,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn row(id: usize, obs_len: usize) -> Row {
    let obs = |offset: f32| (0..obs_len).map(|i| id as f32 + offset + i as f32 / 64.0).collect();
    Row {
        obs: obs(0.0),
        next_obs: (!id.is_multiple_of(5)).then(|| obs(0.5)),
        action: i64::try_from(id).unwrap() - 3,
        reward: -(id as f32),
        terminated: id.is_multiple_of(3),
        truncated: id.is_multiple_of(2),
    }
}

fn with_rows<R>(rows: &[Row], use_rows: impl FnOnce(&Transitions<'_>) -> R) -> R {
    let obs: Vec<f32> = rows.iter().flat_map(|row| row.obs.clone()).collect();
    let next_obs: Option<Vec<Vec<f32>>> = rows.iter().map(|row| row.next_obs.clone()).collect();
    let next_obs = next_obs.map(|rows| rows.concat());
    let actions: Vec<i64> = rows.iter().map(|row| row.action).collect();
    let rewards: Vec<f32> = rows.iter().map(|row| row.reward).collect();
    let terminated: Vec<bool> = rows.iter().map(|row| row.terminated).collect();
    let truncated: Vec<bool> = rows.iter().map(|row| row.truncated).collect();
    use_rows(&Transitions {
        obs: Values::F32(&obs),
        actions: Values::I64(&actions),
        rewards: &rewards,
        terminated: &terminated,
        truncated: &truncated,
        next_obs: next_obs.as_deref().map(Values::F32),
    })
}

/// Arrays for a batch, full of what must be overwritten.
struct Arrays {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    actions: Vec<i64>,
    rewards: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    weights: Vec<f32>,
    indices: Vec<u64>,
}

impl Arrays {
    fn new(n: usize, obs_len: usize) -> Self {
        Self {
            obs: vec![f32::NAN; n * obs_len],
            next_obs: vec![f32::NAN; n * obs_len],
            actions: vec![i64::MIN; n],
            rewards: vec![f32::NAN; n],
            terminated: vec![true; n],
            truncated: vec![true; n],
            weights: vec![f32::NAN; n],
            indices: vec![u64::MAX; n],
        }
    }

    fn split(&mut self, with_next_obs: bool) -> (Batch<'_>, Importance<'_>) {
        let batch = Batch {
            obs: ValuesMut::F32(&mut self.obs),
            next_obs: with_next_obs.then_some(ValuesMut::F32(&mut self.next_obs)),
            actions: ValuesMut::I64(&mut self.actions),
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            discounts: None,
        };
        (batch, Importance { weights: &mut self.weights, indices: &mut self.indices })
    }

    fn batch(&mut self, with_next_obs: bool) -> Batch<'_> {
        self.split(with_next_obs).0
    }

    fn row(&self, i: usize, obs_len: usize, with_next_obs: bool) -> Row {
        let at = i * obs_len..(i + 1) * obs_len;
        Row {
            obs: self.obs[at.clone()].to_vec(),
            next_obs: with_next_obs.then(|| self.next_obs[at].to_vec()),
            action: self.actions[i],
            reward: self.rewards[i],
            terminated: self.terminated[i],
            truncated: self.truncated[i],
        }
    }
}

/// The slots that `UniformReplay` draws, read off from buffers that hold their slots as rewards.
fn drawn(capacity: usize, stream: Stream, sizes: &[usize]) -> Vec<f32> {
    let mut buffer = UniformReplay::new(layout(capacity, 1), stream).unwrap();
    for id in 0..capacity {
        with_rows(&[row(id, 1)], |rows| buffer.push(rows, ())).unwrap();
    }
    let mut slots = Vec::new();
    for &n in sizes {
        let mut arrays = Arrays::new(n, 1);
        buffer.sample(None, &mut arrays.batch(false), &mut ()).unwrap();
        slots.extend(arrays.rewards.iter().map(|reward| -reward));
    }
    slots
}

// `rng = default_rng(42); rng.integers(10, size=5); rng.integers(10, size=3)`, NumPy 2.4.6: the
// second call goes on with the half word that the first has left over.
#[test]
fn draws_equal_numpy() {
    assert_eq!(drawn(10, Stream::from_seed(42), &[5, 3]), [0.0, 7.0, 6.0, 4.0, 4.0, 8.0, 0.0, 6.0]);
}

#[test]
fn a_buffer_of_one_draws_it_without_a_random_number() {
    assert_eq!(drawn(1, Stream::from_seed(0), &[4]), [0.0; 4]);
}

#[test]
fn an_empty_buffer_is_refused() {
    let mut buffer = UniformReplay::new(layout(4, 2), Stream::from_seed(0)).unwrap();
    let before = buffer.stream().clone();
    let error = buffer.sample(None, &mut Arrays::new(1, 2).batch(true), &mut ()).unwrap_err();
    assert_eq!(error, StateError::EmptyBuffer.into());
    assert_eq!(*buffer.stream(), before);
}

#[test]
fn next_observations_are_refused_while_one_is_missing() {
    let mut buffer = UniformReplay::new(layout(2, 1), Stream::from_seed(0)).unwrap();
    with_rows(&[row(5, 1)], |rows| buffer.push(rows, ())).unwrap();
    assert!(!buffer.ring().has_all_next_obs());
    let mut arrays = Arrays::new(3, 1);
    let error = buffer.sample(None, &mut arrays.batch(true), &mut ()).unwrap_err();
    assert_eq!(error, StateError::NextObsUnknown.into());
    assert!(arrays.obs[0].is_nan());
    buffer.sample(None, &mut arrays.batch(false), &mut ()).unwrap();
    // The ring comes round, and the transition without one is gone.
    with_rows(&[row(6, 1), row(7, 1)], |rows| buffer.push(rows, ())).unwrap();
    assert!(buffer.ring().has_all_next_obs());
    buffer.sample(None, &mut arrays.batch(true), &mut ()).unwrap();
}

#[test]
fn impossible_layouts_are_refused() {
    let refused = |layout: Layout| UniformReplay::new(layout, Stream::from_seed(0)).err().unwrap();
    assert!(matches!(refused(layout(0, 1)), KernelError::Range { name: "capacity", .. }));
    assert!(matches!(refused(layout(1, 0)), KernelError::Range { name: "obs_dim", .. }));
    for (capacity, obs_len) in [(usize::MAX, 1), (1, usize::MAX), (1 << 40, 1 << 20), (1 << 55, 4)]
    {
        assert!(matches!(refused(layout(capacity, obs_len)), KernelError::OutOfMemory { .. }));
        let layout = layout(capacity, obs_len);
        let prioritized = PrioritizedReplay::new(layout, 0.6, 0.4, Stream::from_seed(0));
        assert!(matches!(prioritized.err().unwrap(), KernelError::OutOfMemory { .. }));
    }
}

#[test]
fn wrong_rows_are_refused_and_store_nothing() {
    let mut buffer = UniformReplay::new(layout(4, 2), Stream::from_seed(0)).unwrap();
    let rows = Transitions {
        obs: Values::F32(&[0.0; 4]),
        actions: Values::I64(&[0; 2]),
        rewards: &[0.0; 2],
        terminated: &[false; 2],
        truncated: &[false; 2],
        next_obs: Some(Values::F32(&[0.0; 4])),
    };
    let nan = [0.0, 0.0, f32::NAN, 0.0];
    let wrong = [
        Transitions { obs: Values::F32(&[0.0; 3]), ..rows },
        Transitions { obs: Values::F64(&[0.0; 4]), ..rows },
        Transitions { obs: Values::F32(&nan), ..rows },
        Transitions { actions: Values::I32(&[0; 2]), ..rows },
        Transitions { actions: Values::I64(&[0; 3]), ..rows },
        Transitions { rewards: &[0.0; 3], ..rows },
        Transitions { rewards: &[0.0, f32::INFINITY], ..rows },
        Transitions { terminated: &[false; 3], ..rows },
        Transitions { truncated: &[false; 1], ..rows },
        Transitions { next_obs: Some(Values::F32(&[0.0; 2])), ..rows },
        Transitions { next_obs: Some(Values::F32(&nan)), ..rows },
    ];
    for rows in wrong {
        assert!(buffer.push(&rows, ()).is_err());
        assert!(buffer.ring().is_empty());
    }
    buffer.push(&rows, ()).unwrap();
    assert_eq!(buffer.ring().len(), 2);
}

fn prioritized(capacity: usize, alpha: f64, beta: f64) -> PrioritizedReplay {
    PrioritizedReplay::new(layout(capacity, 1), alpha, beta, Stream::from_seed(7)).unwrap()
}

fn push_each(buffer: &mut PrioritizedReplay, priorities: &[f64]) {
    for (id, &priority) in priorities.iter().enumerate() {
        with_rows(&[row(5 * id + 1, 1)], |rows| buffer.push(rows, Some(&[priority]))).unwrap();
    }
}

// Priorities 1, 2, 5 of sum 8, α = 1, eight strata of width 1: the first falls to slot 0, two to
// slot 1, five to slot 2. β = 1: weights min p / p = 1, 1/2, 1/5.
#[test]
fn strata_fall_to_slots_in_proportion_to_priorities() {
    let mut buffer = prioritized(3, 1.0, 1.0);
    push_each(&mut buffer, &[1.0, 2.0, 5.0]);
    let mut arrays = Arrays::new(8, 1);
    let (mut batch, mut importance) = arrays.split(true);
    buffer.sample(None, &mut batch, &mut importance).unwrap();
    assert_eq!(arrays.indices, [0, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!(arrays.weights, [1.0, 0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2]);
}

#[test]
fn without_alpha_all_are_alike() {
    let mut buffer = prioritized(4, 0.0, 1.0);
    push_each(&mut buffer, &[1.0, 1e-300, 5.0, 1e30]);
    let mut arrays = Arrays::new(4, 1);
    let (mut batch, mut importance) = arrays.split(true);
    buffer.sample(None, &mut batch, &mut importance).unwrap();
    assert_eq!((arrays.indices, arrays.weights), (vec![0, 1, 2, 3], vec![1.0; 4]));
}

#[test]
fn new_transitions_get_the_largest_priority_so_far() {
    let mut buffer = prioritized(3, 1.0, 0.0);
    let scaled = |buffer: &PrioritizedReplay| {
        let mut scaled = vec![0.0; buffer.ring().len()];
        buffer.export_priorities(&mut scaled).unwrap();
        scaled
    };
    with_rows(&[row(1, 1)], |rows| buffer.push(rows, None)).unwrap();
    assert_eq!(scaled(&buffer), [1.0]);
    buffer.update_priorities(&[0], &[0.25]).unwrap();
    with_rows(&[row(2, 1)], |rows| buffer.push(rows, None)).unwrap();
    assert_eq!(scaled(&buffer), [0.25, 1.0]);
    buffer.update_priorities(&[1, 1], &[8.0, 3.0]).unwrap();
    with_rows(&[row(3, 1), row(4, 1)], |rows| buffer.push(rows, None)).unwrap();
    assert_eq!(scaled(&buffer), [8.0, 3.0, 8.0]);
}

#[test]
fn the_sizes_of_numbers_are_priorities() {
    let mut buffer = prioritized(3, 1.0, 0.5);
    push_each(&mut buffer, &[-2.0, 0.0]);
    buffer.update_priorities(&[0], &[-0.0]).unwrap();
    with_rows(&[row(2, 1)], |rows| buffer.push(rows, None)).unwrap();
    let mut scaled = [0.0; 3];
    buffer.export_priorities(&mut scaled).unwrap();
    assert_eq!(scaled, [MIN_PRIORITY, MIN_PRIORITY, 2.0]);
}

#[test]
fn wrong_priorities_are_refused_and_change_nothing() {
    let mut buffer = prioritized(3, 0.5, 0.5);
    push_each(&mut buffer, &[1.0, 4.0]);
    for priority in [f64::NAN, f64::INFINITY, -1e39] {
        let error = buffer.update_priorities(&[0, 1], &[2.0, priority]).unwrap_err();
        assert!(matches!(error, KernelError::Priority { index: Some(1), .. }));
        let push = with_rows(&[row(1, 1)], |rows| buffer.push(rows, Some(&[priority])));
        assert!(matches!(push, Err(KernelError::Priority { index: Some(0), .. })));
    }
    let error = buffer.update_priorities(&[0, 2], &[2.0, 2.0]).unwrap_err();
    assert_eq!(error, KernelError::Index { name: "indices", place: 1, value: 2, len: 2 });
    assert!(buffer.update_priorities(&[0], &[]).is_err());
    let mut scaled = [0.0; 2];
    buffer.export_priorities(&mut scaled).unwrap();
    assert_eq!((scaled, buffer.max_priority()), ([1.0, 2.0], 4.0));
    assert!(buffer.set_beta(1.5).is_err() && buffer.set_beta(f64::NAN).is_err());
    assert_eq!(buffer.beta(), 0.5);
}

proptest! {
    #[test]
    fn a_ring_holds_what_a_queue_holds(
        capacity in 1_usize..20,
        obs_len in 1_usize..40,
        pushes in prop::collection::vec(1_usize..8, 1..20),
        seed in any::<u64>(),
    ) {
        let mut buffer = UniformReplay::new(layout(capacity, obs_len), Stream::from_seed(0)).unwrap();
        let mut queue = VecDeque::new();
        let mut id = 0;
        for n in pushes {
            let mut rows: Vec<Row> = (id..id + n).map(|id| row(id, obs_len)).collect();
            if rows.iter().any(|row| row.next_obs.is_none()) {
                for row in &mut rows {
                    row.next_obs = None;
                }
            }
            id += n;
            with_rows(&rows, |rows| buffer.push(rows, ())).unwrap();
            queue.extend(rows);
            while queue.len() > capacity {
                queue.pop_front();
            }
            let ring = buffer.ring();
            prop_assert_eq!(ring.len(), queue.len());
            prop_assert_eq!(ring.position(), id % capacity);
            let known = queue.iter().all(|row| row.next_obs.is_some());
            prop_assert_eq!(ring.has_all_next_obs(), known);

            // Slot by slot: the oldest lies at `position` once the ring has come round.
            let mut arrays = Arrays::new(queue.len(), obs_len);
            let mut has_next_obs = vec![false; queue.len()];
            ring.export(&mut arrays.batch(true), &mut has_next_obs).unwrap();
            let oldest = if queue.len() == capacity { ring.position() } else { 0 };
            for (age, expected) in queue.iter().enumerate() {
                let slot = (oldest + age) % queue.len();
                prop_assert_eq!(&arrays.row(slot, obs_len, has_next_obs[slot]), expected);
            }

            // Any slots alone give the same rows, and the newest are those that changed.
            let (start, stop) = (queue.len() / 3, queue.len().div_ceil(2));
            let mut some = Arrays::new(stop - start, obs_len);
            let mut has_next = vec![false; stop - start];
            ring.export_rows(start..stop, &mut some.batch(true), &mut has_next).unwrap();
            for (k, slot) in (start..stop).enumerate() {
                let expected = arrays.row(slot, obs_len, has_next_obs[slot]);
                prop_assert_eq!(some.row(k, obs_len, has_next[k]), expected);
            }
            let since = ring.written().saturating_sub(2);
            let changed: Vec<usize> = ring.changed(since).into_iter().flatten().collect();
            let newest = (0..queue.len().min(2)).map(|age| {
                (ring.position() + capacity - 1 - age) % capacity
            });
            prop_assert!(newest.clone().all(|slot| changed.contains(&slot)));
            prop_assert!(changed.len() <= queue.len().min(2).max(ring.layout().n_step.n_envs));

            // What is drawn lies in the queue.
            let mut arrays = Arrays::new(5, obs_len);
            buffer.sample(Some(seed), &mut arrays.batch(known), &mut ()).unwrap();
            for i in 0..5 {
                let got = arrays.row(i, obs_len, known);
                let alike = |row: &&Row| row.action == got.action;
                let expected = queue.iter().find(alike).unwrap();
                prop_assert_eq!(&got.obs, &expected.obs);
                prop_assert!(!known || got.next_obs == expected.next_obs);
            }
        }
    }

    #[test]
    fn a_restored_buffer_goes_on_alike(
        capacity in 1_usize..12,
        pushed in 0_usize..30,
        seed in any::<u64>(),
        alpha in 0.0..=1.0,
    ) {
        let new = |seed| {
            PrioritizedReplay::new(layout(capacity, 2), alpha, 0.3, Stream::from_seed(seed)).unwrap()
        };
        let (mut buffer, mut other) = (new(seed), new(0));
        for id in 0..pushed {
            let priority = 1.0 / (1.0 + f64::from(u32::try_from(id).unwrap()));
            with_rows(&[row(id, 2)], |rows| buffer.push(rows, Some(&[priority]))).unwrap();
        }
        buffer.set_beta(0.7).unwrap();
        let n = buffer.ring().len();
        let (mut saved, mut has_next_obs, mut scaled) = (Arrays::new(n, 2), vec![false; n], vec![0.0; n]);
        buffer.ring().export(&mut saved.batch(true), &mut has_next_obs).unwrap();
        buffer.export_priorities(&mut scaled).unwrap();
        let rows = Transitions {
            obs: Values::F32(&saved.obs),
            actions: Values::I64(&saved.actions),
            rewards: &saved.rewards,
            terminated: &saved.terminated,
            truncated: &saved.truncated,
            next_obs: Some(Values::F32(&saved.next_obs)),
        };
        let state = PriorityState {
            scaled: &scaled,
            max_priority: buffer.max_priority(),
            beta: buffer.beta(),
        };
        let stream = Stream::from_words(buffer.stream().to_words()).unwrap();
        let position = buffer.ring().position();
        other.restore(&rows, &has_next_obs, position, stream.clone(), &state).unwrap();
        let wrong = (position + 1) % (capacity + 1);
        if n < capacity {
            prop_assert!(other.restore(&rows, &has_next_obs, wrong, stream, &state).is_err());
        }
        prop_assert_eq!(other.ring().position(), position);
        for id in 30..33 {
            with_rows(&[row(id, 2)], |rows| buffer.push(rows, None)).unwrap();
            with_rows(&[row(id, 2)], |rows| other.push(rows, None)).unwrap();
            prop_assert_eq!(buffer.ring().has_all_next_obs(), other.ring().has_all_next_obs());
            let (mut a, mut b) = (Arrays::new(9, 2), Arrays::new(9, 2));
            let (mut batch, mut importance) = a.split(false);
            buffer.sample(None, &mut batch, &mut importance).unwrap();
            let (mut batch, mut importance) = b.split(false);
            other.sample(None, &mut batch, &mut importance).unwrap();
            prop_assert_eq!((a.obs, a.weights, a.indices), (b.obs, b.weights, b.indices));
        }
    }

    #[test]
    fn draws_follow_the_running_sum_of_priorities(
        priorities in prop::collection::vec(1_u32..50, 1..40),
        updates in prop::collection::vec((0_usize..40, 1_u32..50), 0..40),
        n in 1_usize..64,
        seed in any::<u64>(),
    ) {
        let mut buffer = prioritized(priorities.len(), 1.0, 0.5);
        let mut model: Vec<f64> = priorities.iter().copied().map(f64::from).collect();
        push_each(&mut buffer, &model);
        for (slot, priority) in updates {
            let slot = slot % model.len();
            model[slot] = priority.into();
            buffer.update_priorities(&[slot as u64], &[priority.into()]).unwrap();
        }
        let mut arrays = Arrays::new(n, 1);
        let (mut batch, mut importance) = arrays.split(true);
        buffer.sample(Some(seed), &mut batch, &mut importance).unwrap();
        let total: f64 = model.iter().sum();
        let smallest = model.iter().copied().fold(f64::INFINITY, f64::min);
        let ranks = (0..n).zip(&arrays.indices).zip(&arrays.weights);
        for ((k, &index), &weight) in ranks {
            let slot = usize::try_from(index).unwrap();
            // The slot's share of the running sum and the k-th stratum overlap.
            let before: f64 = model[..slot].iter().sum();
            let (k, n) = (f64::from(u32::try_from(k).unwrap()), f64::from(u32::try_from(n).unwrap()));
            prop_assert!(before <= (k + 1.0) * total / n);
            prop_assert!(before + model[slot] >= k * total / n);
            prop_assert!((f64::from(weight) - (smallest / model[slot]).sqrt()).abs() < 1e-6);
        }
    }
}
