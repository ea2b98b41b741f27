//! Clients for other threads: a bounded channel to a task on a core, which has a local client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postroad_model::{Ask, ConnectionId, Event, Page, Sent, Ticket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::client::{Answer, ClientError, ClientOptions, CoreHandle, LocalClient};

/// Clients of other threads on one core.
const CLIENTS_MAX: usize = 256;

/// Clients that wait to be let in; more wait with their callers.
const NEWCOMERS_MAX: usize = 16;

/// Work of one client that is under way; more waits in its channel, and then with its callers.
const JOBS_MAX: usize = 16;

type Job = Box<dyn FnOnce(LocalClient) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A client that wants to join a core.
pub struct JoiningClient {
    options: ClientOptions,
    jobs: mpsc::Receiver<Job>,
    admitted: oneshot::Sender<Result<(), ClientError>>,
}

/// Makes clients, spread over the cores.
#[derive(Clone)]
pub struct Clients {
    cores: Arc<[mpsc::Sender<JoiningClient>]>,
    next: Arc<AtomicUsize>,
}

impl Clients {
    /// Over this number of cores; each passes the output of its receiver to [`admit`].
    pub fn over(cores: usize) -> (Clients, Vec<mpsc::Receiver<JoiningClient>>) {
        let (cores, doors): (Vec<_>, Vec<_>) = (0..cores).map(|_| mpsc::channel(NEWCOMERS_MAX)).unzip();
        (Clients { cores: cores.into(), next: Arc::default() }, doors)
    }

    /// A new client on the next core in turn.
    ///
    /// # Errors
    /// [`ClientError::TooManyClients`] and [`ClientError::Ended`].
    pub async fn connect(&self, options: ClientOptions) -> Result<Client, ClientError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let core = self.cores.get(turn % self.cores.len().max(1)).ok_or(ClientError::Ended)?;
        let (jobs, receiver) = mpsc::channel(JOBS_MAX);
        let (admitted, answer) = oneshot::channel();
        let joining = JoiningClient { options, jobs: receiver, admitted };
        core.send(joining).await.map_err(|_| ClientError::Ended)?;
        answer.await.map_err(|_| ClientError::Ended)??;
        Ok(Client { jobs })
    }
}

/// A client of another thread. Clones are the same client, which ends with the last of them: its
/// consumers are detached.
#[derive(Clone)]
pub struct Client {
    jobs: mpsc::Sender<Job>,
}

impl Client {
    /// Does something with the local client on its core's thread. Dropped before it is done, the
    /// work is dropped too.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn run<T, F, W>(&self, work: F) -> Result<T, ClientError>
    where
        F: FnOnce(LocalClient) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (mut answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |client| {
            Box::pin(async move {
                let done = tokio::select! {
                    done = work(client) => done,
                    () = answer.closed() => return,
                };
                // The caller may have gone just now.
                let _ = answer.send(done);
            })
        });
        self.jobs.send(job).await.map_err(|_| ClientError::Ended)?;
        answered.await.map_err(|_| ClientError::Ended)
    }

    /// See [`LocalClient::publish`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn publish(&self, sent: Sent) -> Result<(), ClientError> {
        self.run(|client| async move { client.publish(sent).await }).await?
    }

    /// See [`LocalClient::ask`].
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn ask(&self, ask: Ask) -> Result<Page, ClientError> {
        self.run(|client| async move { client.ask(ask).await }).await?
    }

    /// See [`LocalClient::request`].
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn request(
        &self,
        make: impl FnOnce(ConnectionId, Ticket) -> Event + Send + 'static,
    ) -> Result<Answer, ClientError> {
        self.run(|client| async move { client.request(make).await }).await?
    }
}

/// Serves the clients that come to this core, until the future is dropped: all of them end then.
pub async fn admit(handle: CoreHandle, mut newcomers: mpsc::Receiver<JoiningClient>) {
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            joining = newcomers.recv() => {
                let Some(joining) = joining else { return };
                if served.len() < CLIENTS_MAX {
                    served.spawn_local(serve(handle.clone(), joining));
                } else {
                    let _ = joining.admitted.send(Err(ClientError::TooManyClients { max: CLIENTS_MAX }));
                }
            }
            Some(_) = served.join_next() => {}
        }
    }
}

async fn serve(handle: CoreHandle, joining: JoiningClient) {
    let JoiningClient { options, mut jobs, admitted } = joining;
    if admitted.send(Ok(())).is_err() {
        return;
    }
    let (client, mailbox) = LocalClient::join(&handle, options);
    let mut mailbox = std::pin::pin!(mailbox.run());
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            () = mailbox.as_mut() => return,
            Some(_) = under_way.join_next() => {}
            job = jobs.recv(), if under_way.len() < JOBS_MAX => match job {
                Some(job) => drop(under_way.spawn_local(job(client.clone()))),
                None => return,
            }
        }
    }
}
