//! Files of identities: written as a whole or not at all, and readable by their owner only.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::documents::Text;
use crate::users::UserError;

/// Replaces the file's content, as [`replace_file`].
///
/// # Errors
/// It cannot be written; the old content is still there.
pub(crate) fn replace(file: &Path, text: &str) -> Result<(), UserError> {
    replace_file(file, text, 0o600).map_err(|source| UserError::File { file: file.to_owned(), source })
}

/// Replaces the file's content, or makes the file. On success it is durable, with its name, and has
/// this mode. Root leaves it to its owner, who may be the user of a service that reads it.
///
/// # Errors
/// It cannot be written; the old content is still there.
pub fn replace_file(file: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    new.set_permissions(Permissions::from_mode(mode))?;
    if let Ok(before) = std::fs::metadata(file) {
        // Root alone can give files away; for others it is theirs already.
        let _ = fchown(&new, Some(before.uid()), Some(before.gid()));
    }
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    std::fs::rename(&beside, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The content of a file; `None` if there is no such file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn content(file: &Path) -> Result<Option<String>, UserError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(UserError::File { file: file.to_owned(), source }),
    }
}

/// What a text says, with the text: a change is in force at once, for every thread.
#[derive(Debug)]
pub(crate) struct Book<T> {
    text: Text,
    content: RwLock<Arc<T>>,
    /// Held while the text is replaced.
    writing: Mutex<()>,
}

impl<T: Clone + Default + PartialEq> Book<T> {
    /// Of this text, which [`Book::reload`] reads.
    pub(crate) fn new(text: Text) -> Book<T> {
        Book { text, content: RwLock::default(), writing: Mutex::default() }
    }

    /// The text.
    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    /// Reads the text again; one that does not exist says nothing. In a cluster to be called when
    /// this node begins to lead: later changes are in force already.
    ///
    /// # Errors
    /// It cannot be read, or `parse` refuses a line; the old content stays in force.
    pub(crate) fn reload(&self, parse: fn(&str) -> Result<T, (usize, String)>) -> Result<(), UserError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = |wrong| self.text.wrong(wrong);
        let text = self.text.read()?;
        let content = text.map_or_else(|| Ok(T::default()), |text| parse(&text).map_err(wrong))?;
        self.put(content);
        Ok(())
    }

    /// All that is in force.
    pub(crate) fn all(&self) -> Arc<T> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the content, and replaces the text if it differs: not for a thread that others wait
    /// for.
    ///
    /// # Errors
    /// As `change`, or the text cannot be replaced; nothing is changed then.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, UserError>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<R, UserError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.all();
        let mut content = T::clone(&before);
        let changed = change(&mut content)?;
        if content != *before {
            self.text.replace(&text(&content))?;
            self.put(content);
        }
        Ok(changed)
    }

    /// What is in force from now on; the text is as it was.
    pub(crate) fn put(&self, content: T) {
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
    }
}
