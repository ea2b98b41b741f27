//! One connection between two nodes, as frames: the length of the content (4 bytes, little endian)
//! and the content.
//!
//! One thread may read while another writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// See the head of this file.
pub struct Wire {
    socket: TcpStream,
}

impl Wire {
    /// Over a connected socket. Each write, and each read of the introduction, ends within
    /// `patience`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn plain(socket: TcpStream, patience: Duration) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(Wire { socket })
    }

    /// A peer may be silent for so long.
    ///
    /// # Errors
    /// The system refuses.
    pub fn expect_within(&self, silence: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(silence))
    }

    /// A peer may read nothing for so long.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write_within(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(patience))
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// The connection has ended, or the peer does not read.
    pub fn write_frame(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(&(bytes.len() as u32).to_le_bytes())?;
        (&self.socket).write_all(bytes)
    }

    /// The next frame.
    ///
    /// # Errors
    /// The connection has ended, the peer is silent, or the frame is longer than `bytes_max`.
    pub fn read_frame(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        (&self.socket).read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if bytes_max < length {
            let reason = format!("a frame of {length} bytes; the maximum is {bytes_max}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut bytes = Vec::new();
        // No more memory than came.
        (&self.socket).take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    /// Ends the connection for both threads.
    pub fn shut_down(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
