//! The end of all conversations of a core: the broker ends, or another node of its cluster leads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use postroad_model::Endpoint;
use tokio::sync::Notify;

use crate::runtime::dialler::LinkReporter;

/// The word reaches the conversations that listen, the mark those that come later.
#[derive(Default)]
pub struct Closing {
    /// Whether it has begun.
    pub begun: Cell<bool>,
    /// The word.
    pub word: Rc<Notify>,
    onward: RefCell<Vec<Endpoint>>,
}

impl Closing {
    /// Ends all conversations. Their clients are served at one of these endpoints from now on, if
    /// there are any.
    pub fn begin(&self, onward: &[Endpoint]) {
        self.onward.replace(onward.to_vec());
        self.begun.set(true);
        self.word.notify_waiters();
    }

    /// Where clients that came by URLs of this scheme are served from now on.
    pub fn onward(&self, scheme: &str) -> Option<Endpoint> {
        self.onward.borrow().iter().find(|endpoint| endpoint.scheme == scheme).cloned()
    }
}

/// The word at which the connection of a link ends: the broker stops, or the link is not wanted any
/// more.
pub fn word_of(link: LinkReporter, closing: &Rc<Closing>) -> Rc<Notify> {
    let (word, closing) = (Rc::new(Notify::new()), closing.clone());
    let told = word.clone();
    tokio::task::spawn_local(async move {
        let mut stops = std::pin::pin!(closing.word.notified());
        stops.as_mut().enable();
        if !closing.begun.get() {
            tokio::select! {
                () = stops => {}
                () = link.abandoned() => {}
            }
        }
        told.notify_one();
    });
    word
}
