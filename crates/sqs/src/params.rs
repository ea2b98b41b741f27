//! Parameters of a request: a tree of JSON values, whichever protocol they came by.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Code, SqsError};

/// Names with text.
pub type Texts = BTreeMap<String, String>;

/// Parameters by name. Each is taken once.
pub struct Params(pub(crate) Map<String, Value>);

impl Params {
    /// Reads the body of the JSON protocol; an empty one has no parameters.
    ///
    /// # Errors
    /// It is no JSON object.
    pub fn of_json(body: &[u8]) -> Result<Params, SqsError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Params(Map::new()));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(params)) => Ok(Params(params)),
            Ok(_) => Err(Code::MalformedInput.because("The body must be a JSON object.")),
            Err(error) => Err(Code::MalformedInput.because(format!("The body is not JSON: {error}."))),
        }
    }

    /// A structure inside of a request.
    ///
    /// # Errors
    /// It is none.
    pub fn of(value: Value, name: &str) -> Result<Params, SqsError> {
        match value {
            Value::Object(params) => Ok(Params(params)),
            other => Err(wrong(name, "a structure", &other)),
        }
    }

    /// Takes a parameter out; null is none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// Text.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, SqsError> {
        self.take(name).map(|value| text_of(value, name)).transpose()
    }

    /// Text that must be there.
    ///
    /// # Errors
    /// It is not there, or something else.
    pub fn required(&mut self, name: &str) -> Result<String, SqsError> {
        self.text(name)?.ok_or_else(|| SqsError::missing(name))
    }

    /// A whole number within limits.
    ///
    /// # Errors
    /// It is none, or outside of them.
    pub fn number(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, SqsError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Err(SqsError::invalid(name, &shown, &format!("Must be a number from {min} to {max}")))
            }
        }
    }

    /// A list; none is an empty one.
    ///
    /// # Errors
    /// It is something else.
    pub fn list(&mut self, name: &str) -> Result<Vec<Value>, SqsError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(wrong(name, "a list", &other)),
        }
    }

    /// A list of texts; none is an empty one.
    ///
    /// # Errors
    /// It is something else.
    pub fn names(&mut self, name: &str) -> Result<Vec<String>, SqsError> {
        self.list(name)?.into_iter().map(|item| text_of(item, name)).collect()
    }

    /// Names with values; none is an empty map.
    ///
    /// # Errors
    /// It is something else.
    pub fn map(&mut self, name: &str) -> Result<Map<String, Value>, SqsError> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map),
            Some(other) => Err(wrong(name, "a map", &other)),
        }
    }

    /// Names with texts; none is an empty map.
    ///
    /// # Errors
    /// It is something else.
    pub fn texts(&mut self, name: &str) -> Result<Texts, SqsError> {
        let items = self.map(name)?.into_iter();
        items.map(|(key, value)| Ok((key, text_of(value, name)?))).collect()
    }
}

fn text_of(value: Value, name: &str) -> Result<String, SqsError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, "a string", &other)),
    }
}

fn wrong(name: &str, wanted: &str, got: &Value) -> SqsError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a structure",
    };
    Code::MalformedInput.because(format!("{name} must be {wanted}, and is {got}."))
}
