//! A damaged store of a member: it takes no part with that, and is filled from another node.
//!
//! ```text
//!  found at the start ──────────────────────────────────────────┐
//!  found while it follows ── others are a majority without it ──┼──▶ written down ─▶ restart
//!                            and the leader grants it            │
//!  found while it leads ──── another one leads ─────────────────┘         │
//!       damaged files go to damaged-N, and stay ◀─────────────────────────┘
//!       an empty store, which does not vote ─▶ a copy fills it ─▶ damaged-N is removed
//! ```
//! The vote stays if it can be read. Then the copy must be of a leader of that term or a later one:
//! it has all that this store confirmed, as each confirmation was for a leader of at most that
//! term. A store that lost its vote, too, is a replaced one for the others (`joining`).
//!
//! Never here: how damage is found, how copies come (`copy`).

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context;
use postroad_cluster::{
    EntryId, GroupError, JournalLogError, Members, NodeId, VoteError, VoteFile, others_are_majority,
};
use postroad_journal::{DamageKind, OpenError, ReadError, RealDisk, Recovered, is_journal_name};
use postroad_store::{LAYOUT_FILE, StoreError};

use crate::runtime::cluster::identity::{Damage, FILE, Identities};

/// Directory for damaged files, with a number from 1.
const ASIDE: &str = "damaged-";
/// Parts of copies that were made, or received, before the damage was found.
const COPIES: [&str; 2] = ["incoming", "outgoing"];
const VOTE: &str = "vote";
/// Bytes of a description that are kept.
const PLACE_BYTES_MAX: usize = 400;

/// Why a store cannot go on as a replica, though another one can take its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}")]
pub struct StoreDamaged {
    /// The first damaged place.
    pub place: String,
    /// It is the vote.
    pub lost_vote: bool,
}

impl StoreDamaged {
    /// The damage of a store that opens, if that lacks records which it had confirmed.
    pub fn in_recovered<F>(recovered: &Recovered<F>) -> Option<StoreDamaged> {
        let lost = recovered.lost.iter().map(|lost| &lost.damage);
        let damage = recovered.damaged.iter().chain(lost).find(|damage| is_of_store(damage.kind));
        damage.map(|damage| StoreDamaged { place: damage.to_string(), lost_vote: false })
    }

    /// The damage that an error tells of; `None` if its reason is another.
    pub fn of(error: &anyhow::Error) -> Option<StoreDamaged> {
        if let Some(damaged) = error.chain().find_map(|cause| cause.downcast_ref::<StoreDamaged>()) {
            return Some(damaged.clone());
        }
        let lost_vote =
            error.chain().any(|cause| matches!(cause.downcast_ref::<VoteError>(), Some(VoteError::Damaged)));
        let is_damaged = lost_vote || error.chain().any(is_damage);
        is_damaged.then(|| StoreDamaged { place: format!("{error:#}"), lost_vote })
    }
}

/// A key that is not given is a matter of the configuration.
fn is_of_store(kind: DamageKind) -> bool {
    !matches!(kind, DamageKind::KeyUnknown { .. })
}

fn is_damage(cause: &(dyn std::error::Error + 'static)) -> bool {
    // A sector that the disk cannot read.
    let unreadable =
        |error: &std::io::Error| error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let read = |error: &ReadError| match error {
        ReadError::Damaged(damage) => is_of_store(damage.kind),
        ReadError::Io { source, .. } => unreadable(source),
        _ => false,
    };
    let open = |error: &OpenError| match error {
        OpenError::Damaged(damage) => is_of_store(damage.kind),
        OpenError::Io { source, .. } => unreadable(source),
        _ => false,
    };
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return match error {
            StoreError::Journal(error) => open(error),
            StoreError::Read(error) => read(error),
            StoreError::Layout { .. } | StoreError::LayoutGone { .. } => true,
            _ => false,
        };
    }
    match cause.downcast_ref::<JournalLogError>() {
        Some(JournalLogError::Open(error)) => return open(error),
        Some(JournalLogError::Read(error)) => return read(error),
        _ => {}
    }
    let group = cause.downcast_ref::<GroupError>();
    matches!(group, Some(GroupError::Inconsistent { .. } | GroupError::LostEntries { .. }))
}

/// Writes down damage that was found at the start. `false` if this node has no others that could
/// fill its store, or has none yet: it must not start then.
///
/// # Errors
/// It cannot be written down.
pub fn note(
    data: &Path,
    (cluster, own): (&str, NodeId),
    members: &Members,
    damaged: &StoreDamaged,
) -> anyhow::Result<bool> {
    if members.voters.iter().all(|node| *node == own) || !data.join(FILE).exists() {
        return Ok(false);
    }
    let identities = Identities::open(data, cluster, own)?;
    // The empty store in place of a damaged one has nothing to set aside.
    if identities.open_damage().is_some() {
        return Ok(false);
    }
    let mut place = damaged.place.clone();
    place.truncate(place.floor_char_boundary(PLACE_BYTES_MAX));
    identities.note_damage(Damage { place, lost_vote: damaged.lost_vote, ..Damage::default() })?;
    Ok(true)
}

/// Sets the files of a store aside that is known to be damaged. Each step may be followed by a
/// crash, and is repeated.
///
/// # Errors
/// The disk refuses.
pub fn set_aside(data: &Path, cluster: &str, own: NodeId) -> anyhow::Result<()> {
    if !data.join(FILE).exists() {
        return Ok(());
    }
    let identities = Identities::open(data, cluster, own)?;
    let Some(mut damage) = identities.open_damage().filter(|it| !it.is_aside) else {
        return Ok(());
    };
    // No other process has it open.
    let disk = RealDisk::open(data)?;
    match VoteFile::open(&disk) {
        // The log of the empty store ends before it.
        Ok(mut vote) => vote.write_mark(EntryId::default())?,
        Err(VoteError::Damaged) if !damage.lost_vote => {
            damage.lost_vote = true;
            identities.note_damage(damage.clone())?;
        }
        Err(_) if damage.lost_vote => {}
        Err(error) => return Err(error).with_context(|| data.display().to_string()),
    }
    let name = match &damage.aside {
        Some(name) => name.clone(),
        None => {
            let mut free = (1_u32..).map(|number| format!("{ASIDE}{number}"));
            free.find(|name| !data.join(name).exists()).context("no free name")?
        }
    };
    identities.note_damage_step(Damage { aside: Some(name.clone()), ..damage.clone() })?;
    let aside = data.join(&name);
    fs::create_dir_all(&aside).with_context(|| format!("cannot create {}", aside.display()))?;
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let moves = entry.file_name().to_str().is_some_and(|file| {
            is_journal_name(file) || file == LAYOUT_FILE || damage.lost_vote && file == VOTE
        });
        if moves {
            fs::rename(entry.path(), aside.join(entry.file_name()))?;
        }
    }
    for copy in COPIES {
        match fs::remove_dir_all(data.join(copy)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    File::open(&aside)?.sync_all()?;
    File::open(data)?.sync_all()?;
    drop(disk);
    tracing::error!(
        damage = damage.place,
        files_in = %aside.display(),
        "the store of this node is damaged: it takes no part until a copy of the leader's store has filled it; \
         its files stay until then, and are removed"
    );
    identities.note_damage_step(Damage { aside: Some(name), is_aside: true, ..damage })
}

/// Removes the damaged files of a store that was filled since.
pub fn remove_aside(data: &Path, damage: &Damage) {
    let Some(name) = damage.aside.as_ref().filter(|name| name.starts_with(ASIDE)) else { return };
    match fs::remove_dir_all(data.join(name)) {
        Ok(()) => tracing::warn!(
            damage = damage.place,
            from = damage.refilled_from,
            removed = name,
            "the damaged store was filled, and its former files were removed"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, directory = name, "cannot remove the files of the damaged store")
        }
    }
}

/// Whether the other nodes can go on without this one. `reached` are those that it reaches and that
/// have a whole store.
pub fn others_suffice(members: &Members, own: NodeId, reached: &[NodeId]) -> bool {
    let others = members.voters.iter().filter(|node| **node != own && reached.contains(node)).count();
    others_are_majority(members, own, others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_cluster::{Index, Term, Vote};
    use postroad_journal::Damage as Place;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn founders() -> Members {
        Members::founders(["a:1", "b:1", "c:1"])
    }

    #[test]
    fn an_error_is_damage_if_bytes_that_were_there_are_gone() {
        let place = |kind| Place { partition: None, file: "s".into(), offset: 7, kind };
        let io = |code| std::io::Error::from_raw_os_error(code);
        let unreadable = rustix::io::Errno::IO.raw_os_error();
        let full = rustix::io::Errno::NOSPC.raw_os_error();
        let read = |source| StoreError::Read(ReadError::Io { file: "s".into(), source });
        let locked = DamageKind::KeyUnknown {
            position: postroad_model::Position::FIRST,
            key: postroad_journal::Key::new(&[7; postroad_journal::KEY_BYTES]).id(),
        };
        let cases: [(&str, anyhow::Error, Option<bool>); 9] = [
            (
                "a group",
                StoreError::Journal(OpenError::Damaged(place(DamageKind::Group))).into(),
                Some(false),
            ),
            (
                "a record",
                StoreError::Read(ReadError::Damaged(place(DamageKind::Checkpoint))).into(),
                Some(false),
            ),
            ("a record without its key", StoreError::Read(ReadError::Damaged(place(locked))).into(), None),
            ("a bad sector", read(io(unreadable)).into(), Some(false)),
            ("a full disk", read(io(full)).into(), None),
            ("a log that is too short", JournalLogError::NotReplicated.into(), None),
            (
                "a log without its end",
                GroupError::Inconsistent {
                    floor: Default::default(),
                    last: Default::default(),
                    applied: Default::default(),
                    term: Default::default(),
                }
                .into(),
                Some(false),
            ),
            ("the vote", anyhow::Error::from(VoteError::Damaged).context("in the directory"), Some(true)),
            ("a store that is in use", anyhow::anyhow!("in use"), None),
        ];
        for (case, error, want) in cases {
            let damaged = StoreDamaged::of(&error).map(|damaged| damaged.lost_vote);
            assert_eq!(damaged, want, "case: {case}");
        }
    }

    #[test]
    fn others_suffice_if_they_are_a_majority_without_this_node() {
        for (case, own, reached, want) in [
            ("both", 1, vec![2, 3], true),
            ("one", 1, vec![2], false),
            ("one without a vote", 4, vec![], true),
            ("one that is no voter", 1, vec![2, 9], false),
        ] {
            let reached: Vec<NodeId> = reached.into_iter().map(node).collect();
            assert_eq!(others_suffice(&founders(), node(own), &reached), want, "case: {case}");
        }
    }

    fn files(of: &Path) -> Vec<String> {
        let names = fs::read_dir(of).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "LOCK").collect();
        names.sort();
        names
    }

    #[test]
    fn damaged_files_are_set_aside_once_whatever_a_crash_has_left() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path();
        let segments = ["0000000000000001.segment", "0000000000000002.segment"];
        for file in segments.iter().chain(&[LAYOUT_FILE, "tokens"]) {
            fs::write(data.join(file), b"content").unwrap();
        }
        let vote = || VoteFile::open(&RealDisk::open(data).unwrap()).unwrap();
        let (mark, term) = (EntryId { index: Index(5), term: Term(3) }, Term(4));
        let mut file = VoteFile::create(&RealDisk::open(data).unwrap()).unwrap();
        file.write(Vote { term, voted_for: None }).unwrap();
        file.write_mark(mark).unwrap();
        drop(file);
        for (lost_vote, aside, votes) in [(false, "damaged-1", 1), (true, "damaged-2", 0)] {
            let own = Identities::open(data, "c", node(1)).unwrap().own();
            Identities::open(data, "c", node(1)).unwrap().join().unwrap();
            fs::create_dir_all(data.join("incoming")).unwrap();
            let damaged = StoreDamaged { place: "a place".to_owned(), lost_vote };
            assert!(!note(data, ("c", node(1)), &Members::first([node(1)]), &damaged).unwrap(), "alone");
            assert!(note(data, ("c", node(1)), &founders(), &damaged).unwrap());
            assert!(!note(data, ("c", node(1)), &founders(), &damaged).unwrap(), "once");
            let noted = Identities::open(data, "c", node(1)).unwrap();
            assert_eq!((noted.own() == own, noted.joined()), (!lost_vote, false));
            // A crash after the first file.
            let step = Damage { aside: Some(aside.to_owned()), ..noted.damage().unwrap() };
            noted.note_damage_step(step).unwrap();
            fs::create_dir(data.join(aside)).unwrap();
            fs::rename(data.join(segments[0]), data.join(aside).join(segments[0])).unwrap();
            set_aside(data, "c", node(1)).unwrap();
            // The empty store of the next start stays.
            fs::write(data.join(segments[0]), b"empty").unwrap();
            set_aside(data, "c", node(1)).unwrap();
            if !lost_vote {
                assert_eq!((vote().vote().term, vote().mark()), (term, EntryId::default()));
            }
            let kept = files(data);
            assert_eq!(kept.iter().filter(|name| *name == VOTE).count(), votes, "{kept:?}");
            assert!(
                kept.contains(&"tokens".to_owned()) && !kept.contains(&"incoming".to_owned()),
                "{kept:?}"
            );
            assert!(!kept.contains(&segments[1].to_owned()) && !kept.contains(&LAYOUT_FILE.to_owned()));
            assert_eq!(files(&data.join(aside)).len(), 3 + usize::from(lost_vote));
            // A copy comes.
            let filled = Identities::open(data, "c", node(1)).unwrap();
            filled.fill("b").unwrap();
            let damage = filled.damage().unwrap();
            assert_eq!((filled.joined(), damage.refilled_from.as_deref()), (true, Some("b")));
            if lost_vote {
                remove_aside(data, &damage);
                assert!(!data.join(aside).exists() && data.join("damaged-1").exists());
            }
            fs::write(data.join(segments[1]), b"content").unwrap();
            fs::write(data.join(LAYOUT_FILE), b"content").unwrap();
        }
    }
}
