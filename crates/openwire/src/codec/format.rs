//! The negotiated format of one connection, and its frames.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Command, DataStructure, VERSION_MAX, WireError, WireFormatOptions,
    cache::{DecodeCache, EncodeCache, SLOTS_DEFAULT},
    reader::{Layout, Reader},
    structure::Structure,
    writer::{BooleanWriter, Writer},
};

/// Most frames that carry no body are shorter: their room is made once, not field by field.
const FRAME_BYTES: usize = 128;

/// Scratch memory kept between commands; larger is given back.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// The marshalling state of one connection, for both directions.
///
/// Before negotiation use [`WireFormat::initial`]; it also reads and writes
/// `WireFormatInfo`. Then [`WireFormat::negotiate`].
#[derive(Debug)]
pub struct WireFormat {
    /// Protocol version, 1 to 12.
    pub version: u8,
    /// Booleans before the rest, and short longs.
    pub tight_encoding: bool,
    /// Exceptions carry stack traces and causes.
    pub stack_traces: bool,
    /// Frames have no 4-byte size ahead.
    pub size_prefix_disabled: bool,
    /// Largest frame in either direction, without its 4-byte size.
    pub max_frame_bytes: u64,
    caches: Option<(DecodeCache, EncodeCache)>,
    booleans: BooleanWriter,
    scratch: BytesMut,
}

impl WireFormat {
    /// The format that every connection starts with: loose, uncached.
    pub fn initial() -> WireFormat {
        WireFormat::loose(VERSION_MAX)
    }

    /// A loose, uncached format without stack traces or frame limit.
    pub fn loose(version: u8) -> WireFormat {
        WireFormat {
            version,
            tight_encoding: false,
            stack_traces: false,
            size_prefix_disabled: false,
            max_frame_bytes: u64::MAX,
            caches: None,
            booleans: BooleanWriter::default(),
            scratch: BytesMut::new(),
        }
    }

    /// The same format with empty marshalling caches of this number of slots;
    /// without caches if there are none.
    pub fn with_cache_slots(mut self, slots: u16) -> WireFormat {
        let slots = usize::from(slots).min(i16::MAX as usize);
        self.caches = (0 < slots).then(|| (DecodeCache::new(slots), EncodeCache::new(slots)));
        self
    }

    /// The result of both sides' options: the lower version, each
    /// feature if both want it, the lower limits. A limit of 0 or less means
    /// that a side has no opinion.
    ///
    /// # Errors
    /// [`WireError::CacheSize`]: the agreed cache is negative or too large.
    pub fn negotiate(ours: &WireFormatOptions, theirs: &WireFormatOptions) -> Result<WireFormat, WireError> {
        let version = lower(ours.version.into(), theirs.version.into());
        let max_frame = lower(ours.max_frame_bytes, theirs.max_frame_bytes);
        let mut format = WireFormat::loose(u8::try_from(version).unwrap_or(VERSION_MAX).min(VERSION_MAX));
        format.tight_encoding = ours.tight_encoding && theirs.tight_encoding;
        format.stack_traces = ours.stack_traces && theirs.stack_traces;
        format.size_prefix_disabled = ours.size_prefix_disabled && theirs.size_prefix_disabled;
        format.max_frame_bytes = if max_frame <= 0 { u64::MAX } else { max_frame as u64 };
        if !(ours.cache && theirs.cache) {
            return Ok(format);
        }
        let max = i32::from(i16::MAX);
        match ours.cache_size.min(theirs.cache_size) {
            0 => Ok(format.with_cache_slots(SLOTS_DEFAULT as u16)),
            got if (1..=max).contains(&got) => Ok(format.with_cache_slots(got as u16)),
            got => Err(WireError::CacheSize { got, max }),
        }
    }

    /// Whether values are marshalled once and then by index.
    pub fn has_cache(&self) -> bool {
        self.caches.is_some()
    }

    /// Decodes one frame, given without its 4-byte size. Text and byte arrays
    /// of the result are slices of `frame`.
    ///
    /// # Errors
    /// The peer's fault; the state of the caches is then unknown, so the
    /// connection must end.
    pub fn decode(&mut self, frame: &Bytes) -> Result<Command, WireError> {
        self.decode_as(frame)
    }

    /// Decodes a frame that may also be a data type, as stores write them.
    ///
    /// # Errors
    /// As [`WireFormat::decode`].
    pub fn decode_structure(&mut self, frame: &Bytes) -> Result<DataStructure, WireError> {
        self.decode_as(frame)
    }

    /// Appends one frame to `out`, with its 4-byte size unless that is disabled.
    ///
    /// # Errors
    /// A value does not fit its length field, the frame exceeds the limit, or
    /// the version lacks the type. `out` and the caches are then as before,
    /// and the connection can go on.
    pub fn encode(&mut self, command: &Command, out: &mut BytesMut) -> Result<(), WireError> {
        self.write_frame(out, command.type_id(), |writer| command.encode(writer))
    }

    /// As [`WireFormat::encode`], for any data type.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn encode_structure(&mut self, value: &DataStructure, out: &mut BytesMut) -> Result<(), WireError> {
        self.write_frame(out, value.type_id(), |writer| value.encode(writer))
    }

    fn decode_as<T: Structure>(&mut self, frame: &Bytes) -> Result<T, WireError> {
        let cache = self.caches.as_mut().map(|(decode, _)| decode);
        let layout =
            Layout { version: self.version, tight: self.tight_encoding, stack_traces: self.stack_traces };
        let mut reader = Reader::new(frame, layout, cache);
        let type_id = reader.byte()?;
        if layout.tight {
            reader.open_booleans()?;
        }
        let value = T::decode(type_id, 0, &mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// Frames the output of `fields` in this format.
    pub(super) fn write_frame(
        &mut self,
        out: &mut BytesMut,
        type_id: u8,
        fields: impl FnOnce(&mut Writer<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let start = out.len();
        out.reserve(FRAME_BYTES);
        if let Some((_, cache)) = &mut self.caches {
            cache.begin_command();
        }
        let result = if self.tight_encoding {
            self.write_tight(out, type_id, fields)
        } else {
            self.write_loose(out, type_id, fields)
        };
        if result.is_err() {
            out.truncate(start);
            if let Some((_, cache)) = &mut self.caches {
                cache.undo_command();
            }
        }
        result
    }

    fn write_loose(
        &mut self,
        out: &mut BytesMut,
        type_id: u8,
        fields: impl FnOnce(&mut Writer<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let start = out.len();
        if !self.size_prefix_disabled {
            out.put_u32(0);
        }
        let body = out.len();
        out.put_u8(type_id);
        let layout = Layout { version: self.version, tight: false, stack_traces: self.stack_traces };
        let cache = self.caches.as_mut().map(|(_, encode)| encode);
        fields(&mut Writer::new(layout, out, &mut self.booleans, cache))?;
        let size = self.checked_size(out.len() - body)?;
        if !self.size_prefix_disabled {
            out[start..body].copy_from_slice(&size.to_be_bytes());
        }
        Ok(())
    }

    fn write_tight(
        &mut self,
        out: &mut BytesMut,
        type_id: u8,
        fields: impl FnOnce(&mut Writer<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.booleans.clear();
        self.scratch.clear();
        let layout = Layout { version: self.version, tight: true, stack_traces: self.stack_traces };
        let cache = self.caches.as_mut().map(|(_, encode)| encode);
        fields(&mut Writer::new(layout, &mut self.scratch, &mut self.booleans, cache))?;
        let size = self.checked_size(1 + self.booleans.encoded_len() + self.scratch.len())?;
        if !self.size_prefix_disabled {
            out.put_u32(size);
        }
        out.put_u8(type_id);
        self.booleans.put(out)?;
        out.put_slice(&self.scratch);
        if SCRATCH_BYTES_KEPT < self.scratch.capacity() {
            self.scratch = BytesMut::new();
        }
        Ok(())
    }

    fn checked_size(&self, bytes: usize) -> Result<u32, WireError> {
        let max_bytes = self.max_frame_bytes.min(i32::MAX as u64);
        let got_bytes = bytes as u64;
        if max_bytes < got_bytes {
            return Err(WireError::FrameTooLarge { got_bytes, max_bytes });
        }
        Ok(bytes as u32)
    }
}

/// The lower of two limits, where 0 or less is no limit.
fn lower(ours: i64, theirs: i64) -> i64 {
    match (0 < ours, 0 < theirs) {
        (true, true) => ours.min(theirs),
        (true, false) => ours,
        _ => theirs,
    }
}
