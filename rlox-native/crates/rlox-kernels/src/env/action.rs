//! Actions: of one env, and of a batch.

use crate::error::{KernelError, Result, check_len};

/// The actions an env takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActionSpace {
    /// The integers in `[0, n)`.
    Discrete {
        /// How many actions there are.
        n: i64,
    },
    /// Real vectors between the bounds.
    Continuous {
        /// Lower bounds, one per component.
        low: &'static [f32],
        /// Upper bounds, one per component.
        high: &'static [f32],
    },
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
    fn kind(&self) -> &'static str {
        match self {
            Self::Discrete(_) => "discrete",
            Self::Continuous(_) => "continuous",
        }
    }
}

/// One env's action, as its dynamics take it.
pub trait Action: Copy + Send {
    /// The name of the kind, as messages print it.
    const KIND: &'static str;

    /// Checks the action against `space`; `index` is the env it is for, where there are several.
    ///
    /// # Errors
    /// [`KernelError::Action`] or [`KernelError::NonFinite`].
    fn check(self, space: &ActionSpace, index: Option<usize>) -> Result<()>;

    /// The rows of a batch, or `None` where it is of the other kind.
    fn rows<'a>(actions: Actions<'a>, n_envs: usize) -> Option<Result<&'a [Self]>>;

    /// The rows of a batch for `n_envs` envs, each checked against `space`.
    ///
    /// # Errors
    /// [`KernelError::ActionKind`], [`KernelError::Shape`], or what [`Action::check`] finds.
    fn checked_rows<'a>(
        actions: Actions<'a>,
        n_envs: usize,
        env_id: &'static str,
        space: &ActionSpace,
    ) -> Result<&'a [Self]> {
        let Some(rows) = Self::rows(actions, n_envs) else {
            return Err(KernelError::ActionKind {
                env_id,
                expected: Self::KIND,
                got: actions.kind(),
            });
        };
        let rows = rows?;
        for (index, row) in rows.iter().enumerate() {
            row.check(space, Some(index))?;
        }
        Ok(rows)
    }
}

impl Action for i64 {
    const KIND: &'static str = "discrete";

    #[inline]
    fn check(self, space: &ActionSpace, index: Option<usize>) -> Result<()> {
        match *space {
            ActionSpace::Discrete { n } if !(0..n).contains(&self) => {
                Err(KernelError::Action { index, n_actions: n, value: self })
            }
            _ => Ok(()),
        }
    }

    fn rows<'a>(actions: Actions<'a>, n_envs: usize) -> Option<Result<&'a [Self]>> {
        let Actions::Discrete(rows) = actions else { return None };
        Some(check_len("actions", rows.len(), "n_envs", n_envs).map(|()| rows))
    }
}

impl<const D: usize> Action for [f32; D] {
    const KIND: &'static str = "continuous";

    /// Refuses what is not finite. Bounds are the env's own business: classic control clips.
    fn check(self, _space: &ActionSpace, index: Option<usize>) -> Result<()> {
        match self.iter().position(|component| !component.is_finite()) {
            Some(component) => {
                let index = index.unwrap_or(0) * D + component;
                Err(KernelError::NonFinite { name: "actions", index })
            }
            None => Ok(()),
        }
    }

    fn rows<'a>(actions: Actions<'a>, n_envs: usize) -> Option<Result<&'a [Self]>> {
        let Actions::Continuous(components) = actions else { return None };
        let expected = n_envs.saturating_mul(D);
        Some(
            check_len("actions", components.len(), "n_envs * action_dim", expected)
                .map(|()| components.as_chunks().0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: ActionSpace = ActionSpace::Discrete { n: 2 };
    const TORQUE: ActionSpace = ActionSpace::Continuous { low: &[-2.0], high: &[2.0] };

    #[test]
    fn a_bad_discrete_action_is_named_with_its_index() {
        let error = i64::checked_rows(Actions::Discrete(&[0, 1, 2]), 3, "X-v0", &TWO).unwrap_err();
        assert_eq!(error.to_string(), "actions[2] must lie in [0, 1], got 2");
    }

    #[test]
    fn a_bad_single_action_is_named_without_index() {
        let error = (-1_i64).check(&TWO, None).unwrap_err();
        assert_eq!(error.to_string(), "action must lie in [0, 1], got -1");
    }

    #[test]
    fn continuous_actions_come_in_rows() {
        let rows = <[f32; 2]>::checked_rows(
            Actions::Continuous(&[1.0, 2.0, 3.0, 4.0]),
            2,
            "X-v0",
            &TORQUE,
        );
        assert_eq!(rows, Ok(&[[1.0, 2.0], [3.0, 4.0]][..]));
    }

    #[test]
    fn actions_that_are_not_finite_are_refused() {
        let actions = Actions::Continuous(&[0.0, f32::NAN]);
        let error = <[f32; 1]>::checked_rows(actions, 2, "X-v0", &TORQUE).unwrap_err();
        assert_eq!(error, KernelError::NonFinite { name: "actions", index: 1 });
    }

    #[test]
    fn the_wrong_kind_of_action_is_refused() {
        let error = i64::checked_rows(Actions::Continuous(&[0.0]), 1, "X-v0", &TWO).unwrap_err();
        assert_eq!(error.to_string(), "X-v0 takes discrete actions, got continuous");
    }
}
