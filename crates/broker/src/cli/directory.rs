//! The directory (LDAP) that checks passwords of its users: connections to it, and their bounds.
//!
//! One task of the main thread takes the logins of all cores, and has a connection for each, of
//! which there are few at a time. Users with connections are looked for again over one connection,
//! all of a round. A directory that hangs costs the logins of its own users a
//! time-out, and after some of these not even that; nothing else waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::{Buf, BytesMut};
use hyper_rustls::ConfigBuilderExt;
use postroad_security::ldap::{
    Ask, AskAll, Breaker, Conversation, Found, Ldap, LdapError, LdapRules, Outcome, Question, Response,
    Round, Service, Turn, frame_bytes, read, start_tls, unbind,
};
use postroad_security::tls::{TlsClientFiles, load_client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::config::{DirectoryServer, LdapConfig};

/// Connections to the directory at a time.
const CONNECTIONS_MAX: usize = 16;

/// Logins that wait for one; further ones are refused.
const WAITING_MAX: usize = 1_024;

/// Users with connections are looked for again after this time.
const RECHECKED_EVERY: Duration = Duration::from_secs(10);

/// The number of the request that begins TLS.
const START_TLS_ID: u32 = 1;

/// The directory of a broker, with its tasks.
pub struct Directory {
    config: LdapConfig,
    service: Arc<Service>,
    ldap: Arc<Ldap>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A request on its way to the task.
enum Asked {
    Login(Question, oneshot::Sender<Result<Found, LdapError>>),
    Round(Vec<String>, oneshot::Sender<Round>),
}

impl Asked {
    /// Ends once nothing waits for the answer any more.
    async fn closed(&mut self) {
        match self {
            Asked::Login(_, answer) => answer.closed().await,
            Asked::Round(_, answer) => answer.closed().await,
        }
    }

    /// It is not done. The one who asked may have gone meanwhile.
    fn refuse(self, error: LdapError) {
        match self {
            Asked::Login(_, answer) => drop(answer.send(Err(error))),
            Asked::Round(mut users, answer) => {
                users.truncate(1);
                let _ = answer.send(users.into_iter().map(|user| (user, Err(error.clone()))).collect());
            }
        }
    }
}

impl Directory {
    /// The directory of a configuration; `None` if it is the one that is known. The known one stays
    /// in use until the caller replaces it.
    ///
    /// # Errors
    /// A file of passwords or authorities cannot be read.
    pub fn follow(
        config: &LdapConfig,
        known: Option<&Directory>,
    ) -> anyhow::Result<Option<Option<Directory>>> {
        if !config.is_set() {
            return Ok(known.map(|_| None));
        }
        let service = config.service()?;
        if known.is_some_and(|known| known.config == *config && known.service == service) {
            return Ok(None);
        }
        let (asked, questions) = mpsc::channel(WAITING_MAX);
        let client = Arc::new(Client {
            rules: Arc::new(config.rules()?),
            service: service.clone(),
            servers: config.servers()?,
            start_tls: config.start_tls(),
            tls: tls(config)?,
            timeout: config.timeout(),
            breaker: Breaker::default(),
        });
        let asks = (ask(asked.clone(), config.timeout()), ask_all(asked));
        let ldap = Ldap::new(client.rules.clone(), config.remembered(), asks)?;
        let ldap = Arc::new(ldap);
        let tasks = [tokio::spawn(client.run(questions)), tokio::spawn(recheck(ldap.clone()))];
        Ok(Some(Some(Directory { config: config.clone(), service, ldap, tasks })))
    }

    /// Checks passwords.
    pub fn ldap(&self) -> Arc<Ldap> {
        self.ldap.clone()
    }
}

/// Gives a login to the task, and waits for its answer.
fn ask(asked: mpsc::Sender<Asked>, timeout: Duration) -> Ask {
    Box::new(move |question| {
        let (answer, answered) = oneshot::channel();
        let sent = asked.try_send(Asked::Login(question, answer));
        Box::pin(async move {
            sent.map_err(|_| LdapError::Busy)?;
            // It may wait for a connection as long again.
            let gone = || LdapError::failed("the directory is asked no more");
            match tokio::time::timeout(2 * timeout, answered).await {
                Ok(answer) => answer.map_err(|_| gone())?,
                Err(_) => Err(LdapError::Busy),
            }
        })
    })
}

/// Gives a round to the task. Each of its steps has a time-out.
fn ask_all(asked: mpsc::Sender<Asked>) -> AskAll {
    Box::new(move |users| {
        let (answer, answered) = oneshot::channel();
        let first = users.first().cloned().unwrap_or_default();
        let sent = asked.try_send(Asked::Round(users, answer));
        Box::pin(async move {
            match sent {
                Ok(()) => answered.await.unwrap_or_default(),
                Err(_) => vec![(first, Err(LdapError::Busy))],
            }
        })
    })
}

async fn recheck(ldap: Arc<Ldap>) {
    loop {
        tokio::time::sleep(RECHECKED_EVERY).await;
        ldap.recheck().await;
    }
}

fn tls(config: &LdapConfig) -> anyhow::Result<Arc<ClientConfig>> {
    if let Some(file) = config.authorities() {
        let files = TlsClientFiles { trust: file.to_owned(), own: None };
        return load_client(&files).context("security.ldap.authorities");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_native_roots()?.with_no_client_auth()))
}

struct Client {
    rules: Arc<LdapRules>,
    service: Arc<Service>,
    servers: Vec<DirectoryServer>,
    start_tls: bool,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    breaker: Breaker,
}

impl Client {
    /// Takes logins while the directory is in use.
    async fn run(self: Arc<Client>, mut questions: mpsc::Receiver<Asked>) {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Some(mut asked) = questions.recv().await {
            let permit = tokio::select! {
                permit = connections.clone().acquire_owned() => permit,
                () = asked.closed() => continue,
            };
            let Ok(permit) = permit else { return };
            if let Err(resting) = self.breaker.permit(Instant::now()) {
                asked.refuse(resting);
                continue;
            }
            let client = self.clone();
            tokio::spawn(async move {
                client.answer(asked).await;
                drop(permit);
            });
        }
    }

    async fn answer(&self, asked: Asked) {
        match asked {
            Asked::Login(question, answer) => {
                let checked = self.check(question).await;
                self.note(checked.as_ref().err());
                // The login may have gone meanwhile.
                let _ = answer.send(checked);
            }
            Asked::Round(users, answer) => {
                let round = self.round(&users).await;
                self.note(round.last().and_then(|(_, last)| last.as_ref().err()));
                let _ = answer.send(round);
            }
        }
    }

    fn note(&self, error: Option<&LdapError>) {
        let failed = error.filter(|error| error.is_failure());
        if let Some(error) = failed {
            tracing::warn!(%error, "the directory could not check a login");
        }
        match self.breaker.ended(failed.is_some(), Instant::now()) {
            Some(true) => tracing::warn!("the directory is left alone for some seconds after failures"),
            Some(false) => tracing::info!("the directory answers again"),
            None => {}
        }
    }

    /// Asks for all of these users over one connection, with the first server that answers.
    async fn round(&self, users: &[String]) -> Round {
        let mut round = Round::new();
        let Some((first, others)) = users.split_first() else { return round };
        let mut last = LdapError::failed("no server is configured");
        for server in &self.servers {
            let begun = async {
                let mut stream = self.connect(server).await?;
                let (mut conversation, bind) =
                    Conversation::begin(self.rules.clone(), &self.service, first, None);
                send(&mut stream, &bind).await?;
                let mut input = BytesMut::new();
                let found = converse(&mut conversation, &mut stream, &mut input).await;
                Ok((stream, conversation, input, found))
            };
            match self.in_time(begun).await {
                Err(error) => last = of_server(server, &error),
                Ok((_, _, _, Err(error))) if error.is_failure() => last = of_server(server, &error),
                Ok((mut stream, mut conversation, mut input, found)) => {
                    let goes_on = !found.as_ref().is_err_and(LdapError::is_own);
                    round.push((first.clone(), found));
                    if goes_on {
                        let rest = (&mut conversation, &mut stream, &mut input);
                        self.ask_others(rest, others, &mut round).await;
                    }
                    // A courtesy: the answers are there.
                    let _ = self.in_time(send(&mut stream, &unbind(LAST_ID))).await;
                    return round;
                }
            }
        }
        round.push((first.clone(), Err(last)));
        round
    }

    /// The other users of a round; the first that the directory cannot tell of ends it.
    async fn ask_others(
        &self,
        (conversation, stream, input): (&mut Conversation, &mut Stream, &mut BytesMut),
        others: &[String],
        round: &mut Round,
    ) {
        for user in others {
            let request = conversation.again(user);
            let found = self.in_time(async {
                send(&mut *stream, &request).await?;
                converse(&mut *conversation, &mut *stream, &mut *input).await
            });
            let found = found.await;
            let ends = found.as_ref().is_err_and(LdapError::is_own);
            round.push((user.clone(), found));
            if ends {
                return;
            }
        }
    }

    /// The time of one server.
    fn each(&self) -> Duration {
        self.timeout / u32::try_from(self.servers.len().max(1)).unwrap_or(1)
    }

    async fn in_time<T>(&self, step: impl Future<Output = Result<T, LdapError>>) -> Result<T, LdapError> {
        let (each, late) = (self.each(), |ms: u128| LdapError::failed(&format!("no answer within {ms} ms")));
        tokio::time::timeout(each, step).await.unwrap_or_else(|_| Err(late(each.as_millis())))
    }

    /// Asks the servers in order, until one answers.
    async fn check(&self, question: Question) -> Result<Found, LdapError> {
        let Question { user, password } = question;
        let mut last = LdapError::failed("no server is configured");
        for server in &self.servers {
            match self.in_time(self.check_at(server, &user, password.clone())).await {
                Err(error) if error.is_failure() => last = of_server(server, &error),
                answered => return answered,
            }
        }
        Err(last)
    }

    async fn check_at(
        &self,
        server: &DirectoryServer,
        user: &str,
        password: Option<Box<str>>,
    ) -> Result<Found, LdapError> {
        let mut stream = self.connect(server).await?;
        let (mut conversation, first) =
            Conversation::begin(self.rules.clone(), &self.service, user, password);
        send(&mut stream, &first).await?;
        let found = converse(&mut conversation, &mut stream, &mut BytesMut::new()).await?;
        // A courtesy: the answer is there.
        let _ = send(&mut stream, &unbind(LAST_ID)).await;
        Ok(found)
    }

    async fn connect(&self, server: &DirectoryServer) -> Result<Stream, LdapError> {
        let mut stream = TcpStream::connect((&*server.host, server.port)).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        if self.start_tls {
            begin_tls(&mut stream).await?;
        }
        if !server.is_tls && !self.start_tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(server.host.clone())
            .map_err(|error| LdapError::failed(&error.to_string()))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await.map_err(broken)?;
        Ok(Box::new(stream))
    }
}

/// A connection to a server, with or without TLS.
type Stream = Box<dyn Duplex>;

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

fn of_server(server: &DirectoryServer, error: &LdapError) -> LdapError {
    let DirectoryServer { host, port, .. } = server;
    LdapError::failed(&format!("{host}:{port}: {error}"))
}

/// Goes on with a conversation until the user is found, or is not.
async fn converse(
    conversation: &mut Conversation,
    stream: &mut Stream,
    input: &mut BytesMut,
) -> Result<Found, LdapError> {
    loop {
        let length = receive(stream, input).await?;
        let turn = conversation.receive(&input[..length]);
        input.advance(length);
        match turn? {
            Turn::Wait => {}
            Turn::Send(request) => send(stream, &request).await?,
            Turn::Done(found) => return Ok(found),
        }
    }
}

/// The number of the last request, which has no answer.
const LAST_ID: u32 = i32::MAX as u32;

async fn begin_tls(stream: &mut TcpStream) -> Result<(), LdapError> {
    send(stream, &start_tls(START_TLS_ID)).await?;
    let mut input = BytesMut::new();
    let length = receive(stream, &mut input).await?;
    // Bytes after the answer are not the directory's: they would be taken for those inside of TLS.
    match read(&input[..length])? {
        (START_TLS_ID, Response::Extended(Outcome { code: 0, .. })) if length == input.len() => Ok(()),
        (START_TLS_ID, Response::Extended(Outcome { code, message })) => {
            Err(LdapError::failed(&format!("it refuses StartTLS with the result {code}: {message}")))
        }
        _ => Err(LdapError::failed("it answers StartTLS with something else")),
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), request: &[u8]) -> Result<(), LdapError> {
    stream.write_all(request).await.map_err(broken)?;
    stream.flush().await.map_err(broken)
}

/// Reads until the input begins with a whole message, and returns the length of that.
async fn receive(stream: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> Result<usize, LdapError> {
    loop {
        if let Some(length) = frame_bytes(input)? {
            return Ok(length);
        }
        if stream.read_buf(input).await.map_err(broken)? == 0 {
            return Err(LdapError::failed("it has closed the connection"));
        }
    }
}

fn broken(error: std::io::Error) -> LdapError {
    LdapError::failed(&error.to_string())
}
