//! XPATH: a condition over the XML in a message's body, as ActiveMQ has it (XPath 1.0).
//!
//! The `xpath-eval` library evaluates, `roxmltree` reads the XML; [`tree`] connects them and counts
//! the cost, because the sender of a body does not know the paths, nor the author of a path the
//! bodies.

mod tree;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use roxmltree::{Document, ParsingOptions};
use xpath_eval::{EvaluationContext, Expr, evaluate_boolean, parse};

use crate::error::Reason;
use tree::{Budget, TreeNode};

/// Bytes of one path.
const TEXT_BYTES_MAX: usize = 4096;

/// Brackets, parentheses and minus signs of one path: each may be a level of nesting, for which the
/// library takes stack.
const LEVELS_MAX: usize = 16;

/// Nodes of a body that is looked at; one with more is as one that is no XML.
const NODES_MAX: u32 = 100_000;

/// Nodes that one evaluation may come by. Paths such as `//a[//b[//c]]` come by the product of all
/// nodes; one that takes more does not match. This number takes some 20 ms, in which no other
/// message of the partition moves.
const VISITS_MAX: u32 = 500_000;

/// One path, parsed.
#[derive(Clone)]
pub(crate) struct XPath {
    text: Box<str>,
    path: Arc<Expr>,
}

impl XPath {
    /// # Errors
    /// [`Reason::BadXPath`], [`Reason::XPathTooLarge`].
    pub(crate) fn parse(text: &str) -> Result<XPath, Reason> {
        let levels = text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'-')).count();
        if text.len() > TEXT_BYTES_MAX || levels > LEVELS_MAX {
            return Err(Reason::XPathTooLarge { bytes_max: TEXT_BYTES_MAX, levels_max: LEVELS_MAX });
        }
        let path = parse(text).map_err(|error| Reason::BadXPath {
            position: text.get(..error.position).map_or(0, |before| before.chars().count()),
            message: error.message,
        })?;
        Ok(XPath { text: text.into(), path: Arc::new(path) })
    }

    /// Whether the path is true of the body. A body that is no XML, has a document type, or is too
    /// large has nothing that could be selected; a path with unknown parts (a variable, a function)
    /// is not true.
    pub(crate) fn matches(&self, body: Option<&str>) -> bool {
        let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let document = body.and_then(|body| Document::parse_with_options(body, options).ok());
        let Some(document) = document else { return false };
        let budget = Budget::new(VISITS_MAX);
        let context = EvaluationContext::new(TreeNode::root(&document, &budget));
        let truth = evaluate_boolean(&self.path, &context);
        truth == Ok(true) && !budget.is_spent()
    }
}

impl PartialEq for XPath {
    fn eq(&self, other: &XPath) -> bool {
        self.text == other.text
    }
}

impl Eq for XPath {}

impl Hash for XPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl std::fmt::Debug for XPath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "XPath({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "<order id='7' xmlns:x='urn:x'><item price='3'>tea</item><item>milk</item><x:note/><!-- rush --></order>";

    #[test]
    fn paths_are_true_or_not() {
        let deep = "<a>".repeat(50_000) + &"</a>".repeat(50_000);
        for (case, path, body, want) in [
            ("node is there", "//item", ORDER, true),
            ("node is not there", "//price", ORDER, false),
            ("attribute", "/order/@id = 7", ORDER, true),
            ("attribute of another value", "/order[@id = '8']", ORDER, false),
            ("text", "//item = 'milk'", ORDER, true),
            ("count", "count(/order/item) = 2", ORDER, true),
            ("order of the document", "/order/item[last()] = 'milk'", ORDER, true),
            ("parent of an attribute", "//@price/.. = 'tea'", ORDER, true),
            ("whole text", "string(/order) = 'teamilk'", ORDER, true),
            ("a name without its namespace", "//note", ORDER, false),
            ("local name", "//*[local-name() = 'note']", ORDER, true),
            ("an unknown prefix", "//y:note", ORDER, false),
            ("no XML", "//item", "tea, milk", false),
            ("no body", "true()", "", false),
            ("a document type", "true()", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", false),
            ("deep", "//a/a/a", &deep, true),
            ("deep, with its text", "string(/a) = ''", &deep, true),
        ] {
            let xpath = XPath::parse(path).expect("legal");
            assert_eq!(xpath.matches(Some(body)), want, "case: {case}");
        }
        assert!(!XPath::parse("true()").expect("legal").matches(None));
    }

    #[test]
    fn a_path_that_costs_too_much_does_not_match() {
        let wide = format!("<a>{}</a>", "<b/>".repeat(5_000));
        let costly = XPath::parse("count(//*[count(//*) > 1]) > 1").expect("legal");
        assert!(!costly.matches(Some(&wide)));
        assert!(costly.matches(Some("<a><b/><b/></a>")));
    }

    #[test]
    fn what_is_no_path_is_refused_with_its_place() {
        assert!(matches!(XPath::parse("//item["), Err(Reason::BadXPath { .. })));
        let too_large = Err(Reason::XPathTooLarge { bytes_max: TEXT_BYTES_MAX, levels_max: LEVELS_MAX });
        for (case, text) in [
            ("long", "a/".repeat(3_000)),
            ("nested", "(".repeat(17)),
            ("signs", format!("{}1", "-".repeat(17))),
        ] {
            assert_eq!(XPath::parse(&text), too_large, "case: {case}");
        }
        let deepest = format!("{}1{}", "(".repeat(16), ")".repeat(16));
        assert!(XPath::parse(&deepest).is_ok());
    }
}
