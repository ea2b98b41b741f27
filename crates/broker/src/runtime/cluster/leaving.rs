//! Notices between this node and another about leaving a damaged store.
//!
//! Never here: who may leave ([`postroad_cluster::LeaveTurns`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postroad_cluster::{DiskSpace, GRANT_MS, LeaveNotice};

use crate::runtime::cluster::space::PeerSpace;

/// What the other node has said last.
#[derive(Debug, Default)]
pub struct PeerLeaving {
    takes_notices: AtomicBool,
    asks: AtomicBool,
    granted_at: Mutex<Option<Instant>>,
}

impl PeerLeaving {
    /// As the peer said when it connected: those of a version before take no notices.
    pub fn introduced(&self, takes_notices: bool) {
        self.takes_notices.store(takes_notices, Ordering::Release);
    }

    /// Whether the peer answers.
    pub fn takes_notices(&self) -> bool {
        self.takes_notices.load(Ordering::Acquire)
    }

    /// A notice of the peer.
    pub fn heard(&self, notice: LeaveNotice) {
        match notice {
            LeaveNotice::Asks => self.asks.store(true, Ordering::Release),
            LeaveNotice::Granted => {
                if let Ok(mut granted_at) = self.granted_at.lock() {
                    *granted_at = Some(Instant::now());
                }
            }
        }
    }

    /// Whether the peer has asked since this was asked last.
    pub fn take_question(&self) -> bool {
        self.asks.swap(false, Ordering::AcqRel)
    }

    /// Whether the peer has granted it, and that still holds.
    pub fn is_granted(&self) -> bool {
        let granted_at = self.granted_at.lock().ok().and_then(|granted_at| *granted_at);
        granted_at.is_some_and(|at| at.elapsed() < Duration::from_millis(GRANT_MS))
    }
}

/// Whether a frame of a peer is a notice, which is taken then.
pub fn takes_notice(frame: &[u8], of_space: &PeerSpace, leaving: &PeerLeaving) -> bool {
    if let Some(space) = DiskSpace::of_notice(frame) {
        of_space.set(space);
    } else if let Some(notice) = LeaveNotice::of_notice(frame) {
        leaving.heard(notice);
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_taken_once_and_a_grant_holds_for_a_while() {
        let peer = PeerLeaving::default();
        assert!(!peer.takes_notices() && !peer.take_question() && !peer.is_granted());
        peer.introduced(true);
        peer.heard(LeaveNotice::Asks);
        assert!(peer.takes_notices() && peer.take_question() && !peer.take_question() && !peer.is_granted());
        peer.heard(LeaveNotice::Granted);
        assert!(peer.is_granted() && !peer.take_question());
        *peer.granted_at.lock().unwrap() = Instant::now().checked_sub(Duration::from_millis(GRANT_MS));
        assert!(!peer.is_granted());
    }
}
