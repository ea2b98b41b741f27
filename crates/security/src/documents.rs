//! The texts of identities and tenants: files of a broker that stands alone; in a cluster documents
//! that its nodes replicate.
//!
//! In a cluster the files are read until one node has imported its own, and never written. A change
//! is in force once it is committed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use postroad_model::{DocumentChange, DocumentVersion, Refusal};

use crate::file;
use crate::users::UserError;

/// The document that says that the files of a node were imported.
const IMPORTED: &str = "imported";

/// Commits a change, and blocks until that is done.
pub type Commit = Arc<dyn Fn(DocumentChange) -> Result<(), Refusal> + Send + Sync>;

/// Where the texts of one broker are.
#[derive(Debug, Default)]
pub struct Documents {
    /// `None`: in files.
    replicated: Option<Mutex<Replicated>>,
}

/// The documents of a node of a cluster, as far as it knows them.
#[derive(Default)]
struct Replicated {
    /// As the store has them since this node leads.
    contents: BTreeMap<Arc<str>, (DocumentVersion, Bytes)>,
    /// `None` while another node leads.
    commit: Option<Commit>,
}

impl Replicated {
    /// Whether files count for documents that are not there.
    fn reads_files(&self) -> bool {
        !self.contents.contains_key(IMPORTED)
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("leads", &self.commit.is_some()).finish_non_exhaustive()
    }
}

impl Documents {
    /// Those of a node of a cluster, which follows.
    pub fn replicated() -> Documents {
        Documents { replicated: Some(Mutex::default()) }
    }

    /// Whether they are replicated.
    pub fn are_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// The store that this node is about to lead has these documents.
    pub fn read(&self, contents: impl IntoIterator<Item = (Arc<str>, DocumentVersion, Bytes)>) {
        if let Some(replicated) = &self.replicated {
            let contents = contents.into_iter().map(|(name, version, content)| (name, (version, content)));
            *lock(replicated) = Replicated { contents: contents.collect(), commit: None };
        }
    }

    /// All documents, as far as this node knows them.
    pub fn contents(&self) -> Vec<(Arc<str>, DocumentVersion, Bytes)> {
        let Some(replicated) = &self.replicated else { return Vec::new() };
        let row = |(name, (version, content)): (&Arc<str>, &(DocumentVersion, Bytes))| {
            (name.clone(), *version, content.clone())
        };
        lock(replicated).contents.iter().map(row).collect()
    }

    /// This node leads: changes are committed so.
    pub fn lead(&self, commit: Commit) {
        if let Some(replicated) = &self.replicated {
            lock(replicated).commit = Some(commit);
        }
    }

    /// This node leads no more.
    pub fn follow(&self) {
        if let Some(replicated) = &self.replicated {
            lock(replicated).commit = None;
        }
    }

    /// The change that ends the import of files; `None` if it has ended.
    pub fn end_of_import(&self) -> Option<DocumentChange> {
        let replicated = lock(self.replicated.as_ref()?);
        let replaces = DocumentVersion::default();
        let change = DocumentChange { name: IMPORTED.into(), replaces, content: Bytes::new() };
        replicated.reads_files().then_some(change)
    }

    /// A change was committed.
    pub fn committed(&self, change: DocumentChange) {
        let Some(replicated) = &self.replicated else { return };
        let mut replicated = lock(replicated);
        let version = replicated.contents.get(&change.name).map(|(version, _)| *version).unwrap_or_default();
        // Another term may have begun, which knows it already.
        if version == change.replaces {
            replicated.contents.insert(change.name, (version.next(), change.content));
        }
    }
}

fn lock(replicated: &Mutex<Replicated>) -> std::sync::MutexGuard<'_, Replicated> {
    replicated.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a text: another one if its content was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStamp {
    /// There is none.
    Missing,
    /// When the file was changed, and its length.
    File(SystemTime, u64),
    /// The version of the document.
    Document(DocumentVersion),
}

/// One text: a file, or a document.
#[derive(Clone, Debug)]
pub struct Text {
    name: &'static str,
    file: PathBuf,
    documents: Arc<Documents>,
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        (self.name, &self.file) == (other.name, &other.file)
    }
}

impl Text {
    /// The text of this file of a broker, or the document of this name.
    pub fn new(name: &'static str, file: &Path, documents: &Arc<Documents>) -> Text {
        Text { name, file: file.to_owned(), documents: documents.clone() }
    }

    /// The text of this file.
    pub fn of_file(file: &Path) -> Text {
        Text { name: "", file: file.to_owned(), documents: Arc::default() }
    }

    /// Its file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether it is replicated.
    pub fn is_replicated(&self) -> bool {
        self.documents.are_replicated()
    }

    /// Its content; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Result<Option<String>, UserError> {
        match self.document() {
            Some((_, content)) => String::from_utf8(content.to_vec())
                .map(Some)
                .map_err(|_| self.wrong((1, "not UTF-8".to_owned()))),
            None => self.content_of_file(),
        }
    }

    fn content_of_file(&self) -> Result<Option<String>, UserError> {
        if self.file_counts() { file::content(&self.file) } else { Ok(None) }
    }

    /// Whether the file says its content, if there is no document.
    fn file_counts(&self) -> bool {
        self.documents.replicated.as_ref().is_none_or(|documents| lock(documents).reads_files())
    }

    /// Its state now.
    pub fn stamp(&self) -> TextStamp {
        if let Some((version, _)) = self.document() {
            return TextStamp::Document(version);
        }
        let data = std::fs::metadata(&self.file).ok().filter(|_| self.file_counts());
        let stamp = data.and_then(|data| Some(TextStamp::File(data.modified().ok()?, data.len())));
        stamp.unwrap_or(TextStamp::Missing)
    }

    fn document(&self) -> Option<(DocumentVersion, Bytes)> {
        lock(self.documents.replicated.as_ref()?).contents.get(self.name).cloned()
    }

    /// The error for a line of it.
    pub(crate) fn wrong(&self, (line, reason): (usize, String)) -> UserError {
        UserError::Line { file: self.file.clone(), line, reason }
    }

    /// The change that replaces the document by this content; `None` for a file.
    pub fn change(&self, content: String) -> Option<DocumentChange> {
        let replaces = self.is_replicated().then(|| self.document().map(|(version, _)| version))?;
        let replaces = replaces.unwrap_or_default();
        Some(DocumentChange { name: self.name.into(), replaces, content: content.into() })
    }

    /// The change that makes the document of the file, if there is a file and no document yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn import(&self) -> Result<Option<DocumentChange>, UserError> {
        let is_missing = self.is_replicated() && self.document().is_none();
        let content = if is_missing { self.content_of_file()? } else { None };
        Ok(content.and_then(|content| self.change(content)))
    }

    /// Replaces the content: durably, and in a cluster on a majority of its nodes. Blocks until
    /// then.
    ///
    /// # Errors
    /// It cannot be written, or is not known to be; the old content stays in force.
    pub fn replace(&self, content: &str) -> Result<(), UserError> {
        let (Some(replicated), Some(change)) = (&self.documents.replicated, self.change(content.to_owned()))
        else {
            return file::replace(&self.file, content);
        };
        let commit = lock(replicated).commit.clone().ok_or(Refusal::NotLeader)?;
        commit(change.clone())?;
        self.documents.committed(change);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(documents: &Arc<Documents>) -> (tempfile::TempDir, Text) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, "of the file").unwrap();
        (folder, Text::new("users", &file, documents))
    }

    fn content(text: &Text) -> String {
        text.read().unwrap().unwrap_or_default()
    }

    #[test]
    fn a_broker_that_stands_alone_has_files() {
        let (_folder, text) = text(&Arc::default());
        assert_eq!((text.import().unwrap(), text.change(String::new())), (None, None));
        text.replace("new").unwrap();
        assert_eq!(content(&text), "new");
        assert_eq!(std::fs::read_to_string(text.file()).unwrap(), "new");
    }

    #[test]
    fn a_leader_has_documents_and_the_file_until_there_is_one() {
        let documents = Arc::new(Documents::replicated());
        let (_folder, text) = text(&documents);
        assert_eq!(content(&text), "of the file");
        let refused = text.replace("new").unwrap_err();
        assert!(matches!(refused, UserError::Refused(Refusal::NotLeader)), "{refused}");
        let log: Arc<Mutex<Vec<DocumentChange>>> = Arc::default();
        let commit = |log: &Arc<Mutex<Vec<DocumentChange>>>| -> Commit {
            let log = log.clone();
            Arc::new(move |change| {
                if change.content == "lost" {
                    return Err(Refusal::OutcomeUnknown);
                }
                log.lock().unwrap().push(change);
                Ok(())
            })
        };
        documents.read([]);
        documents.lead(commit(&log));
        let imported = text.import().unwrap().unwrap();
        assert_eq!((imported.replaces, &*imported.content), (DocumentVersion(0), &b"of the file"[..]));
        text.replace("first").unwrap();
        assert_eq!(text.import().unwrap(), None, "there is a document");
        assert!(text.replace("lost").is_err());
        assert_eq!(content(&text), "first", "a change that is not confirmed is not in force");
        text.replace("second").unwrap();
        let versions: Vec<u64> = log.lock().unwrap().iter().map(|change| change.replaces.0).collect();
        assert_eq!((content(&text), versions), ("second".to_owned(), vec![0, 1]));
        assert_eq!(std::fs::read_to_string(text.file()).unwrap(), "of the file");
        documents.follow();
        assert!(text.replace("third").is_err());
        // The next term begins with what the store has.
        let kept = ("users".into(), DocumentVersion(5), Bytes::from_static(b"of another leader"));
        documents.read([kept]);
        assert_eq!(content(&text), "of another leader");
        documents.lead(commit(&log));
        text.replace("fourth").unwrap();
        assert_eq!(log.lock().unwrap().last().unwrap().replaces, DocumentVersion(5));
    }

    #[test]
    fn files_of_other_nodes_do_not_count_once_one_has_imported_its_own() {
        let documents = Arc::new(Documents::replicated());
        let (folder, users) = text(&documents);
        let tokens = Text::new("tokens", &folder.path().join("tokens"), &documents);
        assert_eq!((content(&users), content(&tokens)), ("of the file".to_owned(), String::new()));
        for change in [users.import().unwrap().unwrap(), documents.end_of_import().unwrap()] {
            documents.committed(change);
        }
        std::fs::write(users.file(), "later").unwrap();
        std::fs::write(tokens.file(), "later").unwrap();
        assert_eq!((content(&users), content(&tokens)), ("of the file".to_owned(), String::new()));
        assert_eq!((tokens.import().unwrap(), documents.end_of_import()), (None, None));
        assert_eq!(Arc::new(Documents::default()).end_of_import(), None);
    }

    #[test]
    fn a_change_of_a_former_term_does_not_replace_what_the_next_one_knows() {
        let documents = Arc::new(Documents::replicated());
        let (_folder, text) = text(&documents);
        documents.lead(Arc::new(|_| Ok(())));
        let late = text.change("late".to_owned()).unwrap();
        let kept = ("users".into(), DocumentVersion(1), Bytes::from_static(b"late"));
        documents.read([kept]);
        documents.lead(Arc::new(|_| Ok(())));
        text.replace("later").unwrap();
        documents.committed(late);
        assert_eq!(content(&text), "later");
    }
}
