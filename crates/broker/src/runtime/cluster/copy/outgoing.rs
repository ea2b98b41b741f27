//! The copy that this node sends, while it leads: one at a time. It stays for a while after a lost
//! connection, to be resumed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use postroad_cluster::Term;
use postroad_journal::{JournalFile, RealDisk};

use super::former::{LogTerms, SharedLog};
use super::{
    Answer, CHUNK_BYTES, ListedMembers, MANIFEST_BYTES_MAX, Manifest, Request, VERSION, encode_chunk,
    malformed,
};
use crate::runtime::cluster::wire::Wire;
use crate::runtime::journal::JournalDoor;
use postroad_store::Layout;
use postroad_store::new_identity;

/// The directory of it, in the data directory.
const DIRECTORY: &str = "outgoing";

/// How long a copy whose connection was lost may be resumed.
const KEPT: Duration = Duration::from_secs(600);

/// How long the leader's log after a copy stays once that was taken: the node installs it, opens
/// its store and connects.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(300);

/// After each chunk the sender rests as long as it took, up to this: the disk has other work.
const REST_MAX: Duration = Duration::from_millis(50);

/// Longest time in which a receiver that writes to its disk may not read.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest time until the request comes: a node with a former store links or copies its files and
/// reads them first.
const ASKED_WITHIN: Duration = KEPT;

/// See the head of this file.
pub struct Outgoing {
    data: PathBuf,
    door: OnceLock<JournalDoor>,
    state: Mutex<State>,
    /// A damaged node has seen a later term than that of this leader.
    is_outdated: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The copy whose files are here.
    held: Option<Held>,
    /// Until when the log after the last copy stays, if that is not held any more.
    log_kept_until: Option<Instant>,
}

struct Held {
    manifest: Manifest,
    used_at: Instant,
}

impl Outgoing {
    /// Of a data directory. What an earlier process left is removed.
    pub fn new(data: &Path) -> Outgoing {
        remove(&data.join(DIRECTORY));
        Outgoing {
            data: data.to_owned(),
            door: OnceLock::new(),
            state: Mutex::default(),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Copies are made from this journal.
    pub fn open(&self, door: JournalDoor) {
        let _ = self.door.set(door);
    }

    /// Whether a node that has to be filled takes a copy of a later leader alone. It campaigned
    /// before its store was damaged, and this node has not heard of it.
    pub fn take_outdated(&self) -> bool {
        self.is_outdated.swap(false, Ordering::AcqRel)
    }

    fn directory(&self) -> PathBuf {
        self.data.join(DIRECTORY)
    }

    /// Removes a copy that was not resumed. The log after a copy that has gone stays for a time.
    pub fn tidy(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.held.take_if(|held| KEPT < held.used_at.elapsed()).is_some() {
            remove(&self.directory());
        }
        if state.held.is_none() && state.log_kept_until.take_if(|until| *until < Instant::now()).is_some() {
            self.door.get().into_iter().for_each(JournalDoor::release_log);
        }
    }

    /// Answers a node that asks for a copy, and counts the bytes sent.
    ///
    /// # Errors
    /// The connection has ended, or a file cannot be read.
    pub fn serve(&self, wire: &Wire, to: &str, sent: &AtomicU64) -> anyhow::Result<()> {
        wire.write_within(PATIENCE)?;
        wire.expect_within(ASKED_WITHIN)?;
        let request = wire.read_frame(MANIFEST_BYTES_MAX)?;
        let request: Request = serde_json::from_slice(&request).context("malformed request for a copy")?;
        let term = self.door.get().and_then(JournalDoor::leads);
        if let Some((least, term)) = request.least.zip(term).filter(|(least, term)| term.0 < *least) {
            self.is_outdated.store(true, Ordering::Release);
            let reason = format!("it leads in term {}, hands over, and term {least} is needed", term.0);
            return refuse(wire, &reason);
        }
        if let Some(log) = &request.log {
            return self.answer_former(wire, to, log);
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return refuse(wire, "it sends a copy to another node"),
            Err(TryLockError::Poisoned(_)) => {
                return refuse(wire, "an earlier copy failed; restart this node");
            }
        };
        let manifest = match self.manifest(&mut state, &request) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return refuse(wire, "it does not lead"),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot make a copy of the store");
                return refuse(wire, &format!("it cannot make a copy: {error:#}"));
            }
        };
        wire.write_frame(&serde_json::to_vec(&Answer::Manifest(Box::new(manifest.clone())))?)?;
        tracing::info!(
            to,
            bytes = manifest.bytes(),
            files = manifest.files.len(),
            "sending a copy of the store"
        );
        let have = if request.copy == manifest.copy { request.have } else { BTreeMap::new() };
        for (number, (name, bytes)) in (0..).zip(&manifest.files) {
            let from = have.get(name).copied().unwrap_or(0);
            self.send((wire, sent), (number, name), from, *bytes).with_context(|| format!("of {name}"))?;
        }
        // The receiver says so once it has checked everything; otherwise it may come again.
        wire.expect_within(KEPT)?;
        if let Err(error) = wire.read_frame(0) {
            tracing::warn!(to, %error, "a node did not take a whole copy of this store: it is read for damage");
            self.door.get().into_iter().for_each(JournalDoor::suspect_damage);
            return Err(error.into());
        }
        tracing::info!(to, "a copy of the store was sent");
        *state = State { held: None, log_kept_until: Some(Instant::now() + CATCHES_UP_WITHIN) };
        remove(&self.directory());
        Ok(())
    }

    /// Says which part of a former log this leader has.
    fn answer_former(&self, wire: &Wire, to: &str, log: &LogTerms) -> anyhow::Result<()> {
        let Some((runs, last)) = log.read() else { bail!(malformed("the terms of a log")) };
        let shared = self.door.get().and_then(|door| door.shared_with(&runs, last));
        let Some((term, fork, members)) = shared else { return refuse(wire, "it does not lead") };
        let layout = Layout::find(&self.data)?.context("the layout is missing")?;
        let layout = layout.copied(&mut BTreeMap::new())?;
        tracing::info!(to, shared = fork.index.0, of = last.0, "a node comes with a former store");
        let (last, members) = ((fork.index.0, fork.term.0), ListedMembers::of(&members));
        let shared = SharedLog { version: VERSION, term: term.0, last, layout, members };
        Ok(wire.write_frame(&serde_json::to_vec(&Answer::Shared(Box::new(shared)))?)?)
    }

    /// The copy that the request is about, or a new one; `None` if this node does not lead.
    fn manifest(&self, state: &mut State, request: &Request) -> anyhow::Result<Option<Manifest>> {
        let Some(door) = self.door.get() else { return Ok(None) };
        let Some(term) = door.leads() else { return Ok(None) };
        if request.version != VERSION {
            bail!("version {} of copies is not supported; this node has {VERSION}", request.version);
        }
        if let Some(held) = &mut state.held
            && held.manifest.copy == request.copy
            && held.manifest.term == term.0
        {
            held.used_at = Instant::now();
            return Ok(Some(held.manifest.clone()));
        }
        // The journal may keep the log from here on, even if making the copy fails.
        *state = State { held: None, log_kept_until: Some(Instant::now() + CATCHES_UP_WITHIN) };
        let Some(manifest) = self.make(door)? else { return Ok(None) };
        state.held = Some(Held { manifest: manifest.clone(), used_at: Instant::now() });
        Ok(Some(manifest))
    }

    fn make(&self, door: &JournalDoor) -> anyhow::Result<Option<Manifest>> {
        let directory = self.directory();
        remove(&directory);
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let disk = RealDisk::open(&directory)?;
        let Some((backup, Term(term), last, members)) = door.copy(&disk)? else { return Ok(None) };
        let members = ListedMembers::of(&members);
        let last = (last.index.0, last.term.0);
        if let Some(missing) = backup.missing.first() {
            bail!("{} is missing", missing.display());
        }
        backup.finish(&disk).with_context(|| format!("cannot write {}", directory.display()))?;
        let layout = Layout::find(&self.data)?.context("the layout is missing")?;
        let layout = layout.copied(&mut BTreeMap::new())?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_str().map(str::to_owned);
            files.extend(
                name.filter(|name| JournalFile::of(name).is_some()).zip(Some(entry.metadata()?.len())),
            );
        }
        files.sort();
        let copy = new_identity()?;
        Ok(Some(Manifest { version: VERSION, copy, term, last, layout, files, members }))
    }

    fn send(
        &self,
        (wire, sent): (&Wire, &AtomicU64),
        (number, name): (u32, &str),
        from: u64,
        end: u64,
    ) -> anyhow::Result<()> {
        let file = File::open(self.directory().join(name))?;
        let (mut buffer, mut offset) = (vec![0; CHUNK_BYTES], from);
        while offset < end {
            let began = Instant::now();
            let length = CHUNK_BYTES.min((end - offset) as usize);
            file.read_exact_at(&mut buffer[..length], offset)?;
            wire.write_frame(&encode_chunk(number, offset, &buffer[..length]))?;
            offset += length as u64;
            sent.fetch_add(length as u64, Ordering::Relaxed);
            thread::sleep(began.elapsed().min(REST_MAX));
        }
        Ok(())
    }
}

fn refuse(wire: &Wire, reason: &str) -> anyhow::Result<()> {
    Ok(wire.write_frame(&serde_json::to_vec(&Answer::Refused(reason.to_owned()))?)?)
}

fn remove(directory: &Path) {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "cannot remove a copy");
        }
        _ => {}
    }
}
