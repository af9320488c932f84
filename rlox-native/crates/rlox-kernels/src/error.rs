//! The one error type of the crate.

use std::fmt;

/// Result of every fallible function of the crate.
pub type Result<T> = std::result::Result<T, KernelError>;

/// Mistakes of a caller, with the values needed to correct them.
///
/// `name` is the wrong argument, `got` and `value` are its content, and `like` is the argument or
/// quantity that determines the right one. `index` is `None` if there is only one element.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's message says what its fields are")]
pub enum KernelError {
    /// An array differs in shape from the one it belongs to.
    #[error(
        "{name} must have {} {} like {like}, got {}",
        noun(expected),
        Shape(expected),
        Shape(got)
    )]
    Shape { name: &'static str, expected: Vec<usize>, like: &'static str, got: Vec<usize> },
    /// An array's length is not a multiple of its parts' size.
    #[error("{name} must hold whole {parts} of {size_name} = {size}, got {got} numbers")]
    Parts {
        name: &'static str,
        parts: &'static str,
        size_name: &'static str,
        size: usize,
        got: usize,
    },
    /// A number lies outside its closed range.
    #[error("{name} must lie in [{}, {}], got {}", Number(*low), Number(*high), Number(*value))]
    Range { name: &'static str, low: f64, high: f64, value: f64 },
    /// A number lies outside its range, which excludes the upper bound.
    #[error("{name} must lie in [{}, {}), got {}", Number(*low), Number(*bound), Number(*value))]
    Below { name: &'static str, low: f64, bound: f64, value: f64 },
    /// Two bounds do not form an interval.
    #[error(
        "{name} must be finite and the first at most the second, got ({}, {})",
        Number(*low),
        Number(*high)
    )]
    Bounds { name: &'static str, low: f64, high: f64 },
    /// A number must be finite and is not.
    #[error("{name} must be finite, got a non-finite value at index {index}")]
    NonFinite { name: &'static str, index: usize },
    /// Numbers whose squares are too large for double precision.
    #[error("{name} must have a finite variance; its numbers lie too far apart")]
    Variance { name: &'static str },
    /// An array has elements of another type.
    #[error("{name} must have dtype {expected}, got {got}")]
    DType { name: &'static str, expected: &'static str, got: &'static str },
    /// An index is out of range.
    #[error("{name}[{place}] must lie in [0, {len}), got {value}")]
    Index { name: &'static str, place: usize, value: i128, len: usize },
    /// An index is given more than once.
    #[error("{name} must name each stream once, got {value} twice")]
    Twice { name: &'static str, value: usize },
    /// No stream of a buffer is long enough for a sequence.
    #[error(
        "sequences of {length} rows and their context need {} rows of one env; there are at most \
         {stored}",
        length.saturating_add(1)
    )]
    ShortStreams { length: usize, stored: usize },
    /// A number that does not yield a priority.
    #[error(
        "{} must be finite and at most {:e} in size, got {}",
        Element("priorities", "priority", *index),
        f32::MAX,
        Number(*value)
    )]
    Priority { index: Option<usize>, value: f64 },
    /// Steps of some envs are missing.
    #[error(
        "a buffer of n_envs = {n_envs} stores one step of every env after the other, so transitions \
         come in multiples of {n_envs}, got {got}; push the steps of all envs with one push_batch"
    )]
    Envs { n_envs: usize, got: usize },
    /// Two goals overlap in an observation.
    #[error(
        "achieved_goal and desired_goal must not overlap, got goals of {len} numbers at {achieved} \
         and {desired}"
    )]
    GoalsOverlap { achieved: usize, desired: usize, len: usize },
    /// A recording ends within an episode.
    #[error(
        "the last transition, {last}, ends no episode; set truncated[{last}] where the recording \
         stopped within one"
    )]
    NoEpisodeEnd { last: usize },
    /// A discrete action does not exist.
    #[error("{} must lie in [0, {}], got {value}", Element("actions", "action", *index), n_actions - 1)]
    Action { index: Option<usize>, n_actions: i64, value: i64 },
    /// An agent's action lies outside its space.
    #[error(
        "the action of agent '{agent}' in env {env} must lie in [{}, {}], got {}",
        Number(*low),
        Number(*high),
        Number(*value)
    )]
    AgentAction { agent: String, env: usize, low: f64, high: f64, value: f64 },
    /// An action mask allows no action.
    #[error("action_masks[{row}] allows no action")]
    NoChoice { row: usize },
    /// An action is not allowed by its mask.
    #[error("action_masks[{row}] does not allow actions[{row}] = {action}")]
    Forbidden { row: usize, action: i64 },
    /// An env cannot be made, or contradicts its own spec.
    #[error("cannot make the env '{env_id}': {reason}")]
    Env { env_id: String, reason: String },
    /// Discrete actions were given to a continuous env, or the reverse.
    #[error("{env_id} takes {expected} actions, got {got}")]
    ActionKind { env_id: String, expected: &'static str, got: &'static str },
    /// The call is not allowed in this state of the object.
    #[error("{0}")]
    State(#[from] StateError),
    /// A saved state is invalid for this kind of object.
    #[error("{name} is not a valid state: {reason}")]
    Corrupt { name: &'static str, reason: &'static str },
    /// No env has this name.
    #[error(
        "unknown env id '{id}'{}; the native envs are {}; rlox.envs.make_vec_env makes others",
        DidYouMean(*nearest),
        known.join(", ")
    )]
    UnknownEnv { id: String, nearest: Option<&'static str>, known: &'static [&'static str] },
    /// A file operation of the operating system failed.
    #[error("cannot {action} '{path}': {reason}")]
    Io { action: &'static str, path: String, code: Option<i32>, reason: String },
    /// A file has the wrong content or kind.
    #[error("'{path}' {reason}")]
    File { path: String, reason: &'static str },
    /// Memory for an object of the requested size cannot be allocated.
    #[error("not enough memory for {name} = {requested}")]
    OutOfMemory { name: &'static str, requested: usize },
    /// An argument requires more memory than is available.
    #[error(
        "not enough memory for {name} = {value}: it would take {}, and {} are available{remedy}",
        Gib(*bytes),
        Gib(*available)
    )]
    NoRoom { name: &'static str, value: String, bytes: u64, available: u64, remedy: &'static str },
    /// The operating system has no source of randomness.
    #[error("the operating system gave no entropy; pass a seed")]
    NoEntropy,
}

/// Calls in the wrong order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's message says what its fields are")]
pub enum StateError {
    /// An env was stepped before its first episode began.
    #[error("the env has not been reset; call reset() before step()")]
    NotReset,
    /// An env was stepped after its episode ended.
    #[error("the episode has ended; call reset() before the next step()")]
    EpisodeOver,
    /// A vector env was stepped before its first episodes began.
    #[error("the envs have not been reset; call reset_all() before stepping")]
    BatchNotReset,
    /// A buffer over a file was used after it was closed.
    #[error("the buffer is closed")]
    Closed,
    /// There are fewer transitions than a sequence has.
    #[error("such sequences take at least {needed} stored transitions, got {stored}")]
    TooFew { needed: usize, stored: usize },
    /// A buffer was sampled before anything was pushed.
    #[error("the buffer is empty; push a transition before sampling")]
    EmptyBuffer,
    /// Next observations were requested from a buffer that lacks some of them.
    #[error(
        "the buffer holds transitions that were pushed without next_obs, so there is nothing to \
         bootstrap from; push next_obs with every transition"
    )]
    NextObsUnknown,
}

/// Checks that `got` equals `expected`, the length of the argument `like`.
///
/// # Errors
/// [`KernelError::Shape`].
pub fn check_len(
    name: &'static str,
    got: usize,
    like: &'static str,
    expected: usize,
) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(KernelError::Shape { name, expected: vec![expected], like, got: vec![got] })
}

/// Checks that `got` numbers form whole `parts` of `size` each; `size` is not 0.
pub(crate) fn check_parts(
    name: &'static str,
    got: usize,
    parts: &'static str,
    size_name: &'static str,
    size: usize,
) -> Result<()> {
    if got.is_multiple_of(size) {
        return Ok(());
    }
    Err(KernelError::Parts { name, parts, size_name, size, got })
}

/// Checks that `value` is a number in `[low, high]`.
///
/// # Errors
/// [`KernelError::Range`].
pub fn check_range(name: &'static str, value: f64, low: f64, high: f64) -> Result<()> {
    // Written so that NaN, which compares false with everything, is refused.
    if value >= low && value <= high {
        return Ok(());
    }
    Err(KernelError::Range { name, low, high, value })
}

/// Checks that a size lies in `[1, most]`; `usize::MAX` means no upper bound.
///
/// # Errors
/// [`KernelError::Range`].
#[expect(clippy::cast_precision_loss, reason = "a size that is too large is so by far")]
pub fn check_size(name: &'static str, size: usize, most: usize) -> Result<()> {
    let high = if most == usize::MAX { f64::INFINITY } else { most as f64 };
    check_range(name, size as f64, 1.0, high)
}

/// Checks that `value` is finite and not negative.
///
/// # Errors
/// [`KernelError::Range`].
pub fn check_weight(name: &'static str, value: f64) -> Result<()> {
    check_range(name, value, 0.0, f64::MAX)
}

/// Prints very large and very small numbers with an exponent, and whole ones without a fraction.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// Prints a number of bytes for people.
struct Gib(u64);

impl fmt::Display for Gib {
    #[expect(clippy::cast_precision_loss, reason = "for a message")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} GiB", self.0 as f64 / f64::from(1 << 30))
    }
}

/// The word for a shape of this number of axes.
fn noun(shape: &[usize]) -> &'static str {
    if shape.len() == 1 { "length" } else { "shape" }
}

/// Prints `4` for one axis and `(4, 2)` for more.
struct Shape<'a>(&'a [usize]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [length] = self.0 {
            return write!(f, "{length}");
        }
        f.write_str("(")?;
        for (axis, size) in self.0.iter().enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            write!(f, "{separator}{size}")?;
        }
        f.write_str(")")
    }
}

/// Prints the plural name with an index, or the singular name.
struct Element(&'static str, &'static str, Option<usize>);

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(plural, _, Some(index)) => write!(f, "{plural}[{index}]"),
            Self(_, singular, None) => f.write_str(singular),
        }
    }
}

struct DidYouMean(Option<&'static str>);

impl fmt::Display for DidYouMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, ", did you mean '{name}'?"),
            None => Ok(()),
        }
    }
}
