//! One connection's task: socket, session and core, in turns.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use postroad_model::{ConnectionId, Event, Now, Parting, Session};
use postroad_net::Connection;
use tokio::sync::Notify;

use crate::runtime::core::Core;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::now_ms;
use crate::runtime::router::Router;

/// Deliveries are encoded until so many bytes wait for the socket.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A peer that is told goodbye gets so long to read it.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a peer still sends after its goodbye is swallowed for so long.
const LINGER: Duration = Duration::from_secs(1);

/// How a connection reaches its core.
#[derive(Clone)]
pub struct CoreHandle {
    /// The core's state.
    pub core: Rc<RefCell<Core>>,
    /// Wakes the core's own task, which sends on what has gathered.
    pub wake: Rc<Notify>,
}

/// Serves one connection to its end.
pub async fn serve<S: Session>(
    handle: CoreHandle,
    connection: Connection,
    peer: SocketAddr,
    make: impl FnOnce(ConnectionId) -> S,
    closing: Rc<Notify>,
) {
    let (id, mailbox) = handle.core.borrow_mut().join();
    let placement = handle.core.borrow().placement();
    let router = Router::new(id, placement);
    let session = make(id);
    let (events, begun) = (Vec::new(), Instant::now());
    let mut task = Task { handle, connection, mailbox, router, session, events, begun, listens: true };
    let parting = tokio::select! {
        parting = task.converse() => parting,
        () = closing.notified() => Parting::Farewell,
    };
    if let Parting::Fault(reason) = &parting {
        tracing::warn!(%peer, reason, "connection ended");
    }
    task.end(id);
    let _ = tokio::time::timeout(FAREWELL, task.write_out()).await;
    let _ = tokio::time::timeout(LINGER, task.connection.part()).await;
}

struct Task<S> {
    handle: CoreHandle,
    connection: Connection,
    mailbox: Rc<Mailbox>,
    router: Router,
    session: S,
    events: Vec<Event>,
    begun: Instant,
    /// What the session was last told: see [`Session::listens`].
    listens: bool,
}

impl<S: Session> Task<S> {
    async fn converse(&mut self) -> Parting {
        loop {
            if let Err(parting) = self.step().await {
                return parting;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Parting> {
        let reads = self.listen();
        let takes = self.connection.output.len() < OUTPUT_BYTES_MAX;
        tokio::select! {
            () = self.mailbox.arrived(), if takes => {}
            ready = self.connection.ready(reads) => {
                let ready = ready.map_err(broken)?;
                if ready.readable {
                    self.read()?;
                }
            }
            () = self.connection.closed_by_peer(), if !reads => return Err(Parting::Farewell),
            () = sleep_until(self.begun, self.session.deadline()) => {
                // This thread may have been away for long, and the peer's sign of life be there already.
                if reads {
                    self.read()?;
                }
                self.wake()?;
            }
        }
        self.take_mail()?;
        self.submit();
        self.connection.write().map_err(broken)?;
        // What was left in the mailbox for want of room is taken once there is room again.
        self.take_mail()?;
        self.submit();
        Ok(())
    }

    /// Whether the socket is to be read now; the session learns of a change.
    fn listen(&mut self) -> bool {
        let room = self.connection.output.len() < OUTPUT_BYTES_MAX;
        let listens = room && self.router.may_read() && self.session.takes_input();
        if listens != self.listens {
            self.listens = listens;
            self.session.listens(listens, self.now());
        }
        listens
    }

    fn now(&self) -> Now {
        Now { ticks_ms: self.begun.elapsed().as_millis() as u64, wall_ms: now_ms() }
    }

    fn read(&mut self) -> Result<(), Parting> {
        let missing = self.session.missing_bytes(&self.connection.input);
        match self.connection.read(missing).map_err(broken)? {
            None => Ok(()),
            Some(0) => Err(Parting::Farewell),
            Some(_) => self.receive(),
        }
    }

    fn receive(&mut self) -> Result<(), Parting> {
        let now = self.now();
        let Connection { input, output, .. } = &mut self.connection;
        self.session.receive(input, now, &mut self.events, output)
    }

    fn wake(&mut self) -> Result<(), Parting> {
        let now = self.now();
        self.session.wake(now, &mut self.events, &mut self.connection.output)
    }

    /// Takes what the core sent, and then the input that the session could not take before it.
    fn take_mail(&mut self) -> Result<(), Parting> {
        let took_input = self.session.takes_input();
        self.answer_mail()?;
        let resumes = !took_input && self.session.takes_input() && !self.connection.input.is_empty();
        if resumes { self.receive() } else { Ok(()) }
    }

    fn answer_mail(&mut self) -> Result<(), Parting> {
        let mut now = None;
        while self.connection.output.len() < OUTPUT_BYTES_MAX {
            let Some(message) = self.mailbox.take() else { return Ok(()) };
            let now = *now.get_or_insert_with(|| self.now());
            let mut core = self.handle.core.borrow_mut();
            self.router.note(&message, |partition, event| core.submit(partition, event));
            drop(core);
            let Some(message) = self.router.merge(message) else { continue };
            self.session.answer(message, now, &mut self.events, &mut self.connection.output)?;
        }
        Ok(())
    }

    fn submit(&mut self) {
        let mut core = self.handle.core.borrow_mut();
        for event in self.events.drain(..) {
            self.router.route(event, |partition, event| core.submit(partition, event));
        }
        core.run();
        drop(core);
        self.handle.wake.notify_one();
    }

    /// Tells the core that the connection is gone.
    fn end(&mut self, id: ConnectionId) {
        self.session.close(&mut self.events);
        let mut core = self.handle.core.borrow_mut();
        for event in self.events.drain(..) {
            self.router.route(event, |partition, event| core.submit(partition, event));
        }
        self.router.close(|partition, event| core.submit(partition, event));
        core.run();
        core.leave(id);
        drop(core);
        self.handle.wake.notify_one();
    }

    async fn write_out(&mut self) -> std::io::Result<()> {
        while !self.connection.is_flushed() {
            self.connection.ready(false).await?;
            self.connection.write()?;
        }
        Ok(())
    }
}

fn broken(error: std::io::Error) -> Parting {
    match error.kind() {
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => Parting::Farewell,
        _ => Parting::Fault(error.to_string()),
    }
}

async fn sleep_until(begun: Instant, deadline_ms: Option<u64>) {
    let deadline = deadline_ms.and_then(|ticks| begun.checked_add(Duration::from_millis(ticks)));
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
