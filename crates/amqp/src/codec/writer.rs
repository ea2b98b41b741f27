//! Writing values: each in its smallest encoding.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Array, Value, ValueMap};

/// Bytes of a compound's header in its small form: constructor, size, count.
const SMALL_HEADER_BYTES: usize = 3;

/// In its large form.
const LARGE_HEADER_BYTES: usize = 9;

/// Appends data with a length: `small` is the constructor for a length of one byte, `small + 0x10`
/// that for four.
pub(super) fn put_variable(small: u8, bytes: &[u8], out: &mut BytesMut) {
    match u8::try_from(bytes.len()) {
        Ok(length) => {
            out.put_u8(small);
            out.put_u8(length);
        }
        Err(_) => {
            out.put_u8(small + 0x10);
            out.put_u32(bytes.len() as u32);
        }
    }
    out.put_slice(bytes);
}

/// Appends a list or map: `small` is the constructor of its small form. `elements` appends the
/// elements and returns their number.
pub(super) fn put_compound(small: u8, out: &mut BytesMut, elements: impl FnOnce(&mut BytesMut) -> u32) {
    let start = out.len();
    out.put_bytes(0, SMALL_HEADER_BYTES);
    let count = elements(out);
    let body_bytes = out.len() - start - SMALL_HEADER_BYTES;
    if let (Ok(size), Ok(count)) = (u8::try_from(body_bytes + 1), u8::try_from(count)) {
        out[start] = small;
        out[start + 1] = size;
        out[start + 2] = count;
        return;
    }
    // Few are this large: their elements move to make room for the large header.
    out.put_bytes(0, LARGE_HEADER_BYTES - SMALL_HEADER_BYTES);
    let body = start + SMALL_HEADER_BYTES;
    out.copy_within(body..body + body_bytes, start + LARGE_HEADER_BYTES);
    out[start] = small + 0x10;
    out[start + 1..start + 5].copy_from_slice(&(body_bytes as u32 + 4).to_be_bytes());
    out[start + 5..start + 9].copy_from_slice(&count.to_be_bytes());
}

pub(super) fn put_array(array: &Array, out: &mut BytesMut) {
    let body: &Bytes = array.body();
    match (u8::try_from(body.len() + 1), u8::try_from(array.count())) {
        (Ok(size), Ok(count)) => out.put_slice(&[0xe0, size, count]),
        _ => {
            out.put_u8(0xf0);
            out.put_u32(body.len() as u32 + 4);
            out.put_u32(array.count());
        }
    }
    out.put_slice(body);
}

pub(super) fn put_map(map: &ValueMap, out: &mut BytesMut) {
    put_compound(0xc1, out, |out| {
        for (key, value) in &map.0 {
            key.encode(out);
            value.encode(out);
        }
        map.0.len() as u32 * 2
    });
}

pub(super) fn put_uint(value: u32, out: &mut BytesMut) {
    match u8::try_from(value) {
        Ok(0) => out.put_u8(0x43),
        Ok(small) => out.put_slice(&[0x52, small]),
        Err(_) => {
            out.put_u8(0x70);
            out.put_u32(value);
        }
    }
}

pub(super) fn put_ulong(value: u64, out: &mut BytesMut) {
    match u8::try_from(value) {
        Ok(0) => out.put_u8(0x44),
        Ok(small) => out.put_slice(&[0x53, small]),
        Err(_) => {
            out.put_u8(0x80);
            out.put_u64(value);
        }
    }
}

impl Value {
    /// Appends the value in its smallest encoding.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Value::Null => out.put_u8(0x40),
            Value::Boolean(value) => out.put_u8(if *value { 0x41 } else { 0x42 }),
            Value::Ubyte(value) => out.put_slice(&[0x50, *value]),
            Value::Ushort(value) => put_fixed(0x60, &value.to_be_bytes(), out),
            Value::Uint(value) => put_uint(*value, out),
            Value::Ulong(value) => put_ulong(*value, out),
            Value::Byte(value) => out.put_slice(&[0x51, *value as u8]),
            Value::Short(value) => put_fixed(0x61, &value.to_be_bytes(), out),
            Value::Int(value) => match i8::try_from(*value) {
                Ok(small) => out.put_slice(&[0x54, small as u8]),
                Err(_) => put_fixed(0x71, &value.to_be_bytes(), out),
            },
            Value::Long(value) => match i8::try_from(*value) {
                Ok(small) => out.put_slice(&[0x55, small as u8]),
                Err(_) => put_fixed(0x81, &value.to_be_bytes(), out),
            },
            Value::Float(value) => put_fixed(0x72, &value.to_be_bytes(), out),
            Value::Double(value) => put_fixed(0x82, &value.to_be_bytes(), out),
            Value::Decimal32(value) => put_fixed(0x74, value, out),
            Value::Decimal64(value) => put_fixed(0x84, value, out),
            Value::Decimal128(value) => put_fixed(0x94, value, out),
            Value::Char(value) => put_fixed(0x73, &u32::from(*value).to_be_bytes(), out),
            Value::Timestamp(value) => put_fixed(0x83, &value.to_be_bytes(), out),
            Value::Uuid(value) => put_fixed(0x98, value, out),
            Value::Binary(value) => put_variable(0xa0, value, out),
            Value::String(value) => put_variable(0xa1, value.as_bytes(), out),
            Value::Symbol(value) => put_variable(0xa3, value.as_bytes(), out),
            Value::List(values) => put_list(values, out),
            Value::Map(map) => put_map(map, out),
            Value::Array(array) => put_array(array, out),
            Value::Described(described) => {
                out.put_u8(super::reader::DESCRIBED);
                described.descriptor.encode(out);
                described.value.encode(out);
            }
        }
    }
}

fn put_fixed(code: u8, bytes: &[u8], out: &mut BytesMut) {
    out.put_u8(code);
    out.put_slice(bytes);
}

fn put_list(values: &[Value], out: &mut BytesMut) {
    if values.is_empty() {
        return out.put_u8(0x45);
    }
    put_compound(0xc0, out, |out| {
        values.iter().for_each(|value| value.encode(out));
        values.len() as u32
    });
}
