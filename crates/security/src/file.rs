//! Files of identities: written as a whole or not at all, and readable by their owner only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::users::UserError;

/// Replaces the file's content. On success it is durable, with its name.
///
/// # Errors
/// It cannot be written; the old content is still there.
pub(crate) fn replace(file: &Path, text: &str) -> Result<(), UserError> {
    let wrong = |source| UserError::File { file: file.to_owned(), source };
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let mut new = new.map_err(wrong)?;
    new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).map_err(wrong)?;
    std::fs::rename(&beside, file).map_err(wrong)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(wrong)
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
