//! Tests of the pool; they share its settings, so each makes its own under one lock.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{LEAST_WORK, MAX_THREADS, Meter, for_each, limit, set_least_work, set_limit};

static SETTINGS: Mutex<()> = Mutex::new(());

fn with_limit(threads: usize) -> MutexGuard<'static, ()> {
    let guard = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    set_limit(Some(threads)).expect("a possible number");
    guard
}

#[test]
fn every_part_is_done_once_for_any_number_of_threads() {
    for threads in [1, 2, 3, 8] {
        let _guard = with_limit(threads);
        let mut done = vec![0_u32; 1000];
        for_each(done.chunks_mut(7).collect(), threads, |part| {
            for count in part {
                *count += 1;
            }
        });
        assert!(done.iter().all(|&count| count == 1));
    }
}

#[test]
fn several_threads_work_at_once() {
    let _guard = with_limit(3);
    // Each part waits for two others: with fewer than three threads this would hang.
    let (barrier, seen) = (Barrier::new(3), Mutex::new(HashSet::new()));
    for_each(vec![(); 3], 2, |()| {
        barrier.wait();
        seen.lock().expect("no panic").insert(thread::current().id());
    });
    assert_eq!(seen.into_inner().expect("no panic").len(), 3);
}

#[test]
fn a_panic_on_a_helper_reaches_the_caller_and_the_pool_goes_on() {
    let _guard = with_limit(2);
    for on_caller in [false, true] {
        let barrier = Barrier::new(2);
        let caller = thread::current().id();
        let outcome = catch_unwind(|| {
            for_each(vec![(); 2], 1, |()| {
                barrier.wait();
                assert!((thread::current().id() == caller) != on_caller, "broken part");
            });
        });
        let panic = outcome.expect_err("a part panicked");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken part"));
    }
    let done = AtomicUsize::new(0);
    for_each(vec![1; 10], 1, |part| {
        done.fetch_add(part, SeqCst);
    });
    assert_eq!(done.into_inner(), 10);
}

#[test]
fn little_work_wakes_no_thread() {
    let _guard = with_limit(4);
    let meter = Meter::new();
    assert_eq!(meter.helpers(1 << 30), 0, "nothing has been measured");
    meter.timed(100, || thread::sleep(std::time::Duration::from_millis(2)));
    assert_eq!(meter.helpers(1), 0);
    assert_eq!(meter.helpers(1 << 20), 3);
    set_least_work(0);
    assert_eq!(meter.helpers(1), 3);
    set_least_work(LEAST_WORK);
}

#[test]
fn impossible_numbers_of_threads_are_refused() {
    let _guard = with_limit(2);
    assert!(set_limit(Some(0)).is_err());
    assert!(set_limit(Some(MAX_THREADS + 1)).is_err());
    assert_eq!(limit(), 2);
    set_limit(None).expect("all cores");
    assert!(limit() >= 1);
}
