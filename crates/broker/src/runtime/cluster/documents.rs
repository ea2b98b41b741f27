//! Documents of this node's cluster: read from the store that it leads, and changed by a client
//! inside the process.
//!
//! Never here: the meaning of a document.

use std::sync::Arc;
use std::time::Duration;

use postroad_core::{Document, documents};
use postroad_model::{DocumentChange, DocumentRequest, Event, Refusal};
use postroad_node::{Answer, ClientError, ClientOptions, Clients};
use postroad_security::{Commit, Documents};

use crate::runtime::cluster::LeaderStore;
use crate::runtime::cluster::store_part::StorePart;

/// How often changes are looked for.
const PUBLISHED_EVERY: Duration = Duration::from_millis(100);

/// Commits changes of documents, while this node leads.
#[derive(Clone)]
pub struct DocumentWriter(Clients);

impl DocumentWriter {
    /// By clients of the broker itself.
    pub fn new(clients: Clients) -> DocumentWriter {
        DocumentWriter(clients)
    }

    /// Replaces a document; done once a majority of the nodes has it.
    ///
    /// # Errors
    /// It was refused, or it is not known whether it was carried out, as another node leads.
    pub async fn commit(&self, change: DocumentChange) -> Result<(), Refusal> {
        let result = self.request(change).await;
        result.unwrap_or_else(|error| match error {
            ClientError::Refused(refusal) => Err(refusal),
            _ => Err(Refusal::OutcomeUnknown),
        })
    }

    async fn request(&self, change: DocumentChange) -> Result<Result<(), Refusal>, ClientError> {
        let client = self.0.connect(ClientOptions::named("documents")).await?;
        let make = move |connection, ticket| {
            Event::Document(Box::new(DocumentRequest { change, connection, ticket }))
        };
        let Answer { result, .. } = client.request(make).await?;
        Ok(result)
    }

    /// For threads that may wait. The main thread has no part in it, as it must not wait.
    fn blocking(&self) -> Commit {
        let writer = self.clone();
        Arc::new(move |change| tokio::runtime::Handle::current().block_on(writer.commit(change)))
    }

    /// Changes of these documents go into the log from now on.
    pub fn write(&self, documents: &Documents) {
        documents.lead(self.blocking());
    }
}

/// Publishes the documents of the first store, which this node leads, for the other stores of the
/// process.
pub async fn publish_documents(part: StorePart, documents: Arc<Documents>) {
    loop {
        let all = documents.contents();
        part.publish(all.iter().map(|(name, version, content)| (name, *version, content)));
        tokio::time::sleep(PUBLISHED_EVERY).await;
    }
}

/// Reads the documents of the store that this node leads.
pub fn read_documents(led: &LeaderStore, into: &Documents) {
    let first = led.stores.partitions.values().next();
    let all = first.into_iter().flat_map(documents);
    into.read(all.map(|(name, Document { version, content })| (name.clone(), *version, content.clone())));
}
