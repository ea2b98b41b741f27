//! The alarm of a connection.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Wakes a connection at its session's deadline. Deadlines move with every frame, mostly away: the
/// timer is reset only when one comes nearer, and otherwise fires too early now and then, which
/// costs less than a reset each time.
pub struct Alarm {
    begun: Instant,
    timer: Pin<Box<Sleep>>,
    /// When it rings, in milliseconds since `begun`; `None`: never.
    set_ms: Option<u64>,
}

impl Alarm {
    /// An alarm that is not set, of a connection that began then.
    pub fn new(begun: Instant) -> Alarm {
        Alarm { begun, timer: Box::pin(tokio::time::sleep_until(begun.into())), set_ms: None }
    }

    /// It is to ring at `deadline_ms` at the latest.
    pub fn set(&mut self, deadline_ms: Option<u64>) {
        let Some(deadline_ms) = deadline_ms else { return };
        if self.set_ms.is_some_and(|set_ms| set_ms <= deadline_ms) {
            return;
        }
        if let Some(at) = self.begun.checked_add(Duration::from_millis(deadline_ms)) {
            self.timer.as_mut().reset(at.into());
            self.set_ms = Some(deadline_ms);
        }
    }

    /// Waits until it rings.
    pub async fn rings(&mut self) {
        match self.set_ms {
            Some(_) => self.timer.as_mut().await,
            None => std::future::pending().await,
        }
        self.set_ms = None;
    }
}
