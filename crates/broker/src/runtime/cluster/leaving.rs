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
    asked_at: Mutex<Option<Instant>>,
    granted_at: Mutex<Option<Instant>>,
}

impl PeerLeaving {
    /// As the peer said when it connected: those of a version before take no notices. Its store may
    /// have been filled meanwhile.
    pub fn introduced(&self, takes_notices: bool) {
        self.takes_notices.store(takes_notices, Ordering::Release);
        set(&self.asked_at, None);
    }

    /// Whether the peer answers.
    pub fn takes_notices(&self) -> bool {
        self.takes_notices.load(Ordering::Acquire)
    }

    /// A notice of the peer.
    pub fn heard(&self, notice: LeaveNotice) {
        match notice {
            LeaveNotice::Asks => {
                self.asks.store(true, Ordering::Release);
                set(&self.asked_at, Some(Instant::now()));
            }
            LeaveNotice::Granted => set(&self.granted_at, Some(Instant::now())),
        }
    }

    /// Whether the peer has asked since this was asked last.
    pub fn take_question(&self) -> bool {
        self.asks.swap(false, Ordering::AcqRel)
    }

    /// Whether the peer has granted it, and that still holds.
    pub fn is_granted(&self) -> bool {
        is_within(&self.granted_at, GRANT_MS)
    }

    /// Whether the peer says that its store is damaged. One that may leave it does not ask for the
    /// time of a grant.
    pub fn says_damaged(&self) -> bool {
        is_within(&self.asked_at, 2 * GRANT_MS)
    }
}

fn set(at: &Mutex<Option<Instant>>, time: Option<Instant>) {
    if let Ok(mut at) = at.lock() {
        *at = time;
    }
}

fn is_within(at: &Mutex<Option<Instant>>, ms: u64) -> bool {
    let at = at.lock().ok().and_then(|at| *at);
    at.is_some_and(|at| at.elapsed() < Duration::from_millis(ms))
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

    #[test]
    fn a_peer_is_damaged_for_a_while_after_it_asked_and_until_it_connects_again() {
        let peer = PeerLeaving::default();
        assert!(!peer.says_damaged());
        peer.heard(LeaveNotice::Asks);
        assert!(peer.take_question() && peer.says_damaged(), "the answer changes nothing");
        peer.introduced(true);
        assert!(!peer.says_damaged(), "it may have been filled");
        peer.heard(LeaveNotice::Asks);
        *peer.asked_at.lock().unwrap() = Instant::now().checked_sub(Duration::from_millis(2 * GRANT_MS));
        assert!(!peer.says_damaged());
    }
}
