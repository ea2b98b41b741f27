//! Fields of JSON bodies, each with its type and its limits.

use serde_json::{Map, Value};

use crate::ApiError;

/// A JSON object of a request.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body; an empty one is an empty object.
    pub fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields(Map::new()));
        }
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad(format!("the body is not JSON: {error}")))?;
        Fields::of(value, "the body")
    }

    pub fn of(value: Value, what: &str) -> Result<Fields, ApiError> {
        match value {
            Value::Object(fields) => Ok(Fields(fields)),
            other => Err(ApiError::bad(format!("{what} is to be a JSON object, and is {}", kind(&other)))),
        }
    }

    /// Takes a field out; null is none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        self.take(name).map(|value| Fields::of(value, name)).transpose()
    }

    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong(name, "a list", &other)),
        }
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// A string, or a number for clients that send ids so.
    pub fn id(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other @ Value::String(_)) => {
                Ok(other.as_str().map(str::to_owned).filter(|id| !id.is_empty()))
            }
            None => Ok(None),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    pub fn boolean(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    /// A whole number within limits.
    pub fn number(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ApiError::bad(format!(
                "{name} is to be a whole number from {min} to {max}, and is {value}"
            ))),
        }
    }
}

fn wrong(name: &str, wanted: &str, got: &Value) -> ApiError {
    ApiError::bad(format!("{name} is to be {wanted}, and is {}", kind(got)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
