//! Argon2id verifiers: stored instead of a password (RFC 9106), and checked at the cost of memory,
//! so that special hardware gains little.
//!
//! A check takes [`MEMORY_KIB`] of memory. At most [`CHECKS_MAX`] run at a time in the whole
//! process, or as many as [`set_checks_max`] says, whatever the number of logins: others wait on
//! their threads, which are not those of message traffic.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use data_encoding::BASE64_NOPAD;
use subtle::ConstantTimeEq;

use crate::keys::SALT_BYTES;
use crate::prepare::prepared;

/// Parameters of new passwords: the smallest memory of those that OWASP recommends as equally
/// strong, since brokers with 64 MiB in all check passwords too.
pub const MEMORY_KIB: u32 = 7_168;
const PASSES: u32 = 5;
const LANES: u32 = 1;

/// A file may have verifiers of other makers, up to these parameters: OWASP's 19 MiB are among
/// them, the 64 MiB of some libraries are not.
const MEMORY_KIB_MAX: u32 = 19_456;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 8;

/// Checks that run at a time: 14 MiB, and with the largest parameters 38 MiB.
const CHECKS_MAX: usize = 2;

/// Blocks of 1 KiB that are asked for at least. Of allocations above 8 MiB the allocator gives the
/// memory back at once (jemalloc's `oversize_threshold`), of smaller ones each thread's arena keeps
/// it for a while. Blocks that are not needed are never touched, and so take no memory.
const ALLOCATED_BLOCKS_MIN: usize = 9 << 10;

const OUTPUT_BYTES: usize = 32;
const SALT_BYTES_MAX: usize = 64;

/// Verifiers begin so in a file.
pub const PREFIX: &str = "$argon2id$";

/// One verifier.
#[derive(Clone, PartialEq, Eq)]
pub struct Argon {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: Vec<u8>,
    output: Vec<u8>,
}

impl Argon {
    /// That of a password, by the parameters of new passwords. Takes its time.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn derive(password: &str, salt: &[u8; SALT_BYTES]) -> Result<Argon, argon2::Error> {
        let (salt, output) = (salt.to_vec(), vec![0; OUTPUT_BYTES]);
        let own = Argon { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, salt, output };
        let output = own.output_of(password)?;
        Ok(Argon { output, ..own })
    }

    /// One that no password has, and that takes as long as this one to check.
    pub fn of_nobody(&self, mut salt: Vec<u8>) -> Argon {
        salt.truncate(self.salt.len());
        Argon { salt, output: Vec::new(), ..self.clone() }
    }

    /// Whether this is the password, however it is spelt. Takes its time, and a permit.
    pub fn is_of(&self, password: &str) -> bool {
        let password = prepared(password).unwrap_or_else(|| password.into());
        let tried = self.output_of(&password);
        tried.is_ok_and(|tried| bool::from(self.output.ct_eq(&tried)))
    }

    fn output_of(&self, password: &str) -> Result<Vec<u8>, argon2::Error> {
        let _permit = PERMITS.take();
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(OUTPUT_BYTES))?;
        let mut output = vec![0; OUTPUT_BYTES];
        let mut blocks = Vec::new();
        let count = params.block_count();
        let room = blocks.try_reserve_exact(count.max(ALLOCATED_BLOCKS_MIN));
        room.map_err(|_| argon2::Error::OutOfMemory)?;
        blocks.resize(count, Block::new());
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        hasher.hash_password_into_with_memory(
            password.as_bytes(),
            &self.salt,
            &mut output,
            &mut blocks[..],
        )?;
        Ok(output)
    }

    /// In the string format of password hashes:
    /// `$argon2id$v=19$m=7168,t=5,p=1$salt$output`.
    pub fn to_text(&self) -> String {
        let Argon { memory_kib, passes, lanes, .. } = self;
        let [salt, output] = [&self.salt, &self.output].map(|part| BASE64_NOPAD.encode(part));
        format!("{PREFIX}v=19$m={memory_kib},t={passes},p={lanes}${salt}${output}")
    }

    /// The output of [`Argon::to_text`].
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(text: &str) -> Result<Argon, String> {
        let shape = || format!("expected {PREFIX}v=19$m=KIB,t=PASSES,p=LANES$salt$output");
        let rest = text.strip_prefix(PREFIX).ok_or_else(shape)?;
        let parts: Vec<&str> = rest.split('$').collect();
        let [version, effort, salt, output] = parts[..] else { return Err(shape()) };
        if version != "v=19" {
            return Err(format!("{version} is not supported; v=19 is"));
        }
        let numbers: Vec<&str> = effort.split(',').collect();
        let [memory, passes, lanes] = numbers[..] else { return Err(shape()) };
        let number = |text: &str, name: &str, least: u32, most: u32| {
            let number = text.strip_prefix(name).and_then(|text| text.strip_prefix('=')?.parse().ok());
            let bound = least..=most;
            number
                .filter(|number| bound.contains(number))
                .ok_or_else(|| format!("{text:?} must be {name}= and a number from {least} to {most}"))
        };
        let lanes = number(lanes, "p", 1, LANES_MAX)?;
        let bytes = |text: &str, name: &str, lengths: std::ops::RangeInclusive<usize>| {
            let bytes = BASE64_NOPAD.decode(text.as_bytes()).ok();
            bytes
                .filter(|bytes| lengths.contains(&bytes.len()))
                .ok_or_else(|| format!("the {name} is not the base64 of {lengths:?} bytes, without ="))
        };
        Ok(Argon {
            memory_kib: number(memory, "m", 8 * lanes, MEMORY_KIB_MAX)?,
            passes: number(passes, "t", 1, PASSES_MAX)?,
            lanes,
            salt: bytes(salt, "salt", 8..=SALT_BYTES_MAX)?,
            output: bytes(output, "output", OUTPUT_BYTES..=OUTPUT_BYTES)?,
        })
    }
}

/// Verifiers do not belong into logs.
impl std::fmt::Debug for Argon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Argon").field("memory_kib", &self.memory_kib).finish_non_exhaustive()
    }
}

static PERMITS: Permits = Permits::new(CHECKS_MAX);

/// Has at most this number of checks run at a time in this process: 1 where memory is short.
pub fn set_checks_max(max: usize) {
    PERMITS.lock().max = max.clamp(1, CHECKS_MAX);
}

/// Permits for checks.
struct Permits {
    taken: Mutex<Taken>,
    freed: Condvar,
}

struct Taken {
    now: usize,
    max: usize,
    /// The most at a time, since the start.
    most: usize,
}

struct Permit<'p>(&'p Permits);

impl Permits {
    const fn new(max: usize) -> Permits {
        Permits { taken: Mutex::new(Taken { now: 0, max, most: 0 }), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit.
    fn take(&self) -> Permit<'_> {
        let full = |taken: &mut Taken| taken.max <= taken.now;
        let mut taken = self.freed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        taken.now += 1;
        taken.most = taken.most.max(taken.now);
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.lock().now -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "password" with the salt "somesalt", two passes over 256 KiB, from the reference
    /// implementation's tests (argon2/src/test.c).
    const REFERENCE: &str =
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    #[test]
    fn a_verifier_of_another_maker_is_checked() {
        let other = Argon::parse(REFERENCE).unwrap();
        assert_eq!(other.to_text(), REFERENCE);
        assert!(other.is_of("password") && !other.is_of("passwore"));
        let nobody = other.of_nobody(vec![7; 32]);
        assert!(!nobody.is_of("password"));
        assert_eq!((nobody.salt.len(), nobody.memory_kib), (8, 256));
    }

    #[test]
    fn a_password_is_kept_as_its_verifier_alone_however_it_is_spelt() {
        let own = Argon::derive("IX", &[1; SALT_BYTES]).unwrap();
        assert!(own.is_of("IX") && own.is_of("I\u{AD}X") && !own.is_of("ix") && !own.is_of(""));
        assert_eq!(Argon::parse(&own.to_text()), Ok(own.clone()));
        assert!(!format!("{own:?}").contains(&BASE64_NOPAD.encode(&own.output)));
    }

    #[test]
    fn verifiers_that_are_none_are_refused_with_the_reason() {
        for (case, from, to, want) in [
            ("another function", "argon2id", "argon2d", "expected $argon2id$v=19"),
            ("an old version", "v=19", "v=16", "v=16 is not supported"),
            ("too much memory", "m=256", "m=19457", "\"m=19457\" must be m= and a number from 8 to 19456"),
            ("too many passes", "t=2", "t=17", "\"t=17\" must be t= and a number from 1 to 16"),
            ("too many lanes", "p=1", "p=9", "\"p=9\" must be p="),
            ("no lanes", ",p=1", "", "expected $argon2id"),
            ("a short salt", "c29tZXNhbHQ", "c29t", "the salt is not the base64 of 8..=64 bytes"),
            ("half an output", "nf65EOgL", "", "the output is not the base64 of 32..=32 bytes"),
        ] {
            let error = Argon::parse(&REFERENCE.replace(from, to)).unwrap_err();
            assert!(error.starts_with(want), "case: {case}: {error}");
        }
    }

    #[test]
    fn a_flood_of_logins_takes_the_memory_of_a_few() {
        let permits = Permits::new(CHECKS_MAX);
        for max in [CHECKS_MAX, 1] {
            *permits.lock() = Taken { now: 0, max, most: 0 };
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        let _permit = permits.take();
                        std::thread::yield_now();
                    });
                }
            });
            let taken = permits.lock();
            assert!((1..=max).contains(&taken.most), "{} at a time", taken.most);
            assert_eq!(taken.now, 0);
        }
        let own = Argon::derive("right", &[2; SALT_BYTES]).unwrap();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| own.is_of("wrong"))).collect();
            assert!(all.into_iter().all(|check| !check.join().unwrap()));
        });
        assert!((1..=CHECKS_MAX).contains(&PERMITS.lock().most), "checks take permits");
    }
}
