//! SIGTERM and Ctrl-C for commands that wait: the first asks them to end well, the second ends the
//! process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a process that Ctrl-C ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

/// Whether a stop was requested.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Never: signals have the system's default effect.
    pub fn never() -> Stop {
        Stop::default()
    }

    /// Listens to both signals from now on.
    ///
    /// # Errors
    /// The system gives no thread or no signal handler.
    pub fn on_signal() -> io::Result<Stop> {
        let stop = Stop::default();
        let asked = stop.asked.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    if asked.swap(true, Ordering::AcqRel) {
                        std::process::exit(EXIT_INTERRUPTED);
                    }
                }
            });
        })?;
        Ok(stop)
    }

    /// The flag of the request.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.asked.clone()
    }
}
