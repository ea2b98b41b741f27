//! Java exceptions on the wire.

use super::{
    WireError, WireString,
    reader::{Reader, size_from},
    scan::Scanner,
    writer::Writer,
};

/// A Java exception as a peer sent it, or as we send it.
///
/// `stack` and `cause` exist on the wire only if both sides enabled stack traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throwable {
    /// Java class, such as `jakarta.jms.InvalidDestinationException`; a client
    /// that does not know it reads a plain `Throwable`.
    pub class_name: Option<WireString>,
    /// The result of `getMessage()`.
    pub message: Option<WireString>,
    /// Innermost call first.
    pub stack: Vec<StackFrame>,
    /// The exception that led to this one.
    pub cause: Option<Box<Throwable>>,
}

/// One line of a stack trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackFrame {
    /// Class of the method.
    pub class_name: Option<WireString>,
    /// Name of the method.
    pub method_name: Option<WireString>,
    /// Source file, if known.
    pub file_name: Option<WireString>,
    /// 1-based line; negative if unknown.
    pub line: i32,
}

impl Throwable {
    /// An exception without stack trace or cause.
    pub fn new(class_name: &str, message: &str) -> Throwable {
        Throwable {
            class_name: Some(class_name.into()),
            message: Some(message.into()),
            ..Throwable::default()
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Throwable, WireError> {
        let mut throwable = Throwable {
            class_name: reader.string()?,
            message: reader.string()?,
            stack: Vec::new(),
            cause: None,
        };
        if reader.layout.stack_traces {
            let offset = reader.offset();
            for _ in 0..size_from(i64::from(reader.short()?), offset)? {
                throwable.stack.push(StackFrame {
                    class_name: reader.string()?,
                    method_name: reader.string()?,
                    file_name: reader.string()?,
                    line: reader.int()?,
                });
            }
            throwable.cause = reader.throwable()?;
        }
        Ok(throwable)
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        writer.string(self.class_name.as_ref())?;
        writer.string(self.message.as_ref())?;
        if writer.layout.stack_traces {
            writer.count(self.stack.len())?;
            for frame in &self.stack {
                writer.string(frame.class_name.as_ref())?;
                writer.string(frame.method_name.as_ref())?;
                writer.string(frame.file_name.as_ref())?;
                writer.int(frame.line);
            }
            writer.throwable(self.cause.as_deref())?;
        }
        Ok(())
    }

    /// Stored messages carry exceptions without stack traces.
    pub(super) fn skip(scanner: &mut Scanner<'_>) -> Result<(), WireError> {
        scanner.string()?;
        scanner.string()
    }
}
