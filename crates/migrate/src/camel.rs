//! Camel routes in XML that become `[[route]]`: from, filter, choice, multicast, setHeader,
//! removeHeader, to, wireTap, recipientList, delay, throttle.
//!
//! A route with a step that is not one of these is left out as a whole, with a note for the step:
//! half a route would lose messages.

use super::element::Element;
use super::error_handler;
use super::translation::{Table, Translation, Value};

/// Steps that change nothing about the message.
const IGNORED: &[&str] = &["log", "description"];

/// Elements inside each other that are followed.
const DEPTH_MAX: usize = 32;

/// `<camelContext>` or `<routes>`.
pub fn translate(context: &Element<'_>, translation: &mut Translation) {
    for element in context.children() {
        match element.name() {
            "route" => route(&element, context, translation),
            // Of the routes that refer to it.
            "errorHandler" | "redeliveryPolicyProfile" => {}
            "routeContext" | "routes" => translate(&element, translation),
            _ => translation.note(&element, "not translated: only routes are translated from Camel"),
        }
    }
}

/// One route on its way to `[[route]]` tables.
struct Draft {
    from: String,
    id: String,
    /// Headers set so far, each with its text.
    set: Vec<(String, String)>,
    removed: Vec<String>,
    /// The conditions of the filters that are open.
    conditions: Vec<String>,
    targets: Vec<Value>,
    /// A choice becomes a table of its own.
    choices: Vec<Vec<(&'static str, Value)>>,
    recipients: Option<(String, String)>,
    delay_ms: Option<u64>,
    throttle: Option<(u64, u64)>,
    /// Whether each message matches a target.
    matches_all: bool,
    /// The keys of its error handler.
    redelivery: Vec<(&'static str, Value)>,
}

/// Why a route cannot be translated: the note stands already.
struct LeftOut;

fn route(element: &Element<'_>, context: &Element<'_>, translation: &mut Translation) {
    let from = element.child("from").and_then(|from| {
        let uri = from.value("uri", translation)?;
        address_of(uri)
    });
    let Some((from, selector)) = from else {
        return translation
            .note(element, "not translated: it does not start at a queue or topic of this broker");
    };
    let id = element.value("id", translation).unwrap_or_default();
    let id = if id.is_empty() { format!("camel-{}", element.line()) } else { name_of(id) };
    let mut draft = Draft {
        from,
        id,
        set: Vec::new(),
        removed: Vec::new(),
        conditions: selector.into_iter().collect(),
        targets: Vec::new(),
        choices: Vec::new(),
        recipients: None,
        delay_ms: None,
        throttle: None,
        matches_all: false,
        redelivery: Vec::new(),
    };
    let steps: Vec<Element<'_>> =
        element.children().filter(|step| !["from", "errorHandler"].contains(&step.name())).collect();
    if draft.steps(&steps, 0, translation).is_err() {
        let why = format!(
            "not translated: the route {} is left out, because one of its steps cannot be translated",
            draft.id
        );
        return translation.note(element, &why);
    }
    draft.redelivery = error_handler::keys_of(element, context, translation);
    draft.finish(element, translation);
}

impl Draft {
    fn steps(
        &mut self,
        steps: &[Element<'_>],
        depth: usize,
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        steps.iter().try_for_each(|step| self.step(step, depth, translation))
    }

    fn step(
        &mut self,
        step: &Element<'_>,
        depth: usize,
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        if DEPTH_MAX < depth {
            return left_out(step, "is nested too deep", translation);
        }
        let inner: Vec<Element<'_>> = step.children().collect();
        match step.name() {
            "to" | "wireTap" => self.target(step, translation),
            "multicast" | "pipeline" => self.steps(&inner, depth + 1, translation),
            "setHeader" => self.set_header(step, translation),
            "removeHeader" => {
                match step.value("name", translation).or_else(|| step.value("headerName", translation)) {
                    Some(name) => {
                        self.set.retain(|(set, _)| set != name);
                        self.removed.push(name.to_owned());
                        Ok(())
                    }
                    None => left_out(step, "names no header", translation),
                }
            }
            "filter" => {
                let (condition, rest) = condition_of(inner);
                let Some(condition) = condition else {
                    return left_out(step, "has a condition that is not a selector", translation);
                };
                let (set, removed) = (self.set.clone(), self.removed.clone());
                self.conditions.push(condition);
                let result = self.steps(&rest, depth + 1, translation);
                self.conditions.pop();
                // Camel goes on after a filter with the headers that the message had there.
                (self.set, self.removed) = (set, removed);
                result
            }
            "choice" => self.choice(&inner, translation),
            "recipientList" => self.recipient_list(step, &inner, translation),
            "delay" => match inner.iter().find_map(constant_number) {
                Some(delay_ms) => {
                    self.delay_ms = Some(delay_ms);
                    Ok(())
                }
                None => left_out(step, "has a time that is not a constant", translation),
            },
            "throttle" => match inner.iter().find_map(constant_number) {
                Some(messages) => {
                    let period_ms = step.number("timePeriodMillis", translation).unwrap_or(1000);
                    self.throttle = Some((messages, period_ms.unsigned_abs().max(1)));
                    Ok(())
                }
                None => left_out(step, "has a number of messages that is not a constant", translation),
            },
            // The message itself is not handed to code that could throw.
            "onException" => {
                translation.note(step, "not translated: what full targets refuse goes to the error handler");
                Ok(())
            }
            name if IGNORED.contains(&name) => {
                translation.note(step, "not needed");
                Ok(())
            }
            _ => left_out(step, "is not translated", translation),
        }
    }

    fn target(&mut self, step: &Element<'_>, translation: &mut Translation) -> Result<(), LeftOut> {
        let keys = self.target_keys(step, translation)?;
        self.targets.push(Value::table(keys));
        self.matches_all |= self.conditions.is_empty();
        Ok(())
    }

    fn target_keys(
        &self,
        step: &Element<'_>,
        translation: &mut Translation,
    ) -> Result<Vec<(&'static str, Value)>, LeftOut> {
        let uri = step.value("uri", translation);
        let Some((address, _)) = uri.and_then(address_of) else {
            return left_out(step, "names no queue or topic of this broker", translation)
                .map(|()| Vec::new());
        };
        let mut keys = vec![("destination", address.as_str().into())];
        if !self.conditions.is_empty() {
            keys.push(("selector", all_of(&self.conditions).as_str().into()));
        }
        self.header_keys(&mut keys);
        Ok(keys)
    }

    fn header_keys(&self, keys: &mut Vec<(&'static str, Value)>) {
        if !self.set.is_empty() {
            keys.push((
                "set",
                Value::names(self.set.iter().map(|(name, text)| (&**name, text.as_str().into()))),
            ));
        }
        if !self.removed.is_empty() {
            keys.push(("remove", Value::list(self.removed.iter().map(|name| name.as_str().into()))));
        }
    }

    fn set_header(&mut self, step: &Element<'_>, translation: &mut Translation) -> Result<(), LeftOut> {
        let name = step.value("name", translation).or_else(|| step.value("headerName", translation));
        let value = step.children().next();
        let text = value.as_ref().and_then(|value| match value.name() {
            "constant" => Some(value.text().trim().replace('$', "$$")),
            "header" => Some(format!("${{{}}}", value.text().trim())),
            "simple" => template_of(value.text().trim()),
            _ => None,
        });
        let (Some(name), Some(text)) = (name, text) else {
            return left_out(
                step,
                "has a value that is not a constant, a header or simple text",
                translation,
            );
        };
        // Later values are read from the message as it came: one that reads a header set here would
        // see the old value.
        let reads_changed = self.set.iter().any(|(set, _)| text.contains(&format!("${{{set}}}")));
        if reads_changed {
            return left_out(step, "reads a header that the route has set before", translation);
        }
        self.set.retain(|(set, _)| set != name);
        self.removed.retain(|removed| removed != name);
        self.set.push((name.to_owned(), text));
        Ok(())
    }

    /// Each branch is one target: the first that matches gets the message.
    fn choice(&mut self, branches: &[Element<'_>], translation: &mut Translation) -> Result<(), LeftOut> {
        let (mut targets, mut otherwise) = (Vec::new(), Vec::new());
        for branch in branches {
            let (condition, rest) = match branch.name() {
                "when" => condition_of(branch.children().collect()),
                "otherwise" => (Some(String::new()), branch.children().collect()),
                _ => return left_out(branch, "is not translated", translation),
            };
            let Some(condition) = condition else {
                return left_out(branch, "has a condition that is not a selector", translation);
            };
            let [step] = &rest[..] else {
                return left_out(branch, "has more than one step, or none", translation);
            };
            if step.name() != "to" {
                return left_out(step, "is not translated inside a choice", translation);
            }
            let is_otherwise = condition.is_empty();
            let mut conditions = self.conditions.clone();
            conditions.extend(Some(condition).filter(|_| !is_otherwise));
            let branch = Draft { conditions, ..self.bare() };
            let target = Value::table(branch.target_keys(step, translation)?);
            if is_otherwise { otherwise.push(target) } else { targets.push(target) }
        }
        if targets.is_empty() {
            return Ok(());
        }
        let mut keys = vec![("distribute", "first".into()), ("to", Value::list(targets))];
        if !otherwise.is_empty() {
            keys.push(("otherwise", Value::list(otherwise)));
            self.matches_all |= self.conditions.is_empty();
        }
        self.choices.push(keys);
        Ok(())
    }

    /// The headers and conditions so far, without targets.
    fn bare(&self) -> Draft {
        Draft {
            from: self.from.clone(),
            id: self.id.clone(),
            set: self.set.clone(),
            removed: self.removed.clone(),
            conditions: self.conditions.clone(),
            targets: Vec::new(),
            choices: Vec::new(),
            recipients: None,
            delay_ms: None,
            throttle: None,
            matches_all: false,
            redelivery: Vec::new(),
        }
    }

    fn recipient_list(
        &mut self,
        step: &Element<'_>,
        inner: &[Element<'_>],
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        let header = inner.iter().find_map(|expression| match expression.name() {
            "header" => Some(expression.text().trim().to_owned()),
            "simple" => header_in(expression.text().trim()).map(str::to_owned),
            _ => None,
        });
        match header {
            Some(header)
                if self.recipients.is_none() && self.conditions.is_empty() && self.set.is_empty() =>
            {
                let delimiter = step.value("delimiter", translation).unwrap_or(",").to_owned();
                translation.note(
                    step,
                    "recipients are read as queue://NAME, topic://NAME or NAME, not as Camel's URIs",
                );
                self.recipients = Some((header, delimiter));
                Ok(())
            }
            Some(_) => {
                left_out(step, "is translated only once, and before filters and header changes", translation)
            }
            None => left_out(step, "takes its list from something other than a header", translation),
        }
    }

    /// The tables: one for the targets and recipients, and one for each choice.
    fn finish(mut self, element: &Element<'_>, translation: &mut Translation) {
        let mut tables = Vec::new();
        if !self.targets.is_empty() || self.recipients.is_some() {
            let mut keys = Vec::new();
            if !self.targets.is_empty() {
                keys.push(("to", Value::list(std::mem::take(&mut self.targets))));
            }
            if let Some((header, delimiter)) = &self.recipients {
                keys.push(("recipients", header.as_str().into()));
                keys.push(("recipients_delimiter", delimiter.as_str().into()));
            }
            tables.push(keys);
        }
        tables.append(&mut self.choices);
        if tables.is_empty() {
            return translation.note(element, "not translated: it sends nothing to a queue or topic");
        }
        let (several, may_match_none) = (1 < tables.len(), !self.matches_all);
        for (number, rest) in (1..).zip(tables) {
            let name = if several { format!("{}-{number}", self.id) } else { self.id.clone() };
            let mut keys = vec![("name", name.as_str().into()), ("from", self.from.as_str().into())];
            if let Some(delay_ms) = self.delay_ms {
                keys.push(("delay_ms", delay_ms.into()));
            }
            if let Some((messages, period_ms)) = self.throttle {
                keys.push(("throttle_messages", messages.into()));
                keys.push(("throttle_ms", period_ms.into()));
            }
            keys.extend(self.redelivery.iter().cloned());
            keys.extend(rest);
            translation.push(Table { name: "route", lines: vec![element.line()], keys });
        }
        if may_match_none {
            translation
                .note(element, "a message that no target matches stays at its address, where Camel drops it");
        }
    }
}

fn left_out(step: &Element<'_>, why: &str, translation: &mut Translation) -> Result<(), LeftOut> {
    translation.note(step, &format!("not translated: it {why}"));
    Err(LeftOut)
}

/// `activemq:queue:a?selector=…`, `jms:topic:b`, `broker:a`: the address, and the selector.
pub fn address_of(uri: &str) -> Option<(String, Option<String>)> {
    let (uri, options) = uri.split_once('?').unwrap_or((uri, ""));
    let (component, rest) = uri.split_once(':')?;
    if !["activemq", "activemq6", "amq", "jms", "broker"].contains(&component) {
        return None;
    }
    let rest = rest.trim_start_matches("//");
    let address = match (rest.strip_prefix("queue:"), rest.strip_prefix("topic:")) {
        (Some(name), _) => format!("queue://{name}"),
        (_, Some(name)) => format!("topic://{name}"),
        _ if rest.contains(':') => return None,
        _ => format!("queue://{rest}"),
    };
    let selector = options.split('&').find_map(|option| option.strip_prefix("selector="));
    let selector = selector
        .map(|text| text.replace('+', " ").replace("%3D", "=").replace("%20", " ").replace("%27", "'"));
    Some((address, selector))
}

/// Letters, digits, and signs that a route's name may have.
fn name_of(id: &str) -> String {
    let legal = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    id.chars().map(|sign| if legal(sign) { sign } else { '-' }).collect()
}

fn constant_number(element: &Element<'_>) -> Option<u64> {
    ["constant", "simple"].contains(&element.name()).then(|| element.text().trim().parse().ok())?
}

/// The condition that stands first in a filter or branch, and the steps after it.
fn condition_of(mut inner: Vec<Element<'_>>) -> (Option<String>, Vec<Element<'_>>) {
    if inner.is_empty() {
        return (None, inner);
    }
    let first = inner.remove(0);
    let condition = match first.name() {
        "simple" => selector_of(first.text().trim()),
        "header" => Some(format!("{} IS NOT NULL", first.text().trim())),
        _ => None,
    };
    (condition, inner)
}

/// All of these conditions together.
fn all_of(conditions: &[String]) -> String {
    match conditions {
        [one] => one.clone(),
        several => several.iter().map(|one| format!("({one})")).collect::<Vec<_>>().join(" AND "),
    }
}

/// `${header.region} == 'eu' && ${header.n} > 5` as a selector.
fn selector_of(simple: &str) -> Option<String> {
    let any: Option<Vec<String>> = simple
        .split("||")
        .map(|part| {
            let all: Option<Vec<String>> = part.split("&&").map(|one| comparison_of(one.trim())).collect();
            all.map(|all| all.join(" AND "))
        })
        .collect();
    any.map(|any| any.join(" OR "))
}

fn comparison_of(simple: &str) -> Option<String> {
    let (left, rest) = simple.split_once('}')?;
    let name = header_in(&format!("{left}}}"))?.to_owned();
    let (operator, value) = rest.trim().split_once(char::is_whitespace)?;
    let value = value.trim();
    let literal = match value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => value.to_owned(),
    };
    let is_text = literal.len() > 1 && literal.starts_with('\'') && literal.ends_with('\'');
    let inside = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    let is_plain = is_text && !inside.replace("''", "").contains('\'');
    let is_literal = is_plain || value.parse::<f64>().is_ok() || ["true", "false", "null"].contains(&value);
    if !is_literal {
        return None;
    }
    Some(match (operator, value) {
        ("==", "null") => format!("{name} IS NULL"),
        ("!=", "null") => format!("{name} IS NOT NULL"),
        ("==", _) => format!("{name} = {literal}"),
        ("!=", _) => format!("({name} <> {literal} OR {name} IS NULL)"),
        (">" | "<" | ">=" | "<=", _) => format!("{name} {operator} {literal}"),
        ("contains", _) if is_plain && !inside.contains(['%', '_']) => format!("{name} LIKE '%{inside}%'"),
        _ => return None,
    })
}

/// `${header.a}`, `${headers.a}`, `${in.header.a}` alone: the name.
fn header_in(simple: &str) -> Option<&str> {
    let inside = simple.strip_prefix("${")?.strip_suffix('}')?;
    let prefixes = ["header.", "headers.", "in.header.", "in.headers."];
    let name = prefixes.iter().find_map(|prefix| inside.strip_prefix(prefix))?;
    name.chars()
        .all(|sign| sign.is_ascii_alphanumeric() || sign == '_')
        .then_some(name)
        .filter(|name| !name.is_empty())
}

/// Text with `${header.a}` in it, as a template of Postroad; `None` with anything else of Camel's
/// language.
fn template_of(simple: &str) -> Option<String> {
    let (mut text, mut rest) = (String::new(), simple);
    while let Some(start) = rest.find('$') {
        let end = rest[start..].find('}')? + start;
        let name = header_in(&rest[start..=end])?;
        text += &rest[..start];
        text += &format!("${{{name}}}");
        rest = &rest[end + 1..];
    }
    Some(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_selectors_or_are_left_alone() {
        for (simple, want) in [
            ("${header.region} == 'eu'", Some("region = 'eu'")),
            ("${headers.n} > 5 && ${in.header.x} == null", Some("n > 5 AND x IS NULL")),
            ("${header.a} != \"it's\"", Some("(a <> 'it''s' OR a IS NULL)")),
            ("${header.a} contains 'b' || ${header.c} <= 1.5", Some("a LIKE '%b%' OR c <= 1.5")),
            ("${body} contains 'b'", None),
            ("${header.a} == ${header.b}", None),
            ("${header.a} regex 'x.*'", None),
        ] {
            assert_eq!(selector_of(simple).as_deref(), want, "{simple}");
        }
    }

    #[test]
    fn addresses_are_those_of_this_broker() {
        for (uri, want) in [
            ("activemq:queue:a.b", Some(("queue://a.b", None))),
            ("broker:topic:t", Some(("topic://t", None))),
            ("jms:orders?selector=x%3D1&concurrentConsumers=5", Some(("queue://orders", Some("x=1")))),
            ("direct:start", None),
            ("file:/tmp", None),
        ] {
            let got = address_of(uri);
            let got = got.as_ref().map(|(address, selector)| (&**address, selector.as_deref()));
            assert_eq!(got, want, "{uri}");
        }
    }
}
