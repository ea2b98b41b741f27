//! Encrypting payloads and states, and reading them back (AES-256-GCM, NIST SP 800-38D).
//!
//! ```text
//! payload on the disk = nonce (12) | encrypted payload | tag (16)
//! state on the disk   = steps of 1 MiB, each encrypted | tag (16)
//! ```
//! Authenticated data goes into the tag: a record's table entry, its checksum zero, and with it
//! partition and position. The salt of the file goes into the key. A nonce is never used twice:
//! each writer begins at 64 random bits and counts from there in the 32 below, so that data left by
//! a crash and the next data at the same place are encrypted differently.

use crate::disks::disk::Disk;
use crate::keys::{KeyId, Keys};
use crate::layout::format::RecordHeader;
use bytes::Bytes;
use postroad_model::{PartitionId, Position, Snapshot};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce};
use std::sync::Arc;
use std::{io, iter};

/// Bytes that encryption adds to a payload.
pub(crate) const PAYLOAD_EXTRA_BYTES: u64 = (NONCE_LEN + TAG_BYTES) as u64;

const TAG_BYTES: usize = 16;

/// States are encrypted in steps of this size, so that one is read back step by step.
const STATE_STEP_BYTES: usize = 1 << 20;

/// Bytes of such a step on the disk.
pub(crate) const SEALED_STEP_BYTES: usize = STATE_STEP_BYTES + TAG_BYTES;

const PAYLOAD_KIND: &[u8] = b"records of segment";
const STATE_KIND: &[u8] = b"states of checkpoint";

/// Derived keys that one reader or writer keeps at hand; there is one for each key and file.
const READY_MAX: usize = 16;

/// Keys of files, derived once.
#[derive(Default)]
struct Ready(Vec<(KeyId, u64, LessSafeKey)>);

impl Ready {
    /// `None`: the key is not known.
    fn get(&mut self, keys: &Keys, id: KeyId, salt: u64) -> Option<&LessSafeKey> {
        let place = self.0.iter().position(|(of, file, _)| (*of, *file) == (id, salt));
        let place = match place {
            Some(place) => place,
            None => {
                if READY_MAX <= self.0.len() {
                    self.0.clear();
                }
                self.0.push((id, salt, keys.get(id)?.of_file(PAYLOAD_KIND, salt)));
                self.0.len() - 1
            }
        };
        self.0.get(place).map(|(_, _, key)| key)
    }
}

/// Encrypts records; one for each writer.
pub(crate) struct Encryptor {
    keys: Keys,
    ready: Ready,
    /// The next nonce.
    next: u128,
}

impl std::fmt::Debug for Encryptor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Encryptor").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Encryptor {
    /// Begins at a place among the nonces that the disk's randomness chooses.
    ///
    /// # Errors
    /// There is no randomness.
    pub(crate) fn begin<D: Disk>(disk: &D, keys: &Keys) -> io::Result<Encryptor> {
        let salt = if keys.encrypts() { disk.salt()? } else { 0 };
        Ok(Encryptor { keys: keys.clone(), ready: Ready::default(), next: first_nonce(salt) })
    }

    /// The key for a record that has this one of its own.
    pub(crate) fn key_for(&self, own: Option<KeyId>) -> Option<KeyId> {
        self.keys.target(own)
    }

    /// Whether groups are to be built by [`Encryptor::seal`] at all.
    pub(crate) fn encrypts(&self) -> bool {
        self.keys.encrypts()
    }

    /// Appends the payload to `out` as it is to be on the disk of a file with this salt. `header`
    /// is the record's, with its key and its length on the disk; without a key the payload is
    /// appended as it is.
    pub(crate) fn seal(&mut self, header: &RecordHeader, salt: u64, pieces: &[Bytes], out: &mut Vec<u8>) {
        let key = header.key.map(|id| self.ready.get(&self.keys, id, salt));
        let key = key.map(|key| key.expect("targets are known keys"));
        let nonce = take_nonce(&mut self.next);
        if key.is_some() {
            out.extend_from_slice(&nonce);
        }
        let begin = out.len();
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        if let Some(key) = key {
            seal_in_place(key, nonce, &header.unsealed(), out, begin);
        }
    }
}

/// Reads encrypted records back.
#[derive(Default)]
pub(crate) struct Decryptor {
    keys: Keys,
    ready: Ready,
    plain: Vec<u8>,
}

/// Why a payload cannot be had in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// The key is not known.
    Unknown(KeyId),
    /// It was not encrypted with the key for this place.
    Forged,
}

impl Decryptor {
    pub(crate) fn new(keys: Keys) -> Decryptor {
        Decryptor { keys, ..Decryptor::default() }
    }

    /// The payload that is on the disk as `stored`.
    pub(crate) fn open<'a>(
        &'a mut self,
        header: &RecordHeader,
        salt: u64,
        stored: &'a [u8],
    ) -> Result<&'a [u8], Locked> {
        let Some(id) = header.key else {
            return if self.keys.lacks(None) { Err(Locked::Forged) } else { Ok(stored) };
        };
        let key = self.ready.get(&self.keys, id, salt).ok_or(Locked::Unknown(id))?;
        let (nonce, sealed) = stored.split_first_chunk().ok_or(Locked::Forged)?;
        self.plain.clear();
        self.plain.extend_from_slice(sealed);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key.open_in_place(nonce, Aad::from(header.unsealed()), &mut self.plain);
        opened.map(|plain| &*plain).map_err(|_| Locked::Forged)
    }
}

/// How the states of one checkpoint are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateCipher {
    pub key: KeyId,
    /// Random both.
    pub salt: u64,
    pub first_nonce: u64,
}

/// Which state, so that none is taken for another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateName {
    pub sequence: u64,
    pub partition: PartitionId,
    /// The last record in it; `None` where there is no state.
    pub position: Option<Position>,
}

/// Bytes on the disk of a state of this size.
pub(crate) fn sealed_state_bytes(bytes: usize) -> usize {
    bytes + bytes.div_ceil(STATE_STEP_BYTES) * TAG_BYTES
}

impl StateCipher {
    /// The states as they are on the disk, in order. Takes each one's memory back once it is done.
    pub(crate) fn seal(&self, keys: &Keys, states: Vec<(StateName, Snapshot)>) -> Option<Vec<Snapshot>> {
        let key = keys.get(self.key)?.of_file(STATE_KIND, self.salt);
        let mut next = first_nonce(self.first_nonce);
        let sealed = states.into_iter().map(|(name, state)| {
            let sealed_bytes = sealed_state_bytes(state.byte_length());
            let steps = steps(&state).enumerate().map(|(step, mut out)| {
                let bound = name.bound(step, sealed_bytes);
                seal_in_place(&key, take_nonce(&mut next), &bound, &mut out, 0);
                Bytes::from(out)
            });
            steps.collect()
        });
        Some(sealed.collect())
    }

    /// Reads them back; `None`: the key is not known.
    pub(crate) fn opener(&self, keys: &Keys) -> Option<StateOpener> {
        let key = keys.get(self.key)?.of_file(STATE_KIND, self.salt);
        Some(StateOpener { key: Arc::new(key), next: first_nonce(self.first_nonce) })
    }
}

/// Knows how the states of one checkpoint are encrypted, one after the other.
pub(crate) struct StateOpener {
    key: Arc<LessSafeKey>,
    /// The next nonce.
    next: u128,
}

impl StateOpener {
    /// The next one, which takes this number of bytes on the disk.
    pub(crate) fn next(&mut self, name: StateName, sealed_bytes: usize) -> SealedState {
        let first_nonce = self.next;
        self.next += sealed_bytes.div_ceil(SEALED_STEP_BYTES) as u128;
        SealedState { key: self.key.clone(), name, first_nonce, sealed_bytes }
    }
}

/// How one state is encrypted.
#[derive(Clone, Debug)]
pub(crate) struct SealedState {
    key: Arc<LessSafeKey>,
    name: StateName,
    first_nonce: u128,
    sealed_bytes: usize,
}

impl SealedState {
    /// Length of the state.
    pub(crate) fn plain_bytes(&self) -> usize {
        self.sealed_bytes.saturating_sub(self.sealed_bytes.div_ceil(SEALED_STEP_BYTES) * TAG_BYTES)
    }

    /// The contents of one of its steps, which is on the disk as `stored`; `None` if the tag does
    /// not fit.
    pub(crate) fn open(&self, step: usize, mut stored: Vec<u8>) -> Option<Vec<u8>> {
        let nonce = Nonce::assume_unique_for_key(take_nonce(&mut (self.first_nonce + step as u128)));
        let bound = Aad::from(self.name.bound(step, self.sealed_bytes));
        let plain_bytes = self.key.open_in_place(nonce, bound, &mut stored).ok()?.len();
        stored.truncate(plain_bytes);
        Some(stored)
    }
}

impl StateName {
    fn bound(&self, step: usize, sealed_bytes: usize) -> [u8; 40] {
        let partition = u64::from(self.partition.0);
        let numbers = [
            self.sequence,
            partition,
            self.position.map_or(0, Position::get),
            step as u64,
            sealed_bytes as u64,
        ];
        let mut bound = [0; 40];
        for (place, number) in bound.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bound
    }
}

/// The unit of encryption of a state, with room for its tag.
fn steps(state: &Snapshot) -> impl Iterator<Item = Vec<u8>> {
    let mut left = state.byte_length();
    let (mut pieces, mut piece) = (state.pieces().iter(), Bytes::new());
    iter::from_fn(move || {
        let bytes = left.min(STATE_STEP_BYTES);
        let mut step = Vec::with_capacity(bytes + TAG_BYTES);
        while step.len() < bytes {
            if piece.is_empty() {
                piece = pieces.next()?.bytes();
            }
            step.extend_from_slice(&piece.split_to(piece.len().min(bytes - step.len())));
        }
        left -= bytes;
        (bytes > 0).then_some(step)
    })
}

fn first_nonce(salt: u64) -> u128 {
    u128::from(salt) << 32
}

fn take_nonce(next: &mut u128) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&next.to_le_bytes()[..NONCE_LEN]);
    *next += 1;
    nonce
}

/// Encrypts `out` from `begin` on, and appends the tag.
fn seal_in_place(key: &LessSafeKey, nonce: [u8; NONCE_LEN], bound: &[u8], out: &mut Vec<u8>, begin: usize) {
    debug_assert_eq!(AES_256_GCM.tag_len(), TAG_BYTES);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bound), &mut out[begin..]);
    // AES-GCM encrypts up to 64 GiB under one nonce; a payload has 4 GiB at most.
    out.extend_from_slice(tag.expect("payloads are shorter than AES-GCM allows").as_ref());
}
