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
    headers: Headers,
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

/// Changes of headers, up to a step.
#[derive(Clone, Default, PartialEq, Eq)]
struct Headers {
    /// Each with its text.
    set: Vec<(String, String)>,
    removed: Vec<String>,
    /// Changed for some of the messages, each with the place of the change: a step that sends such
    /// a header on cannot be translated.
    doubtful: Vec<(String, String)>,
}

impl Headers {
    /// Names are the same to Camel in upper and lower case.
    fn has_changed(&self, name: &str) -> bool {
        self.names().any(|changed| changed.eq_ignore_ascii_case(name))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let texts = self.set.iter().chain(&self.doubtful).map(|(name, _)| name);
        texts.chain(&self.removed)
    }

    /// A header is set or removed, whatever was done to it before.
    fn forget(&mut self, name: &str) {
        self.set.retain(|(set, _)| set != name);
        self.removed.retain(|removed| removed != name);
        self.doubtful.retain(|(doubtful, _)| doubtful != name);
    }

    /// Takes the changes since `before` back: the names of their headers.
    fn back_to(&mut self, before: &Headers) -> Vec<String> {
        let after = std::mem::replace(self, before.clone());
        let state = |of: &Headers, name: &String| {
            let text = of.set.iter().find(|(set, _)| set == name).map(|(_, text)| text.clone());
            (text, of.removed.contains(name), of.doubtful.iter().any(|(doubtful, _)| doubtful == name))
        };
        let differs = |name: &&String| state(&after, name) != state(before, name);
        after.names().chain(before.names()).filter(differs).cloned().collect()
    }

    /// These were changed inside of a step, and Camel keeps some of that.
    fn doubt(&mut self, names: Vec<String>, step: &Element<'_>, kept: &str) {
        let place = format!("<{}> in line {}, which Camel {kept}", step.name(), step.line());
        self.doubtful.extend(names.into_iter().map(|name| (name, place.clone())));
    }

    fn add_keys(&self, keys: &mut Vec<(&'static str, Value)>) {
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
        headers: Headers::default(),
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
            "pipeline" => self.steps(&inner, depth + 1, translation),
            "multicast" => self.multicast(step, &inner, depth, translation),
            "setHeader" => self.set_header(step, translation),
            "removeHeader" => {
                match step.value("name", translation).or_else(|| step.value("headerName", translation)) {
                    Some(name) => {
                        self.headers.forget(name);
                        self.headers.removed.push(name.to_owned());
                        Ok(())
                    }
                    None => left_out(step, "names no header", translation),
                }
            }
            "filter" => self.filter(step, inner, depth, translation),
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

    fn filter(
        &mut self,
        step: &Element<'_>,
        inner: Vec<Element<'_>>,
        depth: usize,
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        let (condition, rest) = condition_of(inner);
        let Some(condition) = condition else {
            return left_out(step, "has a condition that is not a selector", translation);
        };
        self.reads(step, &condition.reads, translation)?;
        let before = self.headers.clone();
        self.conditions.push(condition.selector);
        self.steps(&rest, depth + 1, translation)?;
        self.conditions.pop();
        let changed = self.headers.back_to(&before);
        self.headers.doubt(changed, step, "keeps for messages that match");
        Ok(())
    }

    /// Each branch gets a copy of the message as it was before the first one.
    fn multicast(
        &mut self,
        step: &Element<'_>,
        branches: &[Element<'_>],
        depth: usize,
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        let (before, mut changed) = (self.headers.clone(), Vec::new());
        for branch in branches {
            self.step(branch, depth + 1, translation)?;
            changed.append(&mut self.headers.back_to(&before));
        }
        // By its aggregation strategy, Camel goes on with the message of one of the branches.
        self.headers.doubt(changed, step, "may keep");
        Ok(())
    }

    /// A step reads these headers. The broker reads them from the message as it came, so the route
    /// must not have changed them.
    fn reads(
        &self,
        step: &Element<'_>,
        names: &[String],
        translation: &mut Translation,
    ) -> Result<(), LeftOut> {
        match names.iter().find(|name| self.headers.has_changed(name)) {
            Some(name) => {
                let why = format!("reads the header {name}, which the route has changed before");
                left_out(step, &why, translation)
            }
            None => Ok(()),
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
        if let Some((name, place)) = self.headers.doubtful.first() {
            let why = format!("follows a change of the header {name} inside of {place}");
            return left_out(step, &why, translation).map(|()| Vec::new());
        }
        let mut keys = vec![("destination", address.as_str().into())];
        if !self.conditions.is_empty() {
            keys.push(("selector", all_of(&self.conditions).as_str().into()));
        }
        self.headers.add_keys(&mut keys);
        Ok(keys)
    }

    fn set_header(&mut self, step: &Element<'_>, translation: &mut Translation) -> Result<(), LeftOut> {
        let name = step.value("name", translation).or_else(|| step.value("headerName", translation));
        let value = step.children().next();
        let text = value.as_ref().and_then(|value| match value.name() {
            "constant" => Some((value.text().trim().replace('$', "$$"), Vec::new())),
            "header" => {
                let name = value.text().trim().to_owned();
                Some((format!("${{{name}}}"), vec![name]))
            }
            "simple" => {
                let simple = value.text().trim();
                Some((template_of(simple)?, headers_in(simple)))
            }
            _ => None,
        });
        let (Some(name), Some((text, reads))) = (name, text) else {
            return left_out(
                step,
                "has a value that is not a constant, a header or simple text",
                translation,
            );
        };
        self.reads(step, &reads, translation)?;
        self.headers.forget(name);
        self.headers.set.push((name.to_owned(), text));
        Ok(())
    }

    /// Each branch is one target: the first that matches gets the message.
    fn choice(&mut self, branches: &[Element<'_>], translation: &mut Translation) -> Result<(), LeftOut> {
        let (mut targets, mut otherwise) = (Vec::new(), Vec::new());
        for branch in branches {
            let (condition, rest) = match branch.name() {
                "when" => condition_of(branch.children().collect()),
                "otherwise" => (Some(Condition::default()), branch.children().collect()),
                _ => return left_out(branch, "is not translated", translation),
            };
            let Some(condition) = condition else {
                return left_out(branch, "has a condition that is not a selector", translation);
            };
            self.reads(branch, &condition.reads, translation)?;
            let [step] = &rest[..] else {
                return left_out(branch, "has more than one step, or none", translation);
            };
            if step.name() != "to" {
                return left_out(step, "is not translated inside a choice", translation);
            }
            let is_otherwise = condition.selector.is_empty();
            let mut conditions = self.conditions.clone();
            conditions.extend(Some(condition.selector).filter(|_| !is_otherwise));
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
            headers: self.headers.clone(),
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
                if self.recipients.is_none()
                    && self.conditions.is_empty()
                    && self.headers == Headers::default() =>
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

/// A condition of Camel as a selector.
#[derive(Default)]
struct Condition {
    selector: String,
    /// Headers in it.
    reads: Vec<String>,
}

/// The condition that stands first in a filter or branch, and the steps after it.
fn condition_of(mut inner: Vec<Element<'_>>) -> (Option<Condition>, Vec<Element<'_>>) {
    if inner.is_empty() {
        return (None, inner);
    }
    let first = inner.remove(0);
    let text = first.text().trim();
    let condition = match first.name() {
        "simple" => selector_of(text).map(|selector| Condition { selector, reads: headers_in(text) }),
        "header" => {
            let (selector, reads) = (format!("{text} IS NOT NULL"), vec![text.to_owned()]);
            Some(Condition { selector, reads })
        }
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

/// The names of all `${header.a}` in a text.
fn headers_in(simple: &str) -> Vec<String> {
    let name = |part: &str| {
        let end = part.find('}')?;
        header_in(&format!("${{{}", &part[..=end])).map(str::to_owned)
    };
    simple.split("${").skip(1).filter_map(name).collect()
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

    /// What becomes of a route with these steps: its tables, and the notes.
    fn translated(steps: &str) -> (String, String) {
        let route = format!("<routes><route><from uri='activemq:in'/>{steps}</route></routes>");
        let translation = crate::translate(&route).unwrap();
        (translation.to_toml("camel.xml"), translation.notes_text("camel.xml"))
    }

    const SET: &str = "<setHeader name='a'><constant>1</constant></setHeader>";
    const REMOVE: &str = "<removeHeader name='a'/>";
    const TO: &str = "<to uri='activemq:out'/>";

    #[test]
    fn routes_whose_header_changes_a_selector_or_target_would_not_see_are_left_out() {
        let if_a = |steps: &str| format!("<filter><simple>${{header.a}} == '1'</simple>{steps}</filter>");
        let if_b = |steps: &str| format!("<filter><header>b</header>{steps}</filter>");
        let choice = "<choice><when><simple>${header.A} > 5</simple><to uri='activemq:big'/></when>
            <otherwise><to uri='activemq:small'/></otherwise></choice>";
        let copy = "<setHeader name='c'><simple>was ${header.a}</simple></setHeader>";
        let multicast = |branches: &str| format!("<multicast>{branches}</multicast>");
        let reads = |step: &str| format!("<{step}> not translated: it reads the header ");
        let (inside, to) = ("a change of the header a inside of", "<to> not translated: it follows");
        let list = "<recipientList><header>cc</header></recipientList>";
        for (case, steps, want) in [
            ("set, then a filter", format!("{SET}{}", if_a(TO)), reads("filter")),
            ("removed, then a filter", format!("{REMOVE}{}", if_a(TO)), reads("filter")),
            ("set inside, then a filter", if_b(&format!("{SET}{}", if_a(TO))), reads("filter")),
            ("set, then whether it is there", SET.replace("'a'", "'b'") + &if_b(TO), reads("filter")),
            ("set, then a choice, in any case", format!("{SET}{choice}"), reads("when")),
            ("set, then a template", format!("{SET}{copy}{TO}"), reads("setHeader")),
            ("removed, then a template", format!("{REMOVE}{copy}{TO}"), reads("setHeader")),
            (
                "set in a filter, then a target",
                format!("{}{TO}", if_b(SET)),
                format!("{to} {inside} <filter> in line 1, which Camel keeps for messages that match"),
            ),
            ("removed in a filter, then a target", format!("{}{TO}", if_b(REMOVE)), format!("{to} {inside}")),
            ("set in a filter in it", if_b(&format!("{}{TO}", if_b(SET))), format!("{to} {inside}")),
            ("set in a filter, then a filter", if_b(SET) + &if_a(TO), reads("filter")),
            ("set in a filter, then a choice", if_b(SET) + &choice.replace("A}", "n}"), inside.to_owned()),
            (
                "set before, otherwise in a filter",
                format!("{SET}{}{TO}", if_b(&SET.replace('1', "2"))),
                format!("{to} {inside}"),
            ),
            (
                "set in a branch, then a target",
                format!("{}{TO}", multicast(SET)),
                format!("{to} {inside} <multicast> in line 1, which Camel may keep"),
            ),
            ("removed, then a list", format!("{REMOVE}{list}"), "before filters and header changes".into()),
            (
                "set in a filter, then a list",
                if_b(SET) + list,
                "before filters and header changes".to_owned(),
            ),
        ] {
            let (toml, notes) = translated(&steps);
            assert!(!toml.contains("[[route]]"), "case: {case}: {toml}");
            assert!(notes.contains(&want) && notes.contains("is left out"), "case: {case}: {notes}");
        }
    }

    #[test]
    fn header_changes_reach_the_targets_that_follow_them_in_camel() {
        let out = |more: &str| format!("{{ destination = \"queue://out\"{more} }}");
        let set = ", set = { \"a\" = \"1\" }";
        let of_b = ", selector = \"b IS NOT NULL\"";
        let if_b = |steps: &str| format!("<filter><header>b</header>{steps}</filter>");
        let pipeline = format!("<pipeline>{SET}{TO}</pipeline>");
        for (case, steps, want) in [
            (
                "a condition on another header",
                format!("{SET}{}", if_b(TO)),
                vec![out(&format!("{of_b}{set}"))],
            ),
            ("a condition before the change", format!("{}{SET}{TO}", if_b(TO)), vec![out(of_b), out(set)]),
            ("at the end of a filter", if_b(&format!("{SET}{TO}")), vec![out(&format!("{of_b}{set}"))]),
            ("of a filter without an effect", format!("{SET}{}{TO}", if_b(SET)), vec![out(set)]),
            ("set again for all messages", format!("{}{SET}{TO}", if_b(REMOVE)), vec![out(set)]),
            (
                "in one branch of several",
                format!("<multicast>{pipeline}{TO}</multicast>"),
                vec![out(set), out("")],
            ),
            ("a branch of its own", format!("<multicast>{REMOVE}{TO}</multicast>"), vec![out("")]),
            ("in a pipeline", format!("{pipeline}{TO}"), vec![out(set), out(set)]),
            ("a removed header", format!("{SET}{REMOVE}{TO}"), vec![out(", remove = [\"a\"]")]),
        ] {
            let (toml, notes) = translated(&steps);
            let want = format!("to = [{}]", want.join(", "));
            assert!(toml.contains(&want), "case: {case}: {want}\n{toml}\n{notes}");
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
