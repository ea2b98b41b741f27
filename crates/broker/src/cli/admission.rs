//! Admission: which connections are served, and with which layers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_net::{Place, Places, TlsConfig};
use postroad_security::Door;
use tokio::sync::watch;

use crate::cli::listeners::Accepted;
use crate::runtime::{NewSocket, Service};

/// Connections turned away with less than this between them are one burst, and one line in the log.
const BURST_GAP: Duration = Duration::from_secs(10);

/// Which connections are served, and how. Others are closed at once: left unaccepted, they would
/// wait in vain.
pub struct Admission {
    places: Places,
    /// The TLS configuration, as it was read last.
    tls: Option<TlsConfig>,
    /// Who is let in, as it was read last.
    door: watch::Sender<Arc<Door>>,
    /// The largest message inside of WebSockets.
    websocket_bytes_max: usize,
    /// When a connection was last turned away.
    refused_at: Option<Instant>,
}

impl Admission {
    /// As many as there are `places`, by these certificates and users. No message inside of
    /// WebSockets may be larger than `websocket_bytes_max`.
    pub fn new(
        places: Places,
        tls: Option<TlsConfig>,
        door: Arc<Door>,
        websocket_bytes_max: usize,
    ) -> Admission {
        let (door, _) = watch::channel(door);
        Admission { places, tls, door, websocket_bytes_max, refused_at: None }
    }

    /// From now on these users and certificates; without any of these those before, as the ports
    /// are there.
    pub fn follow(&mut self, tls: Option<TlsConfig>, door: Door) {
        self.tls = tls.or(self.tls.take());
        self.door.send_replace(Arc::new(door));
    }

    /// Who is let in, now and later.
    pub fn door(&self) -> watch::Receiver<Arc<Door>> {
        self.door.subscribe()
    }

    /// The socket with all that serving it needs.
    pub fn dress(&self, accepted: Accepted, place: Place) -> NewSocket {
        let Accepted { endpoint, socket, peer, login } = accepted;
        // What a client that has logged in sends has left its layers.
        let has_layers = login.is_none();
        // At the plain port of AMQP a peer may ask for it.
        let tls_is_asked_for = endpoint.service == Service::Amqp && !endpoint.tls && !endpoint.websocket;
        let tls = self.tls.clone().filter(|_| has_layers && (endpoint.tls || tls_is_asked_for));
        let websocket_bytes_max = (has_layers && endpoint.websocket).then_some(self.websocket_bytes_max);
        NewSocket {
            service: endpoint.serves(),
            scheme: endpoint.scheme(),
            socket,
            peer,
            place,
            tls,
            tls_is_asked_for,
            websocket_bytes_max,
            door: self.door.subscribe(),
            tls_to_peer: None,
            link: None,
            login,
        }
    }

    /// A place, if there is one.
    pub fn ask(&mut self, peer: SocketAddr) -> Option<Place> {
        let place = self.places.take();
        if place.is_none() {
            let now = Instant::now();
            let goes_on = self.refused_at.is_some_and(|before| now.duration_since(before) < BURST_GAP);
            if !goes_on {
                tracing::warn!(%peer, "refusing connections: the limit on open files is reached");
            }
            self.refused_at = Some(now);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_with_the_connection_that_took_the_place() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut admission = Admission::new(Places::new(1), None, Arc::new(Door::open()), 0);
        let place = admission.ask(peer);
        assert!(place.is_some() && admission.refused_at.is_none());
        assert!(admission.ask(peer).is_none() && admission.refused_at.is_some());
        drop(place);
        assert!(admission.ask(peer).is_some());
    }
}
