//! The broker's threads: started together, stopped together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use postroad_admin::Alerts;
use postroad_core::Partition;
use postroad_model::{ConnectionId, Endpoint, PartitionId, Session};
use postroad_node::{Clients, Draining, JoiningClient};
use postroad_openwire::Advisories;
use postroad_replication::{LogWriter, ToPartition, ToWriter};
use postroad_routing::{Policies, Routes};
use postroad_security::Visit;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use crate::runtime::closing::{Closing, word_of};
use crate::runtime::cluster::NodeReplica;
use crate::runtime::connection::{self, CoreHandle};
use crate::runtime::figures::{CoreFigures, QUESTIONS_MAX, Question, StatsCollector, watch_page};
use crate::runtime::handover::{CoreHandover, Handover};
use crate::runtime::http::{self, HttpSocket, PushPart};
use crate::runtime::journal::{self, JournalLinks, NamedDoor};
use crate::runtime::links::LinkBoard;
use crate::runtime::new_socket::{Arrival, NewSocket, Service};
use crate::runtime::options::RuntimeOptions;
use crate::runtime::orders::Orders;
use crate::runtime::pinning::pin_to;
use crate::runtime::{now, ticks_ms};
use postroad_node::{Core, Links, OfflineEnds, Places, ToCore, owner};
use postroad_node::{LogLink, LogRing};
use postroad_node::{Receiver, ThreadWaker, WakingSender, ring};
use postroad_node::{Share, TenantMeters, TraceBook};
use postroad_store::{NamedStore, Stores};

/// New sockets that wait for their core; the listener waits when it is full.
const NEW_SOCKETS_MAX: usize = 256;

/// Passwords that are looked at for one core at a time: each keeps a processor busy, beside the
/// core's own thread.
const LOGINS_MAX: usize = 1;

/// How long connections get to end when the broker stops.
const DRAIN: Duration = Duration::from_secs(5);

/// The same when this node is deposed: nothing that they send is taken any more.
const DEPOSED_DRAIN: Duration = Duration::from_millis(500);

/// The running threads.
pub struct Runtime {
    sockets: Vec<mpsc::Sender<NewSocket>>,
    http: Vec<mpsc::Sender<HttpSocket>>,
    cores: Vec<JoinHandle<Yielded>>,
    journals: Vec<JoinHandle<()>>,
    doors: Vec<NamedDoor>,
    stop_cores: Arc<Stop>,
    stop_journal: Arc<AtomicBool>,
    policies: watch::Sender<Arc<Policies>>,
    questions: Vec<mpsc::Sender<Question>>,
    clients: Clients,
    board: LinkBoard,
    alerts: Alerts,
    draining: Draining,
    tenants: TenantMeters,
    traces: Option<TraceBook>,
    offline_ends: OfflineEnds,
    next: usize,
}

/// The partitions that a core gives back when this node is deposed; none if the broker ends. Or why
/// they must be read again from their log.
type Yielded = Result<BTreeMap<PartitionId, Partition>, String>;

struct Stop {
    asked: AtomicBool,
    /// Set once this node leads no more: where clients are served from then on, as far as is known.
    deposed: OnceLock<Vec<Endpoint>>,
    handover: Arc<Handover>,
    wakers: Vec<Arc<Notify>>,
}

impl Stop {
    /// Of these cores, which serve from now on.
    fn new(handover: Arc<Handover>, wakers: &[Arc<Notify>]) -> Stop {
        handover.begin_serving(wakers);
        Stop { asked: AtomicBool::new(false), deposed: OnceLock::new(), handover, wakers: wakers.to_vec() }
    }
}

/// The parts that one core thread takes over.
struct CoreParts {
    number: u16,
    partitions: BTreeMap<PartitionId, Partition>,
    links: Links,
    sockets: mpsc::Receiver<NewSocket>,
    http: mpsc::Receiver<HttpSocket>,
    push: PushPart,
    wake: Arc<Notify>,
    stop: Arc<Stop>,
    policies: watch::Receiver<Arc<Policies>>,
    questions: mpsc::Receiver<Question>,
    /// Clients inside the process that come to this core.
    joining: mpsc::Receiver<JoiningClient>,
    advisories: Advisories,
    board: LinkBoard,
    processor: Option<usize>,
    /// Limit of the outstanding bytes of its connections together.
    outstanding_bytes_max: u64,
    /// Hears whether the core has begun.
    begun: std::sync::mpsc::Sender<std::io::Result<()>>,
}

impl Runtime {
    /// Starts all threads over open stores. `make` makes the session of a new connection.
    ///
    /// # Errors
    /// The system starts no thread, or a core failed to start: without it its share of the
    /// addresses would not answer.
    pub fn start(
        stores: Stores,
        options: &RuntimeOptions,
        make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + Send + 'static,
    ) -> std::io::Result<Runtime> {
        let wakers = options.wakers();
        let stop_journal = Arc::new(AtomicBool::new(false));
        let Stores { stores, partitions, placement, addressing } = stores;
        let (keys, permissions) = (options.keys.clone(), options.policies.permissions.clone());
        let (draining, tenants) = (Draining::default(), options.tenants.clone());
        let (traces, offline_ends) = (options.traces.clone(), options.offline_ends.clone());
        let places =
            Places { placement, addressing, keys, permissions, draining, tenants, traces, offline_ends };
        let journals = start_journals(stores, &wakers, &stop_journal, options.sync_within)?;
        Runtime::over((journals, stop_journal, Arc::default()), (partitions, places), wakers, options, make)
    }

    /// As [`Runtime::start`], over a replicated store that this node leads. Its replica has a
    /// thread of its own, which goes on.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn lead(
        (stores, replica): (Stores, &NodeReplica),
        options: &RuntimeOptions,
        make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + Send + 'static,
    ) -> std::io::Result<Runtime> {
        let wakers = options.wakers();
        let NodeReplica { view, door, range, waker, stop, .. } = replica;
        let Stores { partitions, placement, addressing, .. } = stores;
        let (keys, permissions) = (options.keys.clone(), options.policies.permissions.clone());
        let (draining, tenants) = (view.draining.clone(), options.tenants.clone());
        let (traces, offline_ends) = (options.traces.clone(), options.offline_ends.clone());
        let places =
            Places { placement, addressing, keys, permissions, draining, tenants, traces, offline_ends };
        let Rings { rings, from_cores, to_cores } = journal_rings(&wakers, waker);
        door.door.attach(JournalLinks { from_cores, to_cores, stop: stop.clone() });
        let link = |ring| vec![LogLink { range: *range, ring, journal: Box::new(door.door.clone()) }];
        let links = rings.into_iter().map(link).collect();
        let journals = Journals { journals: Vec::new(), doors: vec![door.clone()], links };
        Runtime::over(
            (journals, stop.clone(), view.handover.clone()),
            (partitions, places),
            wakers,
            options,
            make,
        )
    }

    fn over(
        (journals, stop_journal, handover): (Journals, Arc<AtomicBool>, Arc<Handover>),
        (partitions, places): (BTreeMap<PartitionId, Partition>, Places),
        wakers: Vec<Arc<Notify>>,
        options: &RuntimeOptions,
        make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + Send + 'static,
    ) -> std::io::Result<Runtime> {
        let (count, addressing, draining) =
            (wakers.len(), places.addressing.clone(), places.draining.clone());
        let stop_cores = Arc::new(Stop::new(handover, &wakers));
        let Journals { journals, doors, links } = journals;
        let (mut sockets, mut http, mut cores, mut questions) = (vec![], vec![], vec![], vec![]);
        let (policies, _) = watch::channel(options.first_policies(&addressing));
        let (clients, joining) = Clients::over(count);
        let (shares, rings) = (dealt(partitions, count), core_rings(&wakers));
        let ((begun, begins), board) = (std::sync::mpsc::channel(), LinkBoard::default());
        let push = http::push_parts(count, &options.push);
        let shares = shares.into_iter().zip(rings).zip(links).zip(joining).zip(push).enumerate();
        for (index, ((((partitions, (to_cores, from_cores)), logs), joining), push)) in shares {
            let (sender, receiver) = mpsc::channel(NEW_SOCKETS_MAX);
            sockets.push(sender);
            let (sender, http_sockets) = mpsc::channel(NEW_SOCKETS_MAX);
            http.push(sender);
            let (question, asked) = mpsc::channel(QUESTIONS_MAX);
            questions.push(question);
            let links = Links { to_cores, from_cores, logs };
            let parts = CoreParts {
                number: index as u16,
                partitions,
                links,
                sockets: receiver,
                http: http_sockets,
                push,
                wake: wakers[index].clone(),
                stop: stop_cores.clone(),
                policies: policies.subscribe(),
                questions: asked,
                joining,
                advisories: options.advisories(index as u16),
                board: board.clone(),
                processor: options.pin.then_some(index),
                outstanding_bytes_max: options.outstanding_bytes_max / count as u64,
                begun: begun.clone(),
            };
            let (make, places) = (make.clone(), places.clone());
            let thread = std::thread::Builder::new().name(format!("core-{index}"));
            cores.push(thread.spawn(move || run_core(parts, places, make))?);
        }
        drop(begun);
        begins.iter().collect::<std::io::Result<()>>()?;
        Ok(Runtime {
            sockets,
            http,
            cores,
            journals,
            doors,
            stop_cores,
            stop_journal,
            policies,
            questions,
            clients,
            board,
            alerts: Alerts::default(),
            draining,
            tenants: options.tenants.clone(),
            traces: options.traces.clone(),
            offline_ends: options.offline_ends.clone(),
            next: 0,
        })
    }

    /// Gives a socket to the next core in turn.
    pub async fn serve(&mut self, socket: NewSocket) {
        self.next = (self.next + 1) % self.sockets.len();
        // A core that is gone takes its sockets with it; the process is about to end then.
        let _ = self.sockets[self.next].send(socket).await;
    }

    /// The ways of HTTP connections to the cores.
    pub fn http(&self) -> Vec<mpsc::Sender<HttpSocket>> {
        self.http.clone()
    }

    /// Who knows how the broker is.
    pub fn everybody(&self) -> StatsCollector {
        let (cores, journals) = (self.questions.clone(), self.doors.clone());
        let (links, policies, cluster) = (self.links(), self.policies.subscribe(), None);
        let (alerts, draining, tenants) = (self.alerts(), self.draining(), self.tenants.clone());
        let traces = self.traces.clone();
        StatsCollector { cores, journals, links, policies, cluster, alerts, draining, tenants, traces }
    }

    /// The rules of alerts, and the alerts of each.
    pub fn alerts(&self) -> Alerts {
        self.alerts.clone()
    }

    /// Traced messages, if any are traced.
    pub fn traces(&self) -> Option<TraceBook> {
        self.traces.clone()
    }

    /// Durable subscriptions that ended without a reader.
    pub fn offline_ends(&self) -> OfflineEnds {
        self.offline_ends.clone()
    }

    /// Whether the broker is being drained.
    pub fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// How links to other brokers are.
    pub fn links(&self) -> LinkBoard {
        self.board.clone()
    }

    /// The ways to the journals, that of the main store first.
    pub fn journals(&self) -> Vec<NamedDoor> {
        self.doors.clone()
    }

    /// The channel for operators' orders.
    pub fn orders(&self) -> Orders {
        Orders::new(self.clients())
    }

    /// Makes clients inside the process.
    pub fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// Replaces the policies of destinations in every partition.
    pub fn follow(&self, mut policies: Policies) {
        let mut routes = Routes::clone(&policies.routes);
        routes.count_on_from(&self.policies.borrow().routes);
        policies.routes = Arc::new(routes);
        self.tenants.follow(&policies);
        self.policies.send_replace(Arc::new(policies));
    }

    /// This node leads no more: all requests are answered and all connections end, whose clients
    /// are sent to these endpoints, as far as they follow. The partitions are as those of a
    /// follower then.
    ///
    /// # Errors
    /// They must be read again from their log.
    pub fn step_down(mut self, onward: Vec<Endpoint>) -> Yielded {
        self.doors.iter().for_each(|store| store.door.detach());
        let _ = self.stop_cores.deposed.set(onward);
        self.end_cores()
    }

    fn end_cores(&mut self) -> Yielded {
        self.stop_cores.asked.store(true, Ordering::Release);
        for waker in &self.stop_cores.wakers {
            waker.notify_one();
        }
        self.sockets.clear();
        self.http.clear();
        let mut yielded = Ok(BTreeMap::new());
        for core in self.cores.drain(..) {
            let partitions = core.join().unwrap_or_else(|_| Err("a core thread had panicked".to_owned()));
            match (&mut yielded, partitions) {
                (Ok(all), Ok(partitions)) => all.extend(partitions),
                (Ok(_), Err(reason)) => yielded = Err(reason),
                (Err(_), _) => {}
            }
        }
        yielded
    }

    /// Ends all connections, writes outstanding records, and ends the threads.
    pub fn stop(mut self) {
        self.doors.iter().for_each(|store| store.door.expect_last_snapshots());
        if let Err(reason) = self.end_cores() {
            tracing::error!(reason, "a core did not end in order");
        }
        self.stop_journal.store(true, Ordering::Release);
        self.journals.iter().for_each(|journal| journal.thread().unpark());
        for journal in self.journals {
            if journal.join().is_err() {
                tracing::error!("the journal thread had panicked");
            }
        }
    }
}

/// The threads of all stores, and the ways to them.
struct Journals {
    journals: Vec<JoinHandle<()>>,
    doors: Vec<NamedDoor>,
    /// Of each core, to each store.
    links: Vec<Vec<LogLink>>,
}

/// The rings between all cores and one journal.
struct Rings {
    /// The ends of each core.
    rings: Vec<LogRing>,
    from_cores: Vec<Receiver<ToWriter>>,
    to_cores: Vec<WakingSender<ToPartition>>,
}

fn journal_rings(cores: &[Arc<Notify>], waker: &Arc<ThreadWaker>) -> Rings {
    let (mut rings, mut from_cores, mut to_cores) = (Vec::new(), Vec::new(), Vec::new());
    for core in cores {
        let (to_writer, from_core) = ring(core.clone());
        let (to_core, from_writer) = ring(waker.clone());
        rings.push(LogRing { sender: to_writer, receiver: from_writer });
        from_cores.push(from_core);
        to_cores.push(WakingSender { sender: to_core, waker: core.clone() });
    }
    Rings { rings, from_cores, to_cores }
}

fn start_journals(
    stores: Vec<NamedStore>,
    cores: &[Arc<Notify>],
    stop: &Arc<AtomicBool>,
    sync_within: Duration,
) -> std::io::Result<Journals> {
    let mut started = Journals {
        journals: Vec::new(),
        doors: Vec::new(),
        links: cores.iter().map(|_| Vec::new()).collect(),
    };
    let are_several = 1 < stores.len();
    for NamedStore { name, path, range, disk, journal } in stores {
        let writer = LogWriter::new(journal, range.iter());
        let waker = Arc::new(ThreadWaker::default());
        let Rings { rings, from_cores, to_cores } = journal_rings(cores, &waker);
        let links = JournalLinks { from_cores, to_cores, stop: stop.clone() };
        let mark = are_several.then_some(&*name);
        let (thread, door) = journal::start(mark, disk, (writer, None), links, sync_within, &waker)?;
        for (core, ring) in started.links.iter_mut().zip(rings) {
            core.push(LogLink { range, ring, journal: Box::new(door.clone()) });
        }
        started.journals.push(thread);
        started.doors.push(NamedDoor { store: name, path, door });
    }
    Ok(started)
}

/// Each core's partitions.
fn dealt(
    partitions: BTreeMap<PartitionId, Partition>,
    cores: usize,
) -> Vec<BTreeMap<PartitionId, Partition>> {
    let mut shares: Vec<BTreeMap<PartitionId, Partition>> = (0..cores).map(|_| BTreeMap::new()).collect();
    for (id, partition) in partitions {
        shares[usize::from(owner(id, cores as u16))].insert(id, partition);
    }
    shares
}

type CoreRings = (Vec<Option<WakingSender<ToCore>>>, Vec<Receiver<ToCore>>);

/// A ring from each core to each other one.
fn core_rings(wakers: &[Arc<Notify>]) -> Vec<CoreRings> {
    let count = wakers.len();
    let mut rings: Vec<CoreRings> = (0..count).map(|_| (Vec::new(), Vec::new())).collect();
    for from in 0..count {
        for to in 0..count {
            if from == to {
                rings[from].0.push(None);
                continue;
            }
            let (sender, receiver) = ring(wakers[from].clone());
            rings[from].0.push(Some(WakingSender { sender, waker: wakers[to].clone() }));
            rings[to].1.push(receiver);
        }
    }
    rings
}

fn run_core(
    parts: CoreParts,
    places: Places,
    make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + 'static,
) -> Yielded {
    if let Some(processor) = parts.processor {
        pin_to(processor);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // The thread that starts the cores waits for this.
            let _ = parts.begun.send(Err(error));
            return Ok(BTreeMap::new());
        }
    };
    let CoreParts {
        number,
        partitions,
        links,
        sockets,
        http,
        push,
        wake,
        stop,
        policies,
        questions,
        joining,
        advisories,
        board,
        outstanding_bytes_max,
        begun,
        ..
    } = parts;
    let _ = begun.send(Ok(()));
    drop(begun);
    let core = Rc::new(RefCell::new(Core::new(number, places, partitions, links, advisories, Rc::new(now))));
    let handle = CoreHandle {
        core: core.clone(),
        wake: wake.clone(),
        logins: Arc::new(Semaphore::new(LOGINS_MAX)),
        share: Rc::new(Share::new(outstanding_bytes_max)),
        links: board,
        identified: Rc::default(),
        closing: Rc::default(),
        handover: CoreHandover::new(stop.handover.clone()),
    };
    runtime.block_on(async move {
        core.borrow_mut().start();
        core.borrow_mut().flush();
        let closing = handle.closing.clone();
        tokio::task::spawn_local(admit_clients(handle.of_clients(), joining, closing.clone()));
        tokio::task::spawn_local(http::welcome(handle.clone(), push.hub, http, closing.word.clone()));
        if let Some(pusher) = push.pusher {
            tokio::task::spawn_local(http::drive(handle.clone(), pusher, closing.word.clone()));
        }
        tokio::task::spawn_local(welcome(Rc::new(handle.clone()), sockets, make));
        tokio::task::spawn_local(follow(core.clone(), policies, wake.clone()));
        tokio::task::spawn_local(handle.identified.clone().watch());
        tokio::task::spawn_local(say(core.clone(), questions));
        let turning = tokio::task::spawn_local(turn_until_stopped(handle.clone(), stop.clone()));
        let turned = turning.await;
        if turned.is_err() {
            tracing::error!(core = number, "a core's task had panicked");
        }
        let ended = end_core((&core, &wake), &closing, stop.deposed.get()).await;
        turned.map_err(|error| error.to_string()).and(ended)
    })
}

/// Ends all connections of a core, and its part.
async fn end_core(
    (core, wake): (&Rc<RefCell<Core>>, &Notify),
    closing: &Closing,
    onward: Option<&Vec<Endpoint>>,
) -> Yielded {
    let is_deposed = onward.is_some();
    let stopped = if is_deposed { core.borrow_mut().step_down() } else { Ok(()) };
    closing.begin(onward.map_or(&[], Vec::as_slice));
    let within = if is_deposed { DEPOSED_DRAIN } else { DRAIN };
    let mut core = match tokio::time::timeout(within, drain(core, wake)).await {
        Ok(()) => core.borrow_mut(),
        Err(_) => {
            let core = core.borrow_mut();
            tracing::warn!(core = core.number(), "closed connections that did not end in time");
            core
        }
    };
    if !is_deposed {
        core.end();
        return Ok(BTreeMap::new());
    }
    stopped.map(|()| core.take_partitions()).map_err(|error| error.to_string())
}

/// A tenant with too much on its way to the journal is looked at again after this time.
const LOOK_AT_SHARES: Duration = Duration::from_millis(2);

/// The wall clock may be set while something is due later: it is looked at this often at least.
const ALARM_MAX: Duration = Duration::from_secs(1);

/// Turns whenever there is something to do. A task like those of connections: it runs behind all
/// that run now and may wake it, once for all of them, and waking it is no system call, as it would
/// be for the runtime's main future.
async fn turn_until_stopped(handle: CoreHandle, stop: Arc<Stop>) {
    let CoreHandle { core, wake, handover, .. } = handle;
    let mut lazy_timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    // Lazy records mostly leave before their time: the timer stays set then, as setting it costs a
    // system call.
    let mut timer_is_set = false;
    // The timer for the next deadline of a partition.
    let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    let mut alarm_ms = None;
    let fair = core.borrow().fair();
    while !stop.asked.load(Ordering::Acquire) {
        let lazy_until = core.borrow().lazy_until();
        if let Some(until) = lazy_until
            && !timer_is_set
        {
            lazy_timer.as_mut().reset(until.into());
            timer_is_set = true;
        }
        let goes_on = core.borrow().is_writing_down() || fair.wants_turn();
        let due_ms = core.borrow_mut().alarm_ms();
        if due_ms != alarm_ms {
            alarm_ms = due_ms;
            let left = Duration::from_millis(due_ms.unwrap_or(0).saturating_sub(ticks_ms()));
            alarm.as_mut().reset(tokio::time::Instant::now() + left.min(ALARM_MAX));
        }
        tokio::select! {
            () = wake.notified() => {}
            () = lazy_timer.as_mut(), if timer_is_set => timer_is_set = false,
            () = alarm.as_mut(), if alarm_ms.is_some() => alarm_ms = None,
            // After all tasks that are ready by now.
            () = tokio::task::yield_now(), if goes_on => {}
            // Another core may have heard of durable records. The block makes a timer when it is
            // polled; an expression here is evaluated in each turn.
            () = async { tokio::time::sleep(LOOK_AT_SHARES).await }, if fair.has_waiting() => {}
        }
        handover.look(&core.borrow());
        core.borrow_mut().turn();
    }
}

/// Serves clients inside the process until the core stops.
async fn admit_clients(
    handle: postroad_node::CoreHandle,
    joining: mpsc::Receiver<JoiningClient>,
    closing: Rc<Closing>,
) {
    let mut closed = std::pin::pin!(closing.word.notified());
    tokio::select! {
        () = closed.as_mut() => {}
        () = postroad_node::admit(handle, joining) => {}
    }
}

/// Gives each new version of the policies to the core.
async fn follow(core: Rc<RefCell<Core>>, mut policies: watch::Receiver<Arc<Policies>>, wake: Arc<Notify>) {
    while policies.changed().await.is_ok() {
        core.borrow_mut().follow(&policies.borrow_and_update());
        wake.notify_one();
    }
}

/// Answers requests for statistics of the core.
async fn say(core: Rc<RefCell<Core>>, mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.recv().await {
        // The requester may have given up.
        let _ = match question {
            Question::Alive(answer) => answer.send(()).is_ok(),
            Question::Figures { with_queues, answer } => {
                answer.send(CoreFigures::gather(&core, with_queues).await).is_ok()
            }
            Question::Watch { request, answer } => answer.send(watch_page(&core.borrow(), request)).is_ok(),
        };
    }
}

/// Serves each new socket in a task of its own, until the core stops.
async fn welcome(
    handle: Rc<CoreHandle>,
    mut sockets: mpsc::Receiver<NewSocket>,
    make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + 'static,
) {
    // Shared: it has the options of all services.
    let make = Rc::new(make);
    while let Some(socket) = sockets.recv().await {
        let NewSocket {
            service,
            scheme,
            socket,
            peer,
            place,
            tls,
            tls_is_asked_for,
            websocket_bytes_max,
            door,
            tls_to_peer,
            link,
            login,
        } = socket;
        let tls = (tls, tls_is_asked_for);
        let connection = match NewSocket::connect(socket, tls, tls_to_peer, websocket_bytes_max) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%peer, %error, "cannot serve a connection");
                continue;
            }
        };
        let arrival =
            Box::new(Arrival { connection, peer, protocol: service.name(), door, scheme, link, login });
        let (handle, make) = (handle.clone(), make.clone());
        tokio::task::spawn_local(async move {
            // Looked at in the poll in which the conversation begins to listen for it: nothing
            // comes in between.
            if !handle.closing.begun.get() {
                let core = handle.core.clone();
                core.borrow_mut().opened(service.name());
                let make = |id, visit: &Visit| make(service, id, visit);
                let (closing, link) = (&handle.closing, arrival.link.clone());
                let word = link.map_or_else(|| closing.word.clone(), |link| word_of(link, closing));
                connection::serve(handle, arrival, make, word).await;
                core.borrow_mut().closed(service.name());
            }
            drop(place);
        });
    }
}

/// Turns until every connection has ended and nothing is on its way to the log.
async fn drain(core: &Rc<RefCell<Core>>, wake: &Notify) {
    loop {
        core.borrow_mut().turn();
        if core.borrow().mailboxes().len() == 0 {
            return;
        }
        wake.notified().await;
    }
}
