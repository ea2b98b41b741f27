//! A former store of this node, in the directory `former` of its data directory: the part of its
//! log that the leader has, too, stands in for a copy. So a site that a mirror had replaced comes
//! back by the difference.
//!
//! ```text
//!  node                                        leader
//!  request: terms and end of the former log ─▶ looks for the last entry that both have
//!                             ◀── that entry, term, layout, members; or a refusal
//!  links the files, cuts the log of the links behind that entry, verifies, restarts (`install`)
//! ```
//! The former directory stays as it is. Its later entries were confirmed there, and are in no other
//! place: the log names them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use postroad_cluster::{EntryId, EntryLog, Index, JournalLog, Term};
use postroad_journal::{Journal, JournalFile, Options, RealDisk};
use postroad_store::new_identity;
use serde::{Deserialize, Serialize};

use super::incoming::{Least, NotNow, PATIENCE};
use super::{
    Answer, Fetched, Fetcher, ListedMembers, MANIFEST_BYTES_MAX, Manifest, Request, VERSION, malformed,
};
use crate::runtime::cluster::wire::Wire;
use postroad_store::Layout;

const DIRECTORY: &str = "former";
/// Attempts with a leader after which a whole copy is fetched.
const ATTEMPTS_MAX: u32 = 10;
/// Runs of terms that a request may have: more elections than a log has.
const RUNS_MAX: usize = 100_000;

/// The terms of a log: the first entry of each, and the last entry of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogTerms {
    runs: Vec<(u64, u64)>,
    last: u64,
}

impl LogTerms {
    fn of(runs: &[EntryId], last: Index) -> LogTerms {
        let runs = runs.iter().map(|run| (run.index.0, run.term.0)).collect();
        LogTerms { runs, last: last.0 }
    }

    /// The runs in their order, and the last entry; `None` if they make no sense.
    pub(super) fn read(&self) -> Option<(Vec<EntryId>, Index)> {
        let rise = self.runs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        let runs = self.runs.iter().map(|(index, term)| EntryId { index: Index(*index), term: Term(*term) });
        (rise && !self.runs.is_empty() && self.runs.len() <= RUNS_MAX)
            .then(|| (runs.collect(), Index(self.last)))
    }
}

/// The part of a former log that the leader has, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedLog {
    pub(super) version: u32,
    /// In which the leader leads.
    pub(super) term: u64,
    /// Index and term of the last entry that both have.
    pub(super) last: (u64, u64),
    pub(super) layout: Layout,
    pub(super) members: ListedMembers,
}

impl Fetcher {
    /// That of a further store is in the former data directory of its node, which has them all.
    fn former(&self) -> PathBuf {
        let own = self.data.join(DIRECTORY);
        let of_node = match (self.data.parent(), self.data.file_name()) {
            (Some(node), Some(name)) => Some(node.join(DIRECTORY).join(name)),
            _ => None,
        };
        of_node.filter(|former| self.is_further && !own.is_dir() && former.is_dir()).unwrap_or(own)
    }

    /// Whether there is a former store that may be of use.
    pub fn has_former(&self) -> bool {
        self.attempts.load(Ordering::Relaxed) < ATTEMPTS_MAX && self.former().is_dir()
    }

    /// Makes a store of the part of the former one that the leader has, too.
    ///
    /// # Errors
    /// The peer does not lead, or leads in a term that is too early, or the former store is of no
    /// use: a whole copy is needed.
    pub fn take_former(&self, wire: (&Wire, &str), least: Least) -> anyhow::Result<Fetched> {
        let taken = self.try_former(wire, least);
        if let Err(error) = &taken {
            self.discard();
            // The leader is asked in another round.
            if error.is::<NotNow>() {
                return taken;
            }
            let failed = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
            if failed == ATTEMPTS_MAX || error.is::<NoUse>() {
                self.attempts.store(ATTEMPTS_MAX, Ordering::Relaxed);
                tracing::warn!(
                    error = format!("{error:#}"),
                    former = %self.former().display(),
                    "the former store cannot be used: a whole copy is fetched"
                );
            }
        }
        taken
    }

    fn try_former(&self, (wire, from): (&Wire, &str), least: Least) -> anyhow::Result<Fetched> {
        wire.expect_within(PATIENCE)?;
        self.discard();
        link_files(&self.former(), &self.directory)?;
        let mut log = self.open_log()?;
        let end = log.last();
        let log_terms = Some(LogTerms::of(&log.runs(), end));
        let request =
            Request { version: VERSION, log: log_terms, least: least.asked(), ..Request::default() };
        wire.write_frame(&serde_json::to_vec(&request)?)?;
        let shared = match serde_json::from_slice(&wire.read_frame(MANIFEST_BYTES_MAX)?)? {
            Answer::Shared(shared) => *shared,
            Answer::Refused(reason) => return Err(NotNow(reason).into()),
            Answer::Manifest(_) => bail!(malformed("a manifest in place of the shared log")),
        };
        if shared.version != VERSION || shared.members.members().is_none() {
            bail!(malformed("the shared log"));
        }
        self.check_term(Term(shared.term), least)?;
        let fork = EntryId { index: Index(shared.last.0), term: Term(shared.last.1) };
        if fork == EntryId::default() {
            return Err(NoUse("the leader's log does not begin before the logs parted").into());
        }
        while fork.index < log.checkpointed() {
            drop(log);
            remove_newest_checkpoint(&self.directory)?;
            log = self.open_log()?;
        }
        if log.term(fork.index) != Some(fork.term) || log.checkpointed() < log.floor().index {
            return Err(NoUse("its checkpoints are of later than the last entry that both logs have").into());
        }
        if fork.index < end && has_compacted(&self.directory)? {
            return Err(NoUse("it was compacted, and has entries that the leader does not have").into());
        }
        log.cut_to(fork.index)?;
        drop(log);
        let manifest = self.manifest_of(shared)?;
        let last = self.verify(&manifest).context("the former store cannot be used")?;
        let behind = end.0 - fork.index.0;
        if 0 < behind {
            tracing::error!(
                entries = behind,
                first = fork.index.0 + 1,
                last = end.0,
                directory = %self.former().display(),
                "entries of the former store are not in the cluster: they had not reached the mirror, and stay in \
                 this directory"
            );
        }
        tracing::info!(
            shared = fork.index.0,
            from,
            "the former store is used: its later entries are fetched alone"
        );
        Ok(Fetched { term: Term(manifest.term), last, from: from.to_owned(), manifest })
    }

    fn open_log(&self) -> anyhow::Result<JournalLog<RealDisk>> {
        let disk = RealDisk::open(&self.directory)?;
        let (options, keys) = (Options::default(), self.keys.clone());
        let (journal, recovered) = Journal::open_with(disk.clone(), options, keys.clone(), &mut |_, _| ())?;
        if let Some(damage) = recovered.damaged.first() {
            bail!("{damage}");
        }
        Ok(JournalLog::over(disk, (options, keys), journal, &recovered)?)
    }

    fn manifest_of(&self, shared: SharedLog) -> anyhow::Result<Manifest> {
        let SharedLog { version, term, last, layout, members } = shared;
        let files = journal_files(&self.directory)?.into_iter().map(|(name, path)| {
            let bytes = path.metadata()?.len();
            Ok((name, bytes))
        });
        let files = files.collect::<std::io::Result<Vec<_>>>()?;
        Ok(Manifest { version, copy: new_identity()?, term, last, layout, files, members })
    }
}

/// A former store that a further attempt does not make better.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoUse(&'static str);

/// Segments and checkpoints of a directory, by name.
fn journal_files(directory: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_str().map(str::to_owned);
        files.extend(name.filter(|name| JournalFile::of(name).is_some()).map(|name| (name, entry.path())));
    }
    files.sort();
    Ok(files)
}

/// Gives the files of a store further names; on another device they are copied.
fn link_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    // No process has it open.
    let former = RealDisk::open(from)?;
    fs::create_dir(to).with_context(|| format!("cannot create {}", to.display()))?;
    for (name, path) in journal_files(from)? {
        let linked = fs::hard_link(&path, to.join(&name));
        if linked.is_err() {
            fs::copy(&path, to.join(&name)).with_context(|| format!("cannot copy {}", path.display()))?;
            File::open(to.join(&name))?.sync_all()?;
        }
    }
    drop(former);
    Ok(File::open(to)?.sync_all()?)
}

fn remove_newest_checkpoint(directory: &Path) -> anyhow::Result<()> {
    let files = journal_files(directory)?;
    let is_checkpoint = |name: &str| JournalFile::of(name) == Some(JournalFile::Checkpoint);
    let newest = files.into_iter().rfind(|(name, _)| is_checkpoint(name));
    match newest {
        Some((_, path)) => Ok(fs::remove_file(path)?),
        None => Err(NoUse("no checkpoint is as old as the last entry that both logs have").into()),
    }
}

/// Messages that later entries have consumed may be gone from it.
fn has_compacted(directory: &Path) -> std::io::Result<bool> {
    let is_compacted = |name: &str| JournalFile::of(name) == Some(JournalFile::Compacted);
    Ok(journal_files(directory)?.iter().any(|(name, _)| is_compacted(name)))
}
