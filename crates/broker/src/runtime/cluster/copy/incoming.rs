//! The copy that this node receives. What came before a lost connection stays, and is not sent
//! again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use postroad_cluster::{EntryId, EntryLog, JournalLog, Term};
use postroad_journal::{Disk, Journal, JournalFile, Keys, Options, RealDisk};
use postroad_security::replace_file;

use super::{Answer, CHUNK_BYTES, CHUNK_HEAD_BYTES, MANIFEST_BYTES_MAX, Manifest, Request, VERSION};
use super::{decode_chunk, malformed};
use crate::runtime::cluster::identity::FILE_MODE;
use crate::runtime::cluster::wire::Wire;

/// The directory of it, in the data directory.
pub(super) const DIRECTORY: &str = "incoming";
/// Which copy it is.
const MANIFEST: &str = "manifest.json";

/// Space that a copy leaves on the disk, for the checkpoints of the store that it is to replace.
const LEFT_FREE_BYTES: u64 = 16 << 20;

/// Longest time in which the sender makes the copy, or pauses.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A peer that gives nothing now: it does not lead, or hands over. That says nothing of what this
/// node has.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotNow(pub(super) String);

/// How far a copy has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that are here.
    pub received: AtomicU64,
    /// Bytes of all files; 0 while there is no copy.
    pub bytes: AtomicU64,
}

/// A complete copy, verified.
#[derive(Debug)]
pub struct Fetched {
    /// The term in which its author led.
    pub term: Term,
    /// The end of its log.
    pub last: EntryId,
    /// The name of its author.
    pub from: String,
    pub(super) manifest: Manifest,
}

/// See the head of this file.
pub struct Fetcher {
    pub(super) data: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) keys: Keys,
    /// It is one of the further stores of its node.
    pub(super) is_further: bool,
    /// How often a former store was of no use.
    pub(super) attempts: AtomicU32,
    /// The last copy that was offered was of a term that is too early.
    is_too_early: AtomicBool,
}

/// The least term of a copy that is of use.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    term: Term,
    /// Whether requests have it.
    is_asked: bool,
}

impl Least {
    /// As a request has it.
    pub(super) fn asked(self) -> Option<u64> {
        self.is_asked.then_some(self.term.0)
    }
}

impl Fetcher {
    /// Into a data directory, of a store with these keys.
    pub fn new(data: &Path, keys: Keys, is_further: bool) -> Fetcher {
        let (data, directory) = (data.to_owned(), data.join(DIRECTORY));
        Fetcher {
            data,
            directory,
            keys,
            is_further,
            attempts: AtomicU32::new(0),
            is_too_early: AtomicBool::new(false),
        }
    }

    /// Whether a copy of this term is of use.
    ///
    /// # Errors
    /// It is of an earlier term: its author was deposed, another node campaigns, or this one did in
    /// vain. The requests of the next round have the term that is needed.
    pub(super) fn check_term(&self, term: Term, Least { term: least, .. }: Least) -> anyhow::Result<()> {
        if term < least {
            self.is_too_early.store(true, Ordering::Relaxed);
            let reason =
                format!("the copy is of term {}, and another node has seen term {}", term.0, least.0);
            return Err(NotNow(reason).into());
        }
        Ok(())
    }

    /// The copies that are of use in the next round, in which all nodes are asked. Its requests
    /// have the term if the last round found a copy that is too early.
    pub fn round(&self, term: Term) -> Least {
        Least { term, is_asked: self.is_too_early.swap(false, Ordering::Relaxed) }
    }

    /// Removes the files of a copy that is not needed any more.
    pub fn discard(&self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    /// Fetches a copy of this term or a later one, or the rest of it, and verifies it.
    ///
    /// # Errors
    /// The connection has ended, the author refuses or leads in an earlier term, or the copy is
    /// damaged or cannot be read with the keys of this node.
    pub fn fetch(
        &self,
        (wire, from): (&Wire, &str),
        least: Least,
        progress: &Progress,
    ) -> anyhow::Result<Fetched> {
        wire.expect_within(PATIENCE)?;
        let before = self.manifest();
        let have = before.as_ref().map_or_else(BTreeMap::new, |manifest| self.have(manifest));
        let copy = before.map_or_else(String::new, |manifest| manifest.copy);
        let request = Request {
            version: VERSION,
            copy: copy.clone(),
            have: have.clone(),
            least: least.asked(),
            log: None,
        };
        wire.write_frame(&serde_json::to_vec(&request)?)?;
        let answer: Answer = serde_json::from_slice(&wire.read_frame(MANIFEST_BYTES_MAX)?)?;
        let manifest = match answer {
            Answer::Manifest(manifest) => *manifest,
            Answer::Refused(reason) => bail!(reason),
            Answer::Shared(_) => bail!(malformed("a shared log in place of a manifest")),
        };
        check(&manifest)?;
        self.check_term(Term(manifest.term), least)?;
        let mut have = have;
        if manifest.copy != copy {
            self.discard();
            std::fs::create_dir(&self.directory)?;
            replace_file(&self.directory.join(MANIFEST), &serde_json::to_string(&manifest)?, FILE_MODE)?;
            have.clear();
        }
        progress.bytes.store(manifest.bytes(), Ordering::Relaxed);
        progress.received.store(have.values().sum(), Ordering::Relaxed);
        let resumed = have.values().sum::<u64>();
        self.check_space(manifest.bytes().saturating_sub(resumed))?;
        tracing::info!(bytes = manifest.bytes(), resumed, "receiving a copy of the leader's store");
        for (number, (name, bytes)) in (0..).zip(&manifest.files) {
            let from = have.get(name).copied().unwrap_or(0);
            self.receive(wire, (number, name), from, *bytes, progress)
                .with_context(|| format!("of {name}"))?;
        }
        File::open(&self.directory)?.sync_all()?;
        let last = self.verify(&manifest).inspect_err(|_| self.discard());
        let last = last.context("the copy cannot be used")?;
        Ok(Fetched { term: Term(manifest.term), last, from: from.to_owned(), manifest })
    }

    /// Fails, before anything is sent, if the disk has no space for these bytes. What came before
    /// goes then: it takes space that the store needs.
    fn check_space(&self, wanted: u64) -> anyhow::Result<()> {
        let free = RealDisk::open(&self.directory)?.free_bytes()?.unwrap_or(u64::MAX);
        if free < wanted.saturating_add(LEFT_FREE_BYTES) {
            self.discard();
            bail!(
                "a copy needs {wanted} bytes more, and {LEFT_FREE_BYTES} that stay free; the disk of this node has {free}"
            );
        }
        Ok(())
    }

    fn manifest(&self) -> Option<Manifest> {
        let text = std::fs::read(self.directory.join(MANIFEST)).ok()?;
        let manifest: Manifest = serde_json::from_slice(&text).ok()?;
        check(&manifest).ok().map(|()| manifest)
    }

    /// How much of each file is here, and durable.
    fn have(&self, manifest: &Manifest) -> BTreeMap<String, u64> {
        let length = |name: &String, bytes: u64| {
            let file = File::open(self.directory.join(name)).ok()?;
            file.sync_all().ok()?;
            let length = file.metadata().ok()?.len();
            Some((name.clone(), length.min(bytes)))
        };
        manifest.files.iter().filter_map(|(name, bytes)| length(name, *bytes)).collect()
    }

    fn receive(
        &self,
        wire: &Wire,
        (number, name): (u32, &str),
        from: u64,
        end: u64,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let file = self.directory.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
        file.set_len(from)?;
        let mut at = from;
        while at < end {
            let frame = wire.read_frame(CHUNK_HEAD_BYTES + CHUNK_BYTES)?;
            let (of, offset, bytes) = decode_chunk(&frame)?;
            if (of, offset) != (number, at) || end - at < bytes.len() as u64 {
                bail!(malformed("a chunk is out of order"));
            }
            file.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
            progress.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(file.sync_all()?)
    }

    /// Reads everything, as far as the keys of this node allow; returns the end of its log.
    pub(super) fn verify(&self, manifest: &Manifest) -> anyhow::Result<EntryId> {
        let disk = RealDisk::open(&self.directory)?;
        let (options, keys) = (Options::default(), self.keys.clone());
        let (journal, recovered) = Journal::open_with(disk.clone(), options, keys.clone(), &mut |_, _| ())?;
        let lost = recovered.lost.first().map(|lost| &lost.damage);
        if let Some(damage) = recovered.damaged.first().or(lost) {
            bail!("{damage}");
        }
        let numbers: Vec<_> = journal.segments().map(|segment| segment.number).collect();
        for number in numbers {
            let Some(walk) = journal.walk(number)? else { continue };
            if let Some(damage) = walk.run(&mut (), &mut |_| ())?.first() {
                bail!("{damage}");
            }
        }
        let log = JournalLog::over(disk, (options, keys), journal, &recovered)?;
        let index = log.last();
        let term = if index == log.floor().index { Some(log.floor().term) } else { log.term(index) };
        let last = EntryId { index, term: term.context("the log has no term")? };
        // Damage at the end looks like a write that was never finished.
        if (last.index.0, last.term.0) != manifest.last {
            bail!("the log ends with entry {}; expected {}", last.index.0, manifest.last.0);
        }
        Ok(last)
    }
}

/// Names become paths.
fn check(manifest: &Manifest) -> anyhow::Result<()> {
    if manifest.version != VERSION {
        bail!("version {} of copies is not supported; this node has {VERSION}", manifest.version);
    }
    if let Some((name, _)) = manifest.files.iter().find(|(name, _)| JournalFile::of(name).is_none()) {
        bail!(malformed(&format!("{name:?} is not a file of a journal")));
    }
    if manifest.members.members().is_none() {
        bail!(malformed("no list of members"));
    }
    Ok(())
}
