//! Failed logins: who has guessed too often waits longer and longer.
//!
//! Failures are counted by user and address together, so that a stranger elsewhere cannot keep a
//! user away. An address is locked for all users after failures as many of them, and a user
//! everywhere after failures from many addresses. A client that repeats one wrong password locks
//! its own user at its own address only.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failures::FailedLogins;

/// Counts that are kept at a time. Beyond that the quarter whose last failures are the oldest is
/// forgotten.
const COUNTS_MAX: usize = 8_192;

/// A count without a further failure is forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);

/// The first lock, and the longest; each failure after a lock doubles the next one.
const LOCK_MIN: Duration = Duration::from_secs(15);
const LOCK_MAX: Duration = Duration::from_secs(60);

/// A longer name is counted by its beginning.
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Both(Box<str>, IpAddr),
    Address(IpAddr),
    User(Box<str>),
}

impl Key {
    /// Counts before the first lock: failures, users of an address, addresses of a user.
    fn counts_max(&self) -> u32 {
        match self {
            Key::Both(..) => 5,
            Key::Address(_) => 25,
            Key::User(_) => 100,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Count {
    failures: u32,
    last: Instant,
    locked_until: Option<Instant>,
}

impl Count {
    fn is_forgotten(&self, now: Instant) -> bool {
        FORGOTTEN_AFTER <= now.saturating_duration_since(self.last)
    }
}

/// The failed logins of a broker, over all protocols.
#[derive(Debug, Default)]
pub struct Attempts {
    counts: Mutex<BTreeMap<Key, Count>>,
    /// For the log and the audit.
    pub failures: FailedLogins,
}

/// Whose login is counted, and where.
#[derive(Clone, Debug)]
pub struct Attempt {
    attempts: Arc<Attempts>,
    user: Box<str>,
    address: IpAddr,
}

impl Attempts {
    /// How long logins of this user from this address are refused.
    pub fn locked_for(&self, user: &str, address: IpAddr) -> Option<Duration> {
        self.locked_at(user, address, Instant::now())
    }

    fn locked_at(&self, user: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let until = keys(user, address).into_iter().filter_map(|key| counts.get(&key)?.locked_until).max()?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    fn failed_at(&self, user: &str, address: IpAddr, now: Instant) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let [both, further @ ..] = keys(user, address);
        let is_first = counts.get(&both).is_none_or(|count| count.is_forgotten(now));
        for key in std::iter::once(both).chain(further.into_iter().filter(|_| is_first)) {
            if COUNTS_MAX <= counts.len() && !counts.contains_key(&key) {
                make_room(&mut counts, now);
            }
            let counts_max = key.counts_max();
            let new = Count { failures: 0, last: now, locked_until: None };
            let count = counts.entry(key).or_insert(new);
            if count.is_forgotten(now) {
                *count = new;
            }
            (count.failures, count.last) = (count.failures.saturating_add(1), now);
            if let Some(beyond) = count.failures.checked_sub(counts_max) {
                let lock = LOCK_MIN.saturating_mul(1 << beyond.min(8)).min(LOCK_MAX);
                count.locked_until = Some(now + lock);
            }
        }
    }

    fn succeeded(&self, user: &str, address: IpAddr) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let [both, _, of_user] = keys(user, address);
        counts.remove(&both);
        counts.remove(&of_user);
    }
}

/// Forgets old counts, or the oldest quarter: rarely, as each time looks at all.
fn make_room(counts: &mut BTreeMap<Key, Count>, now: Instant) {
    counts.retain(|_, count| !count.is_forgotten(now));
    if COUNTS_MAX <= counts.len() {
        let mut times: Vec<Instant> = counts.values().map(|count| count.last).collect();
        let (_, until, _) = times.select_nth_unstable(COUNTS_MAX / 4);
        let until = *until;
        counts.retain(|_, count| until < count.last);
    }
}

/// Neighbours in one network of IPv6 are one address: each host has 2^64 of them.
fn keys(user: &str, address: IpAddr) -> [Key; 3] {
    let address = match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    };
    let user = &user[..user.floor_char_boundary(NAME_BYTES_MAX)];
    [Key::Both(user.into(), address), Key::Address(address), Key::User(user.into())]
}

impl Attempt {
    /// A login of this user from this address.
    pub fn new(attempts: Arc<Attempts>, user: &str, address: IpAddr) -> Attempt {
        Attempt { attempts, user: user.into(), address }
    }

    /// How long it is refused without a look at its credential.
    pub fn locked_for(&self) -> Option<Duration> {
        self.attempts.locked_for(&self.user, self.address)
    }

    /// Counts its result.
    pub fn ended(&self, is_good: bool) {
        match is_good {
            true => self.attempts.succeeded(&self.user, self.address),
            false => {
                self.attempts.failed_at(&self.user, self.address, Instant::now());
                if let Some(lock) = self.locked_for() {
                    let (user, address, seconds) = (&*self.user, self.address, lock.as_secs());
                    tracing::warn!(user, %address, seconds, "logins are locked after too many failures");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn fail(attempts: &Attempts, times: usize, (user, address): (&str, IpAddr), now: Instant) {
        (0..times).for_each(|_| attempts.failed_at(user, address, now));
    }

    #[test]
    fn a_guesser_waits_longer_and_longer_and_the_user_elsewhere_does_not() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let lock = |user, address, now| attempts.locked_at(user, address, now).map(|lock| lock.as_secs());
        fail(&attempts, 4, ("ann", HERE), now);
        assert_eq!(lock("ann", HERE, now), None);
        fail(&attempts, 1, ("ann", HERE), now);
        assert_eq!(lock("ann", HERE, now), Some(15));
        assert_eq!((lock("ann", THERE, now), lock("bob", HERE, now)), (None, None));
        let later = now + Duration::from_secs(15);
        assert_eq!(lock("ann", HERE, later), None);
        fail(&attempts, 1, ("ann", HERE), later);
        assert_eq!(lock("ann", HERE, later), Some(30));
        fail(&attempts, 18, ("ann", HERE), later);
        assert_eq!(lock("ann", HERE, later), Some(LOCK_MAX.as_secs()));
        attempts.succeeded("ann", HERE);
        assert_eq!(lock("ann", HERE, later), None);
        let forgotten = later + FORGOTTEN_AFTER;
        fail(&attempts, 4, ("ann", HERE), forgotten);
        assert_eq!(lock("ann", HERE, forgotten), None);
    }

    #[test]
    fn an_address_that_tries_many_names_and_a_name_that_many_try_are_locked() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for user in 0..25 {
            fail(&attempts, 1, (&user.to_string(), HERE), now);
        }
        assert!(attempts.locked_at("another", HERE, now).is_some());
        assert!(attempts.locked_at("another", THERE, now).is_none());
        for host in 0..100 {
            fail(&attempts, 1, ("ann", IpAddr::from([10, 1, 0, host])), now);
        }
        fail(&attempts, 500, ("carl", IpAddr::from([10, 2, 0, 1])), now);
        assert!(attempts.locked_at("dora", IpAddr::from([10, 2, 0, 1]), now).is_none(), "one wrong client");
        assert!(attempts.locked_at("carl", THERE, now).is_none(), "one wrong client");
        assert!(attempts.locked_at("ann", THERE, now).is_some());
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        fail(&attempts, 5, ("bob", one), now);
        assert!(attempts.locked_at("bob", other, now).is_some(), "neighbours in a network are one address");
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_count_goes() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        fail(&attempts, 5, ("first", HERE), now);
        for user in 0..COUNTS_MAX {
            let long = format!("{user}{}", "ä".repeat(500));
            let address = IpAddr::from((user as u32).to_be_bytes());
            attempts.failed_at(&long, address, now + Duration::from_micros(1 + user as u64));
            assert!(attempts.counts.lock().unwrap().len() <= COUNTS_MAX);
        }
        assert!(COUNTS_MAX / 2 < attempts.counts.lock().unwrap().len());
        assert_eq!(attempts.locked_at("first", HERE, now), None);
    }
}
