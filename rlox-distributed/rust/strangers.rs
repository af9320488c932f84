//! A bounded set of unauthenticated connections; when it is full, a new one closes the oldest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The connections, the oldest first.
#[derive(Default)]
pub struct Strangers(Mutex<VecDeque<Arc<Notify>>>);

impl Strangers {
    /// Take one in; where there are already so many, the oldest has to go.
    pub fn admit(self: &Arc<Self>, most: usize) -> Stranger {
        let goes = Arc::new(Notify::new());
        let mut all = self.all();
        if all.len() >= most
            && let Some(oldest) = all.pop_front()
        {
            oldest.notify_one();
        }
        all.push_back(goes.clone());
        Stranger { among: self.clone(), goes }
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped or no longer a stranger.
pub struct Stranger {
    among: Arc<Strangers>,
    goes: Arc<Notify>,
}

impl Stranger {
    /// Return once it has to go.
    pub async fn evicted(&self) {
        self.goes.notified().await;
    }

    /// It has shown the token, and may stay.
    pub fn stays(&self) {
        self.among.all().retain(|each| !Arc::ptr_eq(each, &self.goes));
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.stays();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_to_go(stranger: &Stranger) -> bool {
        pin!(stranger.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_makes_room_and_who_showed_a_token_stays() {
        let all = Arc::new(Strangers::default());
        let known = all.admit(2);
        known.stays();
        let (first, second) = (all.admit(2), all.admit(2));
        assert!(!has_to_go(&first));
        let third = all.admit(2);
        assert!(has_to_go(&first) && !has_to_go(&second) && !has_to_go(&known));
        drop(second);
        let fourth = all.admit(2);
        assert!(!has_to_go(&third) && !has_to_go(&fourth));
    }
}
