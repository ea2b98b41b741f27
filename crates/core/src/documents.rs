//! Named documents: texts that operators change and all replicas keep. Only the front ends read
//! them.
//!
//! One change of a document at a time: while it is on its way into the log, another one is refused,
//! as one that was made from another version is.
//!
//! Never here: the meaning of a document.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    Command, DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENTS_MAX, DocumentChange, DocumentRequest,
    DocumentVersion, Effect, Refusal, Urgency,
};

use crate::Partition;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer};
use crate::partition::reply;

/// All documents, by name.
#[derive(Default)]
pub struct Documents {
    all: BTreeMap<Arc<str>, Document>,
}

/// One document.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// How often it was replaced.
    pub version: DocumentVersion,
    /// Its content.
    pub content: Bytes,
}

impl Documents {
    fn version(&self, name: &str) -> DocumentVersion {
        self.all.get(name).map(|document| document.version).unwrap_or_default()
    }

    /// Why the change cannot be.
    fn refusal(&self, change: &DocumentChange) -> Option<Refusal> {
        let DocumentChange { name, replaces, content } = change;
        let version = self.version(name);
        if *replaces != version {
            return Some(changed(name));
        }
        if DOCUMENT_BYTES_MAX < content.len() {
            let (name, bytes) = (name.clone(), content.len());
            return Some(Refusal::DocumentTooLarge { name, bytes, max: DOCUMENT_BYTES_MAX });
        }
        let is_new = version == DocumentVersion::default();
        if is_new && (DOCUMENTS_MAX <= self.all.len() || !is_name(name)) {
            return Some(Refusal::TooManyDocuments { name: name.clone(), max: DOCUMENTS_MAX });
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Writes the part of a snapshot, which is left out without any.
    pub(crate) fn write(&self, out: &mut Writer) {
        if !self.is_empty() {
            out.list(&self.all.iter().collect::<Vec<_>>(), |out, (name, document)| {
                out.text(name).u64(document.version.0).kept_blob(&document.content);
            });
        }
    }

    /// Reads that.
    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Documents, RecordError> {
        let mut documents = Documents::default();
        if input.has_more() {
            for (name, version, content) in
                input.list(|input| Ok((input.text()?, input.u64()?, input.blob()?)))?
            {
                let content = Bytes::from_owner(content);
                documents.all.insert(name, Document { version: DocumentVersion(version), content });
            }
        }
        Ok(documents)
    }
}

fn is_name(name: &str) -> bool {
    (1..=DOCUMENT_NAME_BYTES_MAX).contains(&name.len())
}

fn changed(name: &Arc<str>) -> Refusal {
    Refusal::DocumentChanged { name: name.clone() }
}

/// Writes a record of a change, after its type and version.
pub fn write_change<'w>(out: &'w mut Writer, change: &DocumentChange) -> &'w mut Writer {
    out.text(&change.name).u64(change.replaces.0).kept_blob(&change.content)
}

/// Reads that.
pub fn read_change(input: &mut Reader<'_>) -> Result<Command, RecordError> {
    let (name, replaces) = (input.text()?, DocumentVersion(input.u64()?));
    let content = Bytes::from_owner(input.blob()?);
    Ok(Command::Document(Box::new(DocumentChange { name, replaces, content })))
}

/// The documents that operators have made, by name.
pub fn documents(partition: &Partition) -> impl Iterator<Item = (&Arc<str>, &Document)> {
    partition.state.documents.all.iter()
}

/// Replaces a document; answered once that is durable.
pub fn replace(partition: &mut Partition, request: DocumentRequest, effects: &mut Vec<Effect>) {
    let DocumentRequest { change, connection, ticket } = request;
    let name = &change.name;
    let is_it = |completion: &Completion| matches!(completion, Completion::Document { name: other, .. } if other == name);
    let refusal = match partition.leader.log.pending.iter().any(is_it) {
        true => Some(changed(name)),
        false => partition.state.documents.refusal(&change),
    };
    if let Some(refusal) = refusal {
        return reply(connection, ticket, Err(refusal), effects);
    }
    let completion = Completion::Document { name: change.name.clone(), connection, ticket };
    propose(partition, Command::Document(Box::new(change)), Urgency::Waiting, completion, effects);
}

/// Carries that out. A change of another version than the present one has no effect.
pub fn apply(partition: &mut Partition, change: DocumentChange) {
    let documents = &mut partition.state.documents;
    if documents.refusal(&change).is_none() {
        let version = change.replaces.next();
        documents.all.insert(change.name, Document { version, content: change.content });
    }
}
