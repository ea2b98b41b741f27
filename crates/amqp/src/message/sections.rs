//! Sections: the positions of a message's sections, and their contents.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::{Descriptor, Field, Header, Properties, Reader, Value, ValueMap, WireError};

/// The only message format there is (2.8.11): format 0, version 0.
pub const MESSAGE_FORMAT: u32 = 0;

/// The kinds of sections, in the order in which they may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// How to deliver (3.2.1).
    Header,
    /// For the next hop alone (3.2.2).
    DeliveryAnnotations,
    /// For all who carry it (3.2.3).
    MessageAnnotations,
    /// Standard properties (3.2.4).
    Properties,
    /// The application's own properties (3.2.5).
    ApplicationProperties,
    /// A body of bytes, in one or more sections (3.2.6).
    Data,
    /// A body of lists, in one or more sections (3.2.7).
    Sequence,
    /// A body of one value (3.2.8).
    Value,
    /// Information that is known only at the end (3.2.9).
    Footer,
}

/// Number, symbolic descriptor and kind of each section.
const SECTIONS: [(u64, &str, Section); 9] = [
    (0x70, "amqp:header:list", Section::Header),
    (0x71, "amqp:delivery-annotations:map", Section::DeliveryAnnotations),
    (0x72, "amqp:message-annotations:map", Section::MessageAnnotations),
    (0x73, "amqp:properties:list", Section::Properties),
    (0x74, "amqp:application-properties:map", Section::ApplicationProperties),
    (0x75, "amqp:data:binary", Section::Data),
    (0x76, "amqp:amqp-sequence:list", Section::Sequence),
    (0x77, "amqp:amqp-value:*", Section::Value),
    (0x78, "amqp:footer:map", Section::Footer),
];

impl Section {
    /// Of which kind a section of this descriptor is.
    pub fn of(descriptor: &Descriptor) -> Option<Section> {
        let is_it = |code: u64, name: &str| match descriptor {
            Descriptor::Code(got) => *got == code,
            Descriptor::Name(got) => *got == *name,
        };
        SECTIONS.iter().find(|(code, name, _)| is_it(*code, name)).map(|(_, _, section)| *section)
    }

    /// The number of its descriptor.
    pub fn code(self) -> u8 {
        SECTIONS.iter().find(|(_, _, section)| *section == self).map_or(0, |(code, ..)| *code as u8)
    }

    /// Name in the standard.
    pub fn name(self) -> &'static str {
        match self {
            Section::Header => "header",
            Section::DeliveryAnnotations => "delivery-annotations",
            Section::MessageAnnotations => "message-annotations",
            Section::Properties => "properties",
            Section::ApplicationProperties => "application-properties",
            Section::Data => "data",
            Section::Sequence => "amqp-sequence",
            Section::Value => "amqp-value",
            Section::Footer => "footer",
        }
    }

    fn may_repeat(self) -> bool {
        matches!(self, Section::Data | Section::Sequence)
    }

    fn is_body(self) -> bool {
        matches!(self, Section::Data | Section::Sequence | Section::Value)
    }

    /// Whether it may come after `before`.
    fn may_follow(self, before: Section) -> bool {
        match self == before {
            true => self.may_repeat(),
            false => before < self && !(self.is_body() && before.is_body()),
        }
    }
}

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Bytes.
    Data,
    /// Lists.
    Sequence,
    /// One value.
    Value,
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The kind of the body.
    pub kind: BodyKind,
    /// Its sections, descriptors included.
    pub span: Range<usize>,
    /// How many sections it has.
    pub count: u32,
}

/// Where the sections of a message lie. Spans are of the value after the descriptor, but for the
/// body's and the header's, which have theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// The header with its descriptor.
    pub header: Option<Range<usize>>,
    /// The map of delivery annotations.
    pub delivery_annotations: Option<Range<usize>>,
    /// The map of message annotations.
    pub message_annotations: Option<Range<usize>>,
    /// The list of properties.
    pub properties: Option<Range<usize>>,
    /// The map of application properties.
    pub application_properties: Option<Range<usize>>,
    /// The body; some clients send none.
    pub body: Option<Body>,
    /// The map of the footer.
    pub footer: Option<Range<usize>>,
    /// The start of the bare message, which must never be changed.
    pub bare: usize,
}

impl Sections {
    /// Finds the sections of a message, without decoding them.
    ///
    /// # Errors
    /// A section is unknown, out of order, or does not fit.
    pub fn scan(message: &Bytes) -> Result<Sections, WireError> {
        let mut sections = Sections { bare: message.len(), ..Sections::default() };
        let mut reader = Reader::new(message);
        let mut before: Option<Section> = None;
        while !reader.is_empty() {
            let offset = reader.offset();
            let descriptor = reader.descriptor()?;
            let section = Section::of(&descriptor).ok_or_else(|| {
                let descriptor = descriptor.to_string();
                WireError::UnexpectedDescriptor { descriptor, wanted: "message section", offset }
            })?;
            if let Some(before) = before.filter(|before| !section.may_follow(*before)) {
                let (section, after) = (section.name(), before.name());
                return Err(WireError::SectionOutOfOrder { section, after, offset });
            }
            check_type(section, &reader)?;
            let start = reader.offset();
            reader.skip()?;
            sections.note(section, offset, start..reader.offset());
            before = Some(section);
        }
        Ok(sections)
    }

    fn note(&mut self, section: Section, offset: usize, span: Range<usize>) {
        if section >= Section::Properties {
            self.bare = self.bare.min(offset);
        }
        match section {
            Section::Header => self.header = Some(offset..span.end),
            Section::DeliveryAnnotations => self.delivery_annotations = Some(span),
            Section::MessageAnnotations => self.message_annotations = Some(span),
            Section::Properties => self.properties = Some(span),
            Section::ApplicationProperties => self.application_properties = Some(span),
            Section::Data => self.note_body(BodyKind::Data, offset..span.end),
            Section::Sequence => self.note_body(BodyKind::Sequence, offset..span.end),
            Section::Value => self.note_body(BodyKind::Value, offset..span.end),
            Section::Footer => self.footer = Some(span),
        }
    }

    fn note_body(&mut self, kind: BodyKind, span: Range<usize>) {
        let body = self.body.get_or_insert(Body { kind, span: span.clone(), count: 0 });
        body.span.end = span.end;
        body.count += 1;
    }

    /// Where the message annotations begin, or would.
    pub fn annotations_start(&self) -> usize {
        self.delivery_annotations.as_ref().or(self.header.as_ref()).map_or(0, |span| span.end)
    }

    /// The header; the defaults if there is none.
    ///
    /// # Errors
    /// It is malformed.
    pub fn header(&self, message: &Bytes) -> Result<Header, WireError> {
        match &self.header {
            Some(span) => Header::read(&mut Reader::at(message, span.start)),
            None => Ok(Header::default()),
        }
    }

    /// The standard properties; none if there are none.
    ///
    /// # Errors
    /// They are malformed.
    pub fn properties(&self, message: &Bytes) -> Result<Properties, WireError> {
        use crate::codec::Composite;
        match &self.properties {
            Some(span) => Properties::read_list(&mut Reader::at(message, span.start)),
            None => Ok(Properties::default()),
        }
    }

    /// The delivery annotations.
    ///
    /// # Errors
    /// They are malformed.
    pub fn delivery_annotations(&self, message: &Bytes) -> Result<ValueMap, WireError> {
        map(&self.delivery_annotations, message)
    }

    /// The message annotations.
    ///
    /// # Errors
    /// They are malformed.
    pub fn message_annotations(&self, message: &Bytes) -> Result<ValueMap, WireError> {
        map(&self.message_annotations, message)
    }

    /// The application's properties.
    ///
    /// # Errors
    /// They are malformed.
    pub fn application_properties(&self, message: &Bytes) -> Result<ValueMap, WireError> {
        map(&self.application_properties, message)
    }

    /// The footer.
    ///
    /// # Errors
    /// It is malformed.
    pub fn footer(&self, message: &Bytes) -> Result<ValueMap, WireError> {
        map(&self.footer, message)
    }

    /// The values of the body's sections: binaries, lists, or one value.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn body_values(&self, message: &Bytes) -> Result<Vec<Value>, WireError> {
        let Some(body) = &self.body else { return Ok(Vec::new()) };
        let mut reader = Reader::at(message, body.span.start);
        let mut values = Vec::with_capacity(body.count as usize);
        for _ in 0..body.count {
            reader.descriptor()?;
            values.push(reader.value()?);
        }
        Ok(values)
    }
}

/// Where the body of a message begins, of which the rest need not be there; `None` if it is not
/// known yet, or there is none.
pub fn body_start(message: &Bytes) -> Option<usize> {
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let offset = reader.offset();
        let section = Section::of(&reader.descriptor().ok()?)?;
        if section.is_body() {
            return Some(offset);
        }
        reader.skip().ok()?;
    }
    None
}

/// The body of a message that is one text, read in place: most messages of text are, as the codec
/// writes them. `None`: the sections are to be scanned.
pub fn plain_text(message: &[u8]) -> Option<&str> {
    let (mut rest, mut before) = (message, 0);
    loop {
        let [0x00, 0x53, section, constructor, ..] = *rest else { return None };
        // In the order of the sections, and none twice.
        if section <= before {
            return None;
        }
        before = section;
        let (length, contents) = match constructor >> 4 {
            0xa | 0xc => (usize::from(*rest.get(4)?), 5),
            0xb | 0xd => (u32::from_be_bytes(rest.get(4..8)?.try_into().ok()?) as usize, 8),
            _ => return None,
        };
        let (value, after) = rest.get(contents..)?.split_at_checked(length)?;
        match (section, constructor) {
            (0x70 | 0x73, 0xc0 | 0xd0) | (0x71 | 0x72 | 0x74, 0xc1 | 0xd1) => rest = after,
            (0x77, 0xa1 | 0xb1) if after.is_empty() => return std::str::from_utf8(value).ok(),
            _ => return None,
        }
    }
}

fn map(span: &Option<Range<usize>>, message: &Bytes) -> Result<ValueMap, WireError> {
    match span {
        Some(span) => ValueMap::read(&mut Reader::at(message, span.start)),
        None => Ok(ValueMap::default()),
    }
}

/// The value after a section's descriptor must be of the section's type.
fn check_type(section: Section, reader: &Reader<'_>) -> Result<(), WireError> {
    let code = reader.peek()?;
    let (allowed, wanted): (&[u8], _) = match section {
        Section::Header | Section::Properties | Section::Sequence => (&[0x45, 0xc0, 0xd0], "list"),
        Section::Data => (&[0xa0, 0xb0], "binary"),
        Section::Value => return Ok(()),
        _ => (&[0xc1, 0xd1], "map"),
    };
    match allowed.contains(&code) {
        true => Ok(()),
        false => Err(WireError::UnexpectedType { code, wanted, offset: reader.offset() }),
    }
}
