//! Named documents: texts of the administration, such as the users, that all nodes of a cluster
//! keep.
//!
//! A document is replaced as a whole. A change names the version that it was made from, so that no
//! operator overwrites a change of another one.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{ConnectionId, Ticket};

/// Documents of a partition, at most.
pub const DOCUMENTS_MAX: usize = 16;

/// Bytes of the name of a document, at most.
pub const DOCUMENT_NAME_BYTES_MAX: usize = 64;

/// Bytes of a document, at most: each change is one record.
pub const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// How often a document was replaced; 0 is one that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentVersion(pub u64);

impl DocumentVersion {
    /// The version after this one.
    pub fn next(self) -> DocumentVersion {
        DocumentVersion(self.0.saturating_add(1))
    }
}

/// A new content of a document.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentChange {
    /// Which document.
    pub name: Arc<str>,
    /// The version that it replaces.
    pub replaces: DocumentVersion,
    /// The whole content.
    pub content: Bytes,
}

/// Without the content, which has secrets.
impl fmt::Debug for DocumentChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DocumentChange { name, replaces, content } = self;
        write!(f, "document {name} after version {}: {} bytes", replaces.0, content.len())
    }
}

/// Replace a document. Answered once that is durable.
#[derive(Clone, Debug)]
pub struct DocumentRequest {
    /// The change.
    pub change: DocumentChange,
    /// Who asks.
    pub connection: ConnectionId,
    /// Who waits for it.
    pub ticket: Ticket,
}
