//! A verified copy takes the place of the store, at the start of the process. Each step may be
//! followed by a crash, and is repeated:
//!
//! ```text
//!  ready.json ─▶ files of the old journal are removed ─▶ installing.json ─▶ files move, layout, vote, membership ─▶ the marker goes
//! ```

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, bail};
use postroad_cluster::{EntryId, Index, NodeId, Term, Vote, VoteFile};
use postroad_journal::{RealDisk, is_journal_name};
use serde::{Deserialize, Serialize};

use super::incoming::DIRECTORY;
use super::{Fetched, ListedMembers, VERSION};
use crate::runtime::cluster::damage::remove_aside;
use crate::runtime::cluster::identity::{FILE_MODE, Identities};
use postroad_security::replace_file;
use postroad_store::Layout;

const READY: &str = "ready.json";
const INSTALLING: &str = "installing.json";

/// What remains to be done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Marker {
    version: u32,
    term: u64,
    /// Index and term of the last entry of the copy.
    last: (u64, u64),
    /// The vote of this node is lost: it votes for no other node in this term or an earlier one.
    new_vote: bool,
    /// The name of the author.
    from: String,
    layout: Layout,
    files: Vec<String>,
    /// The members that were in force at the author.
    members: ListedMembers,
}

/// The next start installs this copy. With `new_vote` the node has lost its vote, and has one in
/// the term of the copy from then on.
///
/// # Errors
/// The disk refuses: nothing has changed.
pub fn announce(data: &Path, copy: &Fetched, new_vote: bool) -> anyhow::Result<()> {
    let manifest = &copy.manifest;
    let files = manifest.files.iter().map(|(name, _)| name.clone()).collect();
    let layout = manifest.layout.clone();
    let members = manifest.members.clone();
    let (term, last, from) = (manifest.term, manifest.last, copy.from.clone());
    let marker = Marker { version: VERSION, term, last, new_vote, from, layout, files, members };
    replace_file(&data.join(DIRECTORY).join(READY), &serde_json::to_string_pretty(&marker)?, FILE_MODE)?;
    Ok(())
}

/// Installs the copy that was announced, if there is one.
///
/// # Errors
/// The disk refuses, or a file is missing. The next start tries again.
pub fn install(data: &Path, cluster: &str, node: NodeId) -> anyhow::Result<()> {
    let incoming = data.join(DIRECTORY);
    let (ready, installing) = (incoming.join(READY), incoming.join(INSTALLING));
    if !ready.exists() && !installing.exists() {
        return Ok(());
    }
    let disk = RealDisk::open(data)?;
    if ready.exists() {
        for entry in fs::read_dir(data)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_journal_name) {
                fs::remove_file(entry.path())?;
            }
        }
        sync(data)?;
        fs::rename(&ready, &installing)?;
        sync(&incoming)?;
    }
    let marker = fs::read(&installing)?;
    let marker: Marker = serde_json::from_slice(&marker).with_context(|| installing.display().to_string())?;
    if marker.version != VERSION {
        bail!("{}: version {} is not supported", installing.display(), marker.version);
    }
    for name in &marker.files {
        let (from, to) = (incoming.join(name), data.join(name));
        if from.exists() {
            fs::rename(&from, &to)?;
        } else if !to.exists() {
            bail!("{} is missing: remove {} and start again for another copy", to.display(), data.display());
        }
    }
    sync(data)?;
    marker.layout.write(data)?;
    if marker.new_vote {
        let vote = data.join("vote");
        if vote.exists() {
            fs::remove_file(vote)?;
        }
        VoteFile::create(&disk)?.write(Vote { term: Term(marker.term), voted_for: Some(node) })?;
    }
    // The entry that says so may not be in the copy's log any more.
    let members = marker.members.members().context("the copy has no list of members")?;
    let mut vote = VoteFile::open(&disk)?;
    vote.write_mark(EntryId { index: Index(marker.last.0), term: Term(marker.last.1) })?;
    if members.is_later_than(&vote.members().cloned().unwrap_or_default()) {
        vote.write_members(members)?;
    }
    let identities = Identities::open(data, cluster, node)?;
    identities.fill(&marker.from)?;
    identities.damage().iter().for_each(|damage| remove_aside(data, damage));
    fs::remove_file(&installing)?;
    sync(&incoming)?;
    fs::remove_dir_all(&incoming)?;
    tracing::info!(
        files = marker.files.len(),
        from = marker.from,
        "the store was filled by a copy of the leader's"
    );
    Ok(())
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}
