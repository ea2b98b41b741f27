//! Layers between a socket and a session. Bytes in, bytes out; none of them touches the socket.

use std::io;

use bytes::BytesMut;

/// The limit of sealed bytes that wait for the socket.
const LEAVING_BYTES_MAX: usize = 64 << 10;

/// One layer.
pub trait Layer: std::fmt::Debug {
    /// Takes bytes from outside, and appends the contents to `inside`. An incomplete unit waits.
    ///
    /// # Errors
    /// The peer broke the layer's protocol. `seal` still returns the notification of the peer.
    fn open(&mut self, outside: &mut BytesMut, inside: &mut BytesMut) -> io::Result<()>;

    /// Takes from the front of `inside` and appends the sealed bytes to `outside`, after the
    /// layer's own output, until `outside` holds about `outside_bytes_max`.
    ///
    /// # Errors
    /// It cannot be sealed.
    fn seal(
        &mut self,
        inside: &mut BytesMut,
        outside: &mut BytesMut,
        outside_bytes_max: usize,
    ) -> io::Result<()>;

    /// Both sides have agreed on how they speak.
    fn is_ready(&self) -> bool;

    /// It does nothing, and never will: it need not be there.
    fn is_nothing(&self) -> bool {
        false
    }

    /// The peer has said that nothing more comes.
    fn has_ended(&self) -> bool;

    /// Says that nothing more comes from here.
    fn finish(&mut self);

    /// The peer is authenticated: the limits for unknown peers end.
    fn let_in(&mut self) {}

    /// The peer's certificate (DER), if this layer has seen a good one.
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }
}

/// One layer, with the bytes on its outer side.
#[derive(Debug)]
struct Stage {
    layer: Box<dyn Layer>,
    arrived: BytesMut,
    leaving: BytesMut,
}

/// All layers of a connection, the outermost first; at least one.
#[derive(Debug)]
pub struct Layers(Vec<Stage>);

impl Layers {
    /// `None` if there are none.
    pub fn new(layers: Vec<Box<dyn Layer>>) -> Option<Layers> {
        let stage = |layer| Stage { layer, arrived: BytesMut::new(), leaving: BytesMut::new() };
        let stages: Vec<Stage> = layers.into_iter().map(stage).collect();
        (!stages.is_empty()).then_some(Layers(stages))
    }

    /// The buffer for input from the socket.
    pub fn arrived(&mut self) -> &mut BytesMut {
        &mut self.0[0].arrived
    }

    /// The bytes for the socket.
    pub fn leaving(&mut self) -> &mut BytesMut {
        &mut self.0[0].leaving
    }

    /// Whether something is for the socket.
    pub fn has_leaving(&self) -> bool {
        self.0.iter().any(|stage| !stage.leaving.is_empty())
    }

    /// How much is on its way to the socket.
    pub fn leaving_bytes(&self) -> usize {
        self.0.iter().map(|stage| stage.leaving.len()).sum()
    }

    /// Opens the input, layer by layer, and appends the innermost contents to `input`.
    ///
    /// # Errors
    /// As [`Layer::open`].
    pub fn open(&mut self, input: &mut BytesMut) -> io::Result<()> {
        for index in 0..self.0.len() {
            let (outer, inner) = self.0.split_at_mut(index + 1);
            let Stage { layer, arrived, .. } = &mut outer[index];
            let inside = inner.first_mut().map_or(&mut *input, |stage| &mut stage.arrived);
            layer.open(arrived, inside)?;
        }
        Ok(())
    }

    /// Seals `output`, layer by layer, for the socket. Takes no more of it than the socket takes
    /// soon.
    ///
    /// # Errors
    /// As [`Layer::seal`].
    pub fn seal(&mut self, output: &mut BytesMut) -> io::Result<()> {
        for index in (0..self.0.len()).rev() {
            let (outer, inner) = self.0.split_at_mut(index + 1);
            let Stage { layer, leaving, .. } = &mut outer[index];
            let inside = inner.first_mut().map_or(&mut *output, |stage| &mut stage.leaving);
            layer.seal(inside, leaving, LEAVING_BYTES_MAX)?;
        }
        Ok(())
    }

    /// All layers are ready.
    pub fn are_ready(&self) -> bool {
        self.0.iter().all(|stage| stage.layer.is_ready())
    }

    /// Those that do something, once all are ready; `None` if there are none. Nothing is on its way
    /// in the others.
    pub fn that_do_something(self) -> Option<Layers> {
        let stages: Vec<Stage> = self.0.into_iter().filter(|stage| !stage.layer.is_nothing()).collect();
        (!stages.is_empty()).then_some(Layers(stages))
    }

    /// Notifies all layers that the peer is authenticated.
    pub fn let_in(&mut self) {
        self.0.iter_mut().for_each(|stage| stage.layer.let_in());
    }

    /// One of them has ended: the socket is not to be read any more.
    pub fn have_ended(&self) -> bool {
        self.0.iter().any(|stage| stage.layer.has_ended())
    }

    /// Ends all of them, the inmost first.
    pub fn finish(&mut self) {
        self.0.iter_mut().rev().for_each(|stage| stage.layer.finish());
    }

    /// The peer's certificate, if one was seen.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.iter().find_map(|stage| stage.layer.peer_certificate())
    }

    /// Gives the memory of empty buffers back.
    pub fn rest(&mut self) {
        for Stage { arrived, leaving, .. } in &mut self.0 {
            for buffer in [arrived, leaving] {
                if buffer.is_empty() {
                    *buffer = BytesMut::new();
                }
            }
        }
    }
}
