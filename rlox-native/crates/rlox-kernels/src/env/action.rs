//! Actions of one env and of a batch.

use crate::error::{KernelError, Result, check_len};

/// The actions an env takes.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionSpace {
    /// The integers in `[0, n)`.
    Discrete {
        /// Number of actions.
        n: i64,
    },
    /// Real vectors between the bounds.
    Continuous {
        /// Lower bounds, one per component.
        low: Vec<f32>,
        /// Upper bounds, one per component.
        high: Vec<f32>,
    },
}

impl ActionSpace {
    /// Whether there is an action and the bounds fit together.
    pub(super) fn is_possible(&self) -> bool {
        match self {
            Self::Discrete { n } => *n > 0,
            Self::Continuous { low, high } => !low.is_empty() && low.len() == high.len(),
        }
    }

    /// The name of the kind, as messages print it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Discrete { .. } => <i64 as Action>::KIND,
            Self::Continuous { .. } => <&[f32] as Action>::KIND,
        }
    }
}

/// One action for each env of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Actions<'a> {
    /// One integer per env.
    Discrete(&'a [i64]),
    /// One row of components per env, rows one after the other.
    Continuous(&'a [f32]),
}

impl Actions<'_> {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Discrete(_) => "discrete",
            Self::Continuous(_) => "continuous",
        }
    }

    /// The part of env `i`, one of `n_envs` equal parts.
    pub(super) fn of_env(self, i: usize, n_envs: usize) -> Self {
        match self {
            Self::Discrete(rows) => Self::Discrete(part(rows, i, n_envs)),
            Self::Continuous(components) => Self::Continuous(part(components, i, n_envs)),
        }
    }
}

/// The `i`-th of `n` equal parts.
fn part<T>(all: &[T], i: usize, n: usize) -> &[T] {
    let size = all.len() / n;
    &all[i * size..(i + 1) * size]
}

/// One env's action, as its dynamics take it.
pub trait Action<'a>: Send + Sync + Sized {
    /// The name of the kind, as messages print it.
    const KIND: &'static str;

    /// Checks the action against `space`; `index` is its env's number in a batch.
    ///
    /// # Errors
    /// [`KernelError::Action`] or [`KernelError::NonFinite`].
    fn check(&self, space: &ActionSpace, index: Option<usize>) -> Result<()>;

    /// The rows of a batch, or `None` for a batch of the other kind.
    fn rows(
        actions: Actions<'a>,
        n_envs: usize,
        space: &ActionSpace,
    ) -> Option<Result<impl Iterator<Item = Self> + Clone + Send>>;

    /// The rows of a batch for `n_envs` envs, each checked against `space`.
    ///
    /// # Errors
    /// [`KernelError::ActionKind`], [`KernelError::Shape`], or an error of [`Action::check`].
    #[inline]
    fn checked_rows(
        actions: Actions<'a>,
        n_envs: usize,
        env_id: &str,
        space: &ActionSpace,
    ) -> Result<impl Iterator<Item = Self> + Clone + Send> {
        let got = actions.kind();
        let Some(rows) = Self::rows(actions, n_envs, space) else {
            let (env_id, expected) = (env_id.to_owned(), Self::KIND);
            return Err(KernelError::ActionKind { env_id, expected, got });
        };
        let rows = rows?;
        for (index, row) in rows.clone().enumerate() {
            row.check(space, Some(index))?;
        }
        Ok(rows)
    }
}

impl<'a> Action<'a> for i64 {
    const KIND: &'static str = "discrete";

    #[inline]
    fn check(&self, space: &ActionSpace, index: Option<usize>) -> Result<()> {
        match *space {
            ActionSpace::Discrete { n } if !(0..n).contains(self) => {
                Err(KernelError::Action { index, n_actions: n, value: *self })
            }
            _ => Ok(()),
        }
    }

    fn rows(
        actions: Actions<'a>,
        n_envs: usize,
        _: &ActionSpace,
    ) -> Option<Result<impl Iterator<Item = Self> + Clone + Send>> {
        let Actions::Discrete(rows) = actions else { return None };
        Some(check_len("actions", rows.len(), "n_envs", n_envs).map(|()| rows.iter().copied()))
    }
}

impl<'a, const D: usize> Action<'a> for [f32; D] {
    const KIND: &'static str = "continuous";

    #[inline]
    fn check(&self, _: &ActionSpace, index: Option<usize>) -> Result<()> {
        check_finite(self, index)
    }

    fn rows(
        actions: Actions<'a>,
        n_envs: usize,
        _: &ActionSpace,
    ) -> Option<Result<impl Iterator<Item = Self> + Clone + Send>> {
        let rows = components(actions, n_envs, D)?;
        Some(rows.map(|components| components.as_chunks().0.iter().copied()))
    }
}

impl<'a> Action<'a> for &'a [f32] {
    const KIND: &'static str = "continuous";

    #[inline]
    fn check(&self, _: &ActionSpace, index: Option<usize>) -> Result<()> {
        check_finite(self, index)
    }

    fn rows(
        actions: Actions<'a>,
        n_envs: usize,
        space: &ActionSpace,
    ) -> Option<Result<impl Iterator<Item = Self> + Clone + Send>> {
        let dim = if let ActionSpace::Continuous { low, .. } = space { low.len() } else { 1 };
        let rows = components(actions, n_envs, dim)?;
        Some(rows.map(move |components| components.chunks_exact(dim.max(1))))
    }
}

/// Refuses non-finite numbers. Bounds are left to the env: classic control clips.
#[inline]
fn check_finite(action: &[f32], index: Option<usize>) -> Result<()> {
    match action.iter().position(|component| !component.is_finite()) {
        Some(component) => {
            let index = index.unwrap_or(0) * action.len() + component;
            Err(KernelError::NonFinite { name: "actions", index })
        }
        None => Ok(()),
    }
}

/// The components of `n_envs` rows of continuous actions.
fn components(actions: Actions<'_>, n_envs: usize, dim: usize) -> Option<Result<&[f32]>> {
    let Actions::Continuous(components) = actions else { return None };
    let expected = n_envs.saturating_mul(dim);
    let checked = check_len("actions", components.len(), "n_envs * action_dim", expected);
    Some(checked.map(|()| components))
}
