//! A thread that stays on one processor.

/// Keeps the calling thread on this processor, if the system lets it.
pub fn pin_to(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(processor, %error, "cannot pin a core thread");
    }
}
