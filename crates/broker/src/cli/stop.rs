//! SIGTERM and Ctrl-C for commands that wait: the first asks them to end well, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// What a shell sees of a process that Ctrl-C ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

/// Whether somebody asked us to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Nobody will: signals do what the system does with them.
    pub fn never() -> Stop {
        Stop::default()
    }

    /// Listens to both signals from now on.
    ///
    /// # Errors
    /// The system gives no thread or no signal handler.
    pub fn on_signal() -> anyhow::Result<Stop> {
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

    /// What is set once it was asked.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.asked.clone()
    }
}
