//! Any calls on the stream buffer: no panic, and draws are consecutive rows of one stream.
//!
//! The first field of a row is its number in its stream, the second is written back.

#![no_main]

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rlox_kernels::replay::{SequenceReplay, Stream, Streams, StreamsState};

#[derive(Debug, Arbitrary)]
struct Input {
    capacity: u8,
    n_envs: u8,
    online_length: Option<u8>,
    calls: Vec<Call>,
}

#[derive(Debug, Arbitrary)]
enum Call {
    /// One row to each of some streams, one of which may not exist or be repeated.
    Push {
        envs: Vec<u8>,
        too_short: bool,
    },
    /// Without a length, that of the sequences drawn once.
    Sample {
        n: u8,
        length: Option<u8>,
        seed: Option<u64>,
        too_short: bool,
    },
    Update {
        indices: Vec<i16>,
        largest: bool,
        value: u8,
        too_short: bool,
    },
    /// Copies of the ranges changed since a mark.
    Changed {
        since: u64,
    },
    Export {
        start: u8,
        stop: u8,
    },
    /// A saved state with changed parts.
    Restore {
        totals: Option<Vec<u64>>,
        queued: Option<Vec<u64>>,
        queue: Vec<(u8, u64)>,
    },
}

/// The expected content of a buffer, as far as the calls determine it.
struct Model {
    ring: u64,
    totals: Vec<u64>,
    /// The second field of every row ever pushed to each stream.
    values: Vec<Vec<u8>>,
    /// Whether rows are still at the places of their numbers: a state with other totals moves them.
    known: bool,
}

impl Model {
    fn oldest(&self, env: usize) -> u64 {
        self.totals[env].saturating_sub(self.ring)
    }

    fn stored(&self, env: usize) -> u64 {
        self.totals[env].min(self.ring)
    }
}

fuzz_target!(|input: Input| {
    let Input { capacity, n_envs, online_length, calls } = input;
    let sizes = Streams {
        capacity: capacity.into(),
        n_envs: n_envs.into(),
        online_length: online_length.map(usize::from),
    };
    let made = SequenceReplay::new(sizes, vec![8, 1], Stream::from_seed(0));
    let Ok(mut buffer) = made else { return };
    let n_envs = usize::from(n_envs);
    let ring = u64::from(capacity) / n_envs as u64;
    let mut model =
        Model { ring, totals: vec![0; n_envs], values: vec![vec![]; n_envs], known: true };
    for call in calls {
        match call {
            Call::Push { envs, too_short } => push(&mut buffer, &mut model, &envs, too_short),
            Call::Sample { n, length, seed, too_short } => {
                let length = length.or(online_length).unwrap_or(1).into();
                sample(&mut buffer, &model, n.into(), length, seed, too_short);
            }
            Call::Update { indices, largest, value, too_short } => {
                let indices = indices.into_iter().map(i64::from);
                let indices = indices.chain(largest.then_some(i64::MAX)).collect::<Vec<_>>();
                update(&mut buffer, &mut model, &indices, value, too_short);
            }
            Call::Changed { since } => {
                let (_, runs) = buffer.changed(since);
                let mut end = 0;
                for run in runs {
                    assert!(run.start >= end && run.start < run.end && run.end <= buffer.filled());
                    end = run.end;
                    let n = run.len();
                    let (mut numbers, mut values) = (vec![0; 8 * n], vec![0; n]);
                    buffer.export(run, &mut [&mut numbers, &mut values]).unwrap();
                }
            }
            Call::Export { start, stop } => {
                let (start, stop) = (usize::from(start), usize::from(stop));
                let n = stop.saturating_sub(start);
                let (mut numbers, mut values) = (vec![0; 8 * n], vec![0; n]);
                let copied = buffer.export(start..stop, &mut [&mut numbers, &mut values]).is_ok();
                assert_eq!(copied, start.max(stop) <= buffer.filled());
            }
            Call::Restore { totals, queued, queue } => {
                restore(&mut buffer, &mut model, totals, queued, &queue);
            }
        }
        let stored: u64 = (0..n_envs).map(|env| model.stored(env)).sum();
        assert_eq!(buffer.len() as u64, stored);
        assert_eq!(buffer.state().totals, model.totals);
    }
});

fn push(buffer: &mut SequenceReplay, model: &mut Model, envs: &[u8], too_short: bool) {
    let envs: Vec<usize> = envs.iter().map(|&env| env.into()).collect();
    let number = |&env: &usize| model.totals.get(env).copied().unwrap_or(0).to_le_bytes();
    let numbers: Vec<u8> = envs.iter().flat_map(number).collect();
    let values = vec![0; envs.len().saturating_sub(usize::from(too_short))];
    let known = envs.iter().all(|&env| env < model.totals.len());
    let once = envs.iter().enumerate().all(|(place, env)| !envs[..place].contains(env));
    let stored = buffer.push(&[&numbers, &values], &envs).is_ok();
    assert_eq!(stored, known && once && (!too_short || envs.is_empty()));
    if stored {
        for env in envs {
            model.totals[env] += 1;
            model.values[env].push(0);
        }
    }
}

fn update(
    buffer: &mut SequenceReplay,
    model: &mut Model,
    indices: &[i64],
    value: u8,
    too_short: bool,
) {
    let rows = vec![value; indices.len().saturating_sub(usize::from(too_short))];
    let updated = buffer.update(indices, &[(1, &rows)]).is_ok();
    assert_eq!(updated, !too_short || indices.is_empty());
    let n_envs = model.totals.len() as u64;
    for index in indices.iter().filter_map(|&index| u64::try_from(index).ok()) {
        let (env, number) = ((index % n_envs) as usize, index / n_envs);
        let stored = (model.oldest(env)..model.totals[env]).contains(&number);
        if updated && model.known && stored {
            model.values[env][number as usize] = value;
        }
    }
}

fn sample(
    buffer: &mut SequenceReplay,
    model: &Model,
    n: usize,
    length: usize,
    seed: Option<u64>,
    too_short: bool,
) {
    let rows = n * (length + 1);
    let (mut numbers, mut values) = (vec![0xff; 8 * rows], vec![0xff; rows]);
    let mut indices = vec![-1; rows.saturating_sub(usize::from(too_short))];
    let before = buffer.state().clone();
    let out: &mut [&mut [u8]] = &mut [&mut numbers, &mut values];
    let drawn = buffer.sample(seed, length, out, &mut indices).is_ok();
    let n_envs = model.totals.len();
    let enough = (0..n_envs).any(|env| model.stored(env) > length as u64);
    assert_eq!(drawn, enough && (!too_short || rows == 0));
    if !drawn || seed.is_some() {
        assert_eq!(&before, buffer.state());
    }
    if !drawn {
        assert!(indices.iter().all(|&index| index == -1));
        return;
    }
    for sequence in 0..n {
        let place = |step: usize| step * n + sequence;
        let first = u64::try_from(indices[place(0)]).unwrap();
        for step in 0..=length {
            let index = u64::try_from(indices[place(step)]).unwrap();
            assert_eq!(index, first + (step * n_envs) as u64);
            let (env, number) = ((index % n_envs as u64) as usize, index / n_envs as u64);
            assert!(number < model.totals[env]);
            assert!(number >= model.oldest(env));
            if model.known {
                assert_eq!(numbers[8 * place(step)..][..8], number.to_le_bytes());
                assert_eq!(values[place(step)], model.values[env][number as usize]);
            }
        }
    }
}

fn restore(
    buffer: &mut SequenceReplay,
    model: &mut Model,
    totals: Option<Vec<u64>>,
    queued: Option<Vec<u64>>,
    queue: &[(u8, u64)],
) {
    let (filled, same) = (buffer.filled(), totals.is_none());
    let (mut numbers, mut values) = (vec![0; 8 * filled], vec![0; filled]);
    buffer.export(0..filled, &mut [&mut numbers, &mut values]).unwrap();
    let saved = buffer.state().clone();
    let more = queue.iter().map(|&(env, first)| (usize::from(env), first));
    let state = StreamsState {
        totals: totals.unwrap_or(saved.totals),
        queued: queued.unwrap_or(saved.queued),
        queue: saved.queue.into_iter().chain(more).collect::<VecDeque<_>>(),
        stream: saved.stream,
    };
    let (before, expected) = (buffer.state().clone(), state.clone());
    let restored = buffer.import(state, &[&numbers, &values]).is_ok();
    assert_eq!(buffer.state(), if restored { &expected } else { &before });
    if restored {
        model.totals.clone_from(&expected.totals);
        model.known &= same;
    }
}
