//! Backups of a running broker: the durable data of one moment, the part of each store in a
//! directory of its own.
//!
//! Until all parts are complete they have other names. If one fails, all are removed with their
//! directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use postroad_journal::{Backup, Disk, RealDisk};
use postroad_store::{LAYOUT_FILE, Layout};

use super::Answer;
use crate::runtime::NamedDoor;

/// Makes one of all stores: the main one's in `to`, that of each other one where `stores` says.
pub(super) fn back_up(
    journals: &[NamedDoor],
    to: &Path,
    stores: &BTreeMap<String, PathBuf>,
) -> anyhow::Result<Answer> {
    let made = places(journals, to, stores).and_then(|places| make(journals, places));
    made.context("nothing was backed up")
}

fn make(journals: &[NamedDoor], places: Vec<Place>) -> anyhow::Result<Answer> {
    let mut parts = places.into_iter().map(Part::begin).collect::<anyhow::Result<Vec<_>>>()?;
    let disks = parts.iter().map(|part| RealDisk::open(&part.at)).collect::<Result<Vec<_>, _>>()?;
    let backups = NamedDoor::back_up_all(journals, &disks)?;
    let (mut files, mut missing, mut fresh) = (0, Vec::new(), BTreeMap::new());
    for (((mut backup, disk), part), NamedDoor { path, .. }) in
        backups.into_iter().zip(&disks).zip(&parts).zip(journals)
    {
        files += backup.files;
        missing.append(&mut backup.missing);
        part.finish(backup, disk, path, &mut fresh)?;
    }
    // Once the main store's part has its name, without which no broker starts, all are there.
    parts.iter_mut().rev().try_for_each(Part::take_name)?;
    let to: Vec<String> = parts.into_iter().map(|part| part.keep().display().to_string()).collect();
    tracing::info!(to = to.join(", "), files, "backup complete");
    Ok(Answer::Backup { files, missing })
}

/// Where the part of one store goes. Nothing is there yet.
struct Place {
    to: PathBuf,
    /// Its name until all are whole.
    unfinished: PathBuf,
    /// The nearest directory above.
    below: PathBuf,
}

/// One for each store, in their order.
fn places(
    journals: &[NamedDoor],
    to: &Path,
    stores: &BTreeMap<String, PathBuf>,
) -> anyhow::Result<Vec<Place>> {
    let further = journals.iter().skip(1).map(|journal| &*journal.store);
    if let Some(unknown) = stores.keys().find(|name| further.clone().all(|store| store != name.as_str())) {
        bail!("there is no further store {unknown}");
    }
    let missing: Vec<&str> = further.filter(|name| !stores.contains_key(*name)).collect();
    if !missing.is_empty() {
        bail!(
            "with several stores, each needs a backup directory on its own file system: give those of {} with --store NAME=DIR",
            missing.join(", ")
        );
    }
    let place = |journal: &NamedDoor| Place::of(stores.get(&*journal.store).map_or(to, PathBuf::as_path));
    let places = journals.iter().map(place).collect::<anyhow::Result<Vec<_>>>()?;
    for (number, place) in places.iter().enumerate() {
        let lies_in =
            |journal: &&NamedDoor| journal.path.canonicalize().is_ok_and(|store| place.to.starts_with(store));
        if let Some(store) = journals.iter().find(lies_in) {
            bail!("{} is inside the directory of a store, {}", place.to.display(), store.path.display());
        }
        if let Some(other) = places[..number].iter().find(|other| place.overlaps(other)) {
            let (one, other) = (place.to.display(), other.to.display());
            bail!("{one} and {other} are the same directory or nested: each store needs its own");
        }
    }
    Ok(places)
}

impl Place {
    fn of(to: &Path) -> anyhow::Result<Place> {
        if !to.is_absolute() {
            bail!("{} is not an absolute path", to.display());
        }
        if to.symlink_metadata().is_ok() {
            bail!("{} exists; a backup needs a new directory", to.display());
        }
        let Resolved { to, below } = Resolved::of(to)?;
        let mut unfinished = to.clone().into_os_string();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        if unfinished.symlink_metadata().is_ok() {
            bail!(
                "{} exists: another backup is running, or a crash left it; in that case remove it",
                unfinished.display()
            );
        }
        Ok(Place { to, unfinished, below })
    }

    fn overlaps(&self, other: &Place) -> bool {
        let (own, others) = ([&self.to, &self.unfinished], [&other.to, &other.unfinished]);
        own.iter().any(|one| others.iter().any(|other| one.starts_with(other) || other.starts_with(one)))
    }
}

/// The path of a missing directory, without symbolic links.
struct Resolved {
    to: PathBuf,
    /// As much of it as is there.
    below: PathBuf,
}

impl Resolved {
    fn of(path: &Path) -> anyhow::Result<Resolved> {
        let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        let (above, below) = found.with_context(|| format!("no part of {} exists", path.display()))?;
        let rest = path.strip_prefix(above)?;
        if rest.components().any(|part| part == Component::ParentDir) {
            bail!("{}: its .. has no parent directory", path.display());
        }
        Ok(Resolved { to: below.join(rest), below })
    }
}

/// The part of one store. Unless it is kept it is removed with the directories that were made for
/// it.
struct Part {
    to: PathBuf,
    /// Its present name.
    at: PathBuf,
    /// The nearest directory above that was there before any part.
    below: PathBuf,
    is_kept: bool,
}

impl Part {
    fn begin(Place { to, unfinished, below }: Place) -> anyhow::Result<Part> {
        let refused = || format!("cannot create {}", unfinished.display());
        let parent = unfinished.parent().with_context(refused)?;
        fs::create_dir_all(parent).and_then(|()| fs::create_dir(&unfinished)).with_context(refused)?;
        Ok(Part { to, at: unfinished, below, is_kept: false })
    }

    /// Makes it whole and durable. `from` is the store's directory; `fresh` are the identities that
    /// the copies have instead of theirs.
    fn finish(
        &self,
        backup: Backup,
        disk: &RealDisk,
        from: &Path,
        fresh: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let written = || format!("cannot write {}", self.at.display());
        backup.finish(disk).with_context(written)?;
        let layout = Layout::find(from)?;
        let layout = layout.with_context(|| format!("{} is missing", from.join(LAYOUT_FILE).display()))?;
        layout.copied(fresh)?.write(&self.at)?;
        disk.sync_directory().with_context(written)
    }

    fn take_name(&mut self) -> anyhow::Result<()> {
        let named = || format!("cannot rename {}", self.to.display());
        fs::rename(&self.at, &self.to).with_context(named)?;
        self.at.clone_from(&self.to);
        let parent = self.to.parent().with_context(named)?;
        fs::File::open(parent).and_then(|parent| parent.sync_all()).with_context(named)
    }

    fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        std::mem::take(&mut self.to)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.at) {
            tracing::warn!(at = %self.at.display(), %error, "cannot remove an incomplete backup");
        }
        // Another process may have created it meanwhile.
        let made = self.at.ancestors().skip(1).take_while(|above| *above != self.below);
        let _ = made.map(fs::remove_dir).take_while(Result::is_ok).count();
    }
}
