//! Checks of free memory before an object reserves it.

use pyo3::prelude::*;
use rlox_kernels::memory;

use crate::errors::raise;

/// Copies of a network's numbers in its learner: gradients, and parameters in the order of
/// products, including the target's.
const COPIES: usize = 4;

/// Refuses an argument that needs more memory than the machine, the container or a limit of the
/// process has left. The `remedy` ends the message.
pub(crate) fn check_room(
    name: &'static str,
    value: &dyn std::fmt::Debug,
    bytes: usize,
    remedy: &'static str,
) -> PyResult<()> {
    memory::check_room(name, value, bytes, remedy).map_err(raise)
}

/// Refuses a buffer if there is no room for its transitions of `bytes` bytes.
pub(crate) fn check_transitions(name: &'static str, number: usize, bytes: usize) -> PyResult<()> {
    let remedy = "; take fewer, or store observations in a smaller dtype";
    check_room(name, &number, bytes, remedy)
}

/// Refuses memories of policy and value, of `units` units each, if there is no room for them.
pub(crate) fn check_memory(inputs: usize, units: usize) -> PyResult<()> {
    let gates = units.saturating_mul(4);
    let numbers = inputs.saturating_add(units).saturating_mul(gates).saturating_mul(2 * COPIES);
    let bytes = numbers.saturating_mul(size_of::<f32>());
    check_room("memory_size", &units, bytes, "; take fewer units")
}

/// Refuses `networks` of such layers, of a policy's or of a critic's, that there is no room for.
pub(crate) fn check_networks(
    inputs: usize,
    hidden: [&[usize]; 2],
    outputs: usize,
    networks: usize,
) -> PyResult<()> {
    for hidden in hidden {
        let sizes = [&[inputs], hidden, &[outputs]].concat();
        let pairs = sizes.iter().zip(sizes.iter().skip(1));
        let weights = pairs.fold(0_usize, |sum, (a, b)| sum.saturating_add(a.saturating_mul(*b)));
        let bytes = weights.saturating_mul(networks).saturating_mul(COPIES * size_of::<f32>());
        check_room("hidden", &hidden, bytes, "; take fewer units")?;
    }
    Ok(())
}
