//! `postroad serve`: assemble the broker, say where it listens, run until told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use postroad_core::Settings;
use postroad_model::Destination;
use postroad_net::Listener;
use postroad_openwire::{OpenWireOptions, OpenWireSession};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ServeArguments;
use crate::config::Config;
use crate::runtime::{Runtime, RuntimeOptions, Store};

/// After a failed accept (out of descriptors, say), how long until the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the broker.
pub fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    log_to_stderr();
    let config = Config::load(arguments)?;
    raise_descriptor_limit();
    let admin = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    admin.block_on(serve(&config))
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let address = SocketAddr::new(config.bind, config.port(config.ports.openwire)?);
    let listener = Listener::bind("OpenWire", address)?;
    if config.data.exists() && !config.data.is_dir() {
        bail!("the store {} is a file; name a directory with --data", config.data.display());
    }
    let partitions = config.runtime.partitions;
    let store = Store::open(&config.data, partitions, |id, placement, incarnation| Settings {
        id,
        placement,
        incarnation,
        resident_bytes_max: config.memory_bytes / 2 / u64::from(placement.partitions),
        volatile_bytes_max: config.memory_bytes / 4 / u64::from(placement.partitions),
        transaction_bytes_max: config.limits.transaction_bytes,
        outbox_bytes_max: config.limits.outbox_bytes,
        dead_letters: Destination::queue(&config.dead_letter_queue),
    })
    .with_context(|| format!("cannot open the store {}", config.data.display()))?;
    let options = RuntimeOptions { cores: config.runtime.cores, pin: config.runtime.pin };
    let openwire = openwire_options(config, listener.address()?);
    let runtime = Runtime::start(store, &options, move |id| OpenWireSession::new(id, openwire.clone()))?;
    // Whoever has read that we are ready may tell us to stop.
    let signals = Signals::listen()?;
    announce(&[("OpenWire", format!("tcp://{}", listener.address()?))], config)
        .context("cannot write to standard output")?;
    let runtime = accept_until_stopped(&listener, runtime, signals).await;
    drop(listener);
    runtime.stop();
    Ok(())
}

fn openwire_options(config: &Config, address: SocketAddr) -> OpenWireOptions {
    OpenWireOptions {
        max_frame_bytes: config.openwire.max_frame_bytes,
        tight_encoding: config.openwire.tight_encoding,
        cache: config.openwire.cache,
        max_inactivity_ms: config.openwire.max_inactivity_ms,
        broker_name: config.broker_name.clone(),
        broker_url: format!("tcp://{address}"),
    }
}

/// The table of endpoints, then the one line that scripts wait for.
fn announce(endpoints: &[(&str, String)], config: &Config) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "postroad {}, store {}", env!("CARGO_PKG_VERSION"), config.data.display())?;
    for (protocol, url) in endpoints {
        writeln!(out, "  {protocol:<10} {url}")?;
    }
    writeln!(out, "postroad ready")?;
    out.flush()?;
    Ok(())
}

/// What tells the broker to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they do not end the process.
    fn listen() -> std::io::Result<Signals> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { terminate, interrupt })
    }
}

async fn accept_until_stopped(listener: &Listener, mut runtime: Runtime, mut signals: Signals) -> Runtime {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return runtime,
            _ = signals.interrupt.recv() => return runtime,
            accepted = listener.accept() => match accepted {
                Ok(socket) => runtime.serve(socket).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// `POSTROAD_LOG` chooses what is logged, as in `info` or `postroad=debug`.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("POSTROAD_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// A connection is a descriptor: take as many as the system lets us have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}
