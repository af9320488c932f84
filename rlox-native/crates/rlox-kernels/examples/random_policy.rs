//! Steps eight carts with random actions and prints how long the episodes were.

use rlox_kernels::Result;
use rlox_kernels::env::{Actions, StepBuffers, make_vec};
use rlox_kernels::rng::Pcg64;

#[expect(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<()> {
    let n = 8;
    let mut envs = make_vec("CartPole-v1", n)?;
    envs.seed_all(&[0, 1, 2, 3, 4, 5, 6, 7])?;

    let (mut obs, mut final_obs) = (vec![0.0_f32; n * 4], vec![0.0_f32; n * 4]);
    let (mut terminated, mut truncated) = (vec![false; n], vec![false; n]);
    let mut rewards = vec![0.0; n];
    envs.reset_all((&mut obs).into())?;

    let mut rng = Pcg64::from_seed(0);
    let (mut steps, mut episodes) = (0.0, 0.0);
    for _ in 0..1_000 {
        let actions: Vec<i64> = (0..n).map(|_| i64::from(rng.next_double() < 0.5)).collect();
        let mut out = StepBuffers {
            obs: (&mut obs).into(),
            rewards: &mut rewards,
            terminated: &mut terminated,
            truncated: &mut truncated,
            final_obs: (&mut final_obs).into(),
        };
        envs.step_all(Actions::Discrete(&actions), &mut out)?;
        steps += rewards.iter().sum::<f64>();
        episodes +=
            terminated.iter().zip(&truncated).map(|(a, b)| f64::from(u8::from(a | b))).sum::<f64>();
    }
    println!("{episodes} episodes of {:.1} steps on average", steps / episodes);
    Ok(())
}
