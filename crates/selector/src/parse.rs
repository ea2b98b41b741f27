//! Recursive descent over the tokens, in the grammar of ActiveMQ but for NOT:
//!
//! ```text
//! or         = and { OR and }
//! and        = not { AND not }
//! not        = NOT not | equality
//! equality   = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
//! comparison = sum { ("<" | "<=" | ">" | ">=") sum | [NOT] LIKE string [ESCAPE string]
//!                  | [NOT] BETWEEN sum AND sum | [NOT] IN "(" string { "," string } ")" }
//! sum        = product { ("+" | "-") product }
//! product    = unary { ("*" | "/" | "%") unary }
//! unary      = ("+" | "-" | NOT) unary | literal | name | XPATH string | "(" or ")"
//! ```

use crate::error::{Found, Reason, SelectorError};
use crate::expression::{Arithmetic, Comparison, Double, Expression, Literal, Program, Property};
use crate::like::Pattern;
use crate::token::{self, Keyword, Placed, Token};
use crate::xpath::XPath;

/// Levels of a condition, parentheses and signs included: more than people write by hand. A debug
/// build needs some 12 KiB of stack for each, so that all of them fit the 2 MiB of a thread.
pub(crate) const NESTING_MAX: usize = 100;

/// A selector costs its length for every message; the longest ones known, lists of keys after IN,
/// have a tenth of this.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;

const XPATH: &str = "XPATH";
const XQUERY: &str = "XQUERY";

const CONVERTS: &str = "convert_string_expressions:";
const CONVERTS_NOT: &str = "no_convert_string_expressions:";

const A_VALUE: &str = "a property, a literal or `(`";
const A_CONDITION: &str = "a condition, which is true or false";
const A_STRING: &str = "a string in quotes";

pub(crate) fn parse(text: &str) -> Result<Program, SelectorError> {
    if TEXT_BYTES_MAX < text.len() {
        let reason = Reason::TooLong { got_bytes: text.len(), max_bytes: TEXT_BYTES_MAX };
        return Err(SelectorError { position: 0, reason });
    }
    let converts = text.starts_with(CONVERTS);
    let start = [CONVERTS, CONVERTS_NOT].iter().find(|prefix| text.starts_with(**prefix));
    let tokens = token::tokens(text, start.map_or(0, |prefix| prefix.len()))?;
    let mut parser = Parser { text, converts, tokens, at: 0, nesting: 0 };
    let root = parser.or()?;
    if parser.peek() != &Token::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    let root = parser.condition(root)?;
    Ok(Program::new(root, converts))
}

struct Parser<'t> {
    text: &'t str,
    converts: bool,
    tokens: Vec<Placed<'t>>,
    /// Index of the next token.
    at: usize,
    nesting: usize,
}

/// A parsed part: its first token names it in errors.
struct Part {
    expression: Expression,
    first: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn or(&mut self) -> Result<Part, SelectorError> {
        let left = self.and()?;
        self.joined(left, Keyword::Or, Parser::and, Expression::or)
    }

    fn and(&mut self) -> Result<Part, SelectorError> {
        let left = self.not()?;
        self.joined(left, Keyword::And, Parser::not, Expression::and)
    }

    fn joined(
        &mut self,
        left: Part,
        keyword: Keyword,
        operand: fn(&mut Self) -> Result<Part, SelectorError>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Part, SelectorError> {
        if self.peek() != &Token::Keyword(keyword) {
            return Ok(left);
        }
        let (first, mut depth) = (left.first, left.depth);
        let mut parts = vec![self.condition(left)?];
        while self.take_keyword(keyword) {
            let right = operand(self)?;
            depth = depth.max(right.depth);
            parts.push(self.condition(right)?);
        }
        self.part(join(parts), first, depth)
    }

    fn not(&mut self) -> Result<Part, SelectorError> {
        let first = self.at;
        if !self.take_keyword(Keyword::Not) {
            return self.equality();
        }
        let inner = self.nested(Parser::not)?;
        self.negation(inner, first)
    }

    fn negation(&mut self, inner: Part, first: usize) -> Result<Part, SelectorError> {
        let depth = inner.depth;
        let condition = self.condition(inner)?;
        self.part(condition.negated(), first, depth)
    }

    fn equality(&mut self) -> Result<Part, SelectorError> {
        let mut left = self.comparison()?;
        loop {
            let comparison = match self.peek() {
                Token::Symbol("=") => Comparison::Equal,
                Token::Symbol("<>") => Comparison::NotEqual,
                Token::Keyword(Keyword::Is) => {
                    left = self.is_null(left)?;
                    continue;
                }
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.comparison()?;
            self.check_equal_operands(&left, &right)?;
            left = self.compared(comparison, left, right)?;
        }
    }

    fn is_null(&mut self, left: Part) -> Result<Part, SelectorError> {
        self.at += 1;
        let not = self.take_keyword(Keyword::Not);
        if !self.take_keyword(Keyword::Null) {
            return Err(self.unexpected(if not { "NULL" } else { "NULL or NOT NULL" }));
        }
        let (first, depth) = (left.first, left.depth);
        let is_null = Expression::IsNull(Box::new(left.expression)).folded(self.converts);
        self.part(if not { is_null.negated() } else { is_null }, first, depth)
    }

    fn comparison(&mut self) -> Result<Part, SelectorError> {
        let mut left = self.sum()?;
        loop {
            let comparison = match self.peek() {
                Token::Symbol("<") => Comparison::Less,
                Token::Symbol("<=") => Comparison::LessOrEqual,
                Token::Symbol(">") => Comparison::Greater,
                Token::Symbol(">=") => Comparison::GreaterOrEqual,
                Token::Keyword(Keyword::Not | Keyword::Like | Keyword::Between | Keyword::In) => {
                    left = self.predicate(left)?;
                    continue;
                }
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.sum()?;
            self.check_ordered(&left)?;
            self.check_ordered(&right)?;
            left = self.compared(comparison, left, right)?;
        }
    }

    /// `[NOT] LIKE`, `[NOT] BETWEEN` and `[NOT] IN`.
    fn predicate(&mut self, left: Part) -> Result<Part, SelectorError> {
        let not = self.take_keyword(Keyword::Not);
        let (first, depth) = (left.first, left.depth);
        let expression = if self.take_keyword(Keyword::Like) {
            self.like(left)?
        } else if self.take_keyword(Keyword::Between) {
            return self.between(left, not);
        } else if self.take_keyword(Keyword::In) {
            self.membership(left)?
        } else {
            return Err(self.unexpected("LIKE, BETWEEN or IN"));
        };
        self.part(if not { expression.negated() } else { expression }, first, depth)
    }

    fn like(&mut self, left: Part) -> Result<Expression, SelectorError> {
        let pattern = self.string()?;
        let mut escape = None;
        if self.take_keyword(Keyword::Escape) {
            let at = self.at;
            let text = self.string()?;
            let mut characters = text.chars();
            escape = characters.next();
            if escape.is_none() || characters.next().is_some() {
                let reason = Reason::EscapeNotOneCharacter { count: text.chars().count() };
                return Err(self.error(at, reason));
            }
        }
        let pattern = Pattern::new(&pattern, escape);
        Ok(Expression::Like(Box::new(left.expression), pattern).folded(self.converts))
    }

    fn between(&mut self, value: Part, not: bool) -> Result<Part, SelectorError> {
        let low = self.sum()?;
        if !self.take_keyword(Keyword::And) {
            return Err(self.unexpected("AND and the upper bound"));
        }
        let high = self.sum()?;
        for part in [&value, &low, &high] {
            self.check_ordered(part)?;
        }
        let depth = value.depth.max(low.depth).max(high.depth);
        let parts = Box::new([value.expression, low.expression, high.expression]);
        let between = if not { Expression::NotBetween(parts) } else { Expression::Between(parts) };
        self.part(between.folded(self.converts), value.first, depth)
    }

    fn membership(&mut self, left: Part) -> Result<Expression, SelectorError> {
        let Expression::Property(property) = left.expression else {
            return Err(self.wrong_operand(left.first, "a property before IN"));
        };
        self.symbol("(", "`(` and a list of strings")?;
        let mut members = vec![self.string()?.into_boxed_str()];
        while self.take_symbol(",") {
            members.push(self.string()?.into_boxed_str());
        }
        self.symbol(")", "`,` or `)`")?;
        members.sort_unstable();
        members.dedup();
        Ok(Expression::In(property, members.into()))
    }

    fn sum(&mut self) -> Result<Part, SelectorError> {
        let mut left = self.product()?;
        loop {
            let operation = match self.peek() {
                Token::Symbol("+") => Arithmetic::Add,
                Token::Symbol("-") => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.product()?;
            left = self.calculated(operation, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Part, SelectorError> {
        let mut left = self.unary()?;
        loop {
            let operation = match self.peek() {
                Token::Symbol("*") => Arithmetic::Multiply,
                Token::Symbol("/") => Arithmetic::Divide,
                Token::Symbol("%") => Arithmetic::Remainder,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.unary()?;
            left = self.calculated(operation, left, right)?;
        }
    }

    fn unary(&mut self) -> Result<Part, SelectorError> {
        let first = self.at;
        match self.peek() {
            Token::Symbol("-") if self.tokens[first + 1].token == Token::LongMinMagnitude => {
                self.at += 2;
                self.part(Expression::Literal(Literal::Long(i64::MIN)), first, 0)
            }
            Token::Symbol(sign @ ("+" | "-")) => {
                let minus = *sign == "-";
                self.at += 1;
                let inner = self.nested(Parser::unary)?;
                self.check_number(&inner)?;
                let Part { expression, depth, .. } = inner;
                self.part(if minus { expression.minus() } else { expression }, first, depth)
            }
            Token::Keyword(Keyword::Not) => {
                self.at += 1;
                let inner = self.nested(Parser::unary)?;
                self.negation(inner, first)
            }
            Token::Symbol("(") => {
                self.at += 1;
                let inner = self.nested(Parser::or)?;
                self.symbol(")", "an operator or `)`")?;
                Ok(inner)
            }
            _ => self.leaf(),
        }
    }

    fn leaf(&mut self) -> Result<Part, SelectorError> {
        let first = self.at;
        let expression = match &self.tokens[first].token {
            Token::Name(name) if name.eq_ignore_ascii_case(XPATH) && self.is_string(first + 1) => {
                return self.xpath(first);
            }
            Token::Name(name) => {
                self.check_no_function(first, name)?;
                Expression::Property(Property { name: (*name).into(), cell: None })
            }
            Token::String(text) => Expression::Literal(Literal::String(text.as_str().into())),
            Token::Long(value) => Expression::Literal(Literal::Long(*value)),
            Token::Double(value) => Expression::Literal(Literal::Double(Double(*value))),
            Token::Keyword(Keyword::True) => Expression::Literal(Literal::Boolean(true)),
            Token::Keyword(Keyword::False) => Expression::Literal(Literal::Boolean(false)),
            Token::Keyword(Keyword::Null) => Expression::Literal(Literal::Null),
            Token::LongMinMagnitude => return Err(self.error(first, Reason::NumberOutOfRange)),
            _ => return Err(self.unexpected(A_VALUE)),
        };
        self.at += 1;
        self.part(expression, first, 0)
    }

    /// `XPATH 'path'`; a name that is not followed by a string is a property, whatever it is.
    fn xpath(&mut self, first: usize) -> Result<Part, SelectorError> {
        let Token::String(path) = &self.tokens[first + 1].token else {
            return Err(self.unexpected(A_STRING));
        };
        let xpath = XPath::parse(path).map_err(|reason| self.error(first + 1, reason))?;
        self.at += 2;
        self.part(Expression::XPath(xpath), first, 0)
    }

    fn is_string(&self, token: usize) -> bool {
        matches!(self.tokens[token].token, Token::String(_))
    }

    /// `XQUERY 'query'` and `NAME(…)`: ActiveMQ has them, this room does not.
    fn check_no_function(&self, first: usize, name: &str) -> Result<(), SelectorError> {
        let query = XQUERY.eq_ignore_ascii_case(name);
        match &self.tokens[first + 1].token {
            Token::String(_) if query => {}
            Token::Symbol("(") => {}
            _ => return Ok(()),
        }
        Err(self.error(first, Reason::NotSupported { what: Found::new(name) }))
    }

    fn compared(&self, comparison: Comparison, left: Part, right: Part) -> Result<Part, SelectorError> {
        let depth = left.depth.max(right.depth);
        let sides = Box::new([left.expression, right.expression]);
        self.part(Expression::Compare(comparison, sides).folded(self.converts), left.first, depth)
    }

    fn calculated(&self, operation: Arithmetic, left: Part, right: Part) -> Result<Part, SelectorError> {
        for part in [&left, &right] {
            let text = matches!(part.expression, Expression::Literal(Literal::String(_)));
            if operation != Arithmetic::Add || !text {
                self.check_number(part)?;
            }
        }
        let depth = left.depth.max(right.depth);
        let expression = Expression::arithmetic(operation, left.expression, right.expression);
        self.part(expression, left.first, depth)
    }

    /// As a condition: a property alone is one, if it is a boolean.
    fn condition(&self, part: Part) -> Result<Expression, SelectorError> {
        match part.expression {
            Expression::Property(property) => Ok(Expression::Truth(property)),
            expression if expression.is_condition() => Ok(expression),
            _ => Err(self.wrong_operand(part.first, A_CONDITION)),
        }
    }

    fn check_equal_operands(&self, left: &Part, right: &Part) -> Result<(), SelectorError> {
        for part in [left, right] {
            if part.expression == Expression::Literal(Literal::Null) {
                return Err(self.wrong_operand(part.first, "a value; NULL is compared by IS NULL"));
            }
        }
        if let (Expression::Literal(one), Expression::Literal(other)) = (&left.expression, &right.expression)
            && matches!(one, Literal::Boolean(_)) != matches!(other, Literal::Boolean(_))
        {
            return Err(self.wrong_operand(right.first, "a literal of the same type"));
        }
        Ok(())
    }

    /// Strings and booleans have no order (JMS 3.8.1.1).
    fn check_ordered(&self, part: &Part) -> Result<(), SelectorError> {
        self.check_number(part)
    }

    fn check_number(&self, part: &Part) -> Result<(), SelectorError> {
        let text = matches!(part.expression, Expression::Literal(Literal::String(_)));
        if text || part.expression.is_condition() {
            return Err(self.wrong_operand(part.first, "a number"));
        }
        Ok(())
    }

    fn part(&self, expression: Expression, first: usize, depth: usize) -> Result<Part, SelectorError> {
        if NESTING_MAX <= depth {
            return Err(self.error(first, Reason::TooDeep { max: NESTING_MAX }));
        }
        Ok(Part { expression, first, depth: depth + 1 })
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Part, SelectorError>) -> Result<Part, SelectorError> {
        if NESTING_MAX <= self.nesting {
            return Err(self.error(self.at, Reason::TooDeep { max: NESTING_MAX }));
        }
        self.nesting += 1;
        let part = inner(self)?;
        self.nesting -= 1;
        Ok(part)
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        let Token::String(text) = &mut self.tokens[self.at].token else {
            return Err(self.unexpected(A_STRING));
        };
        let text = std::mem::take(text);
        self.at += 1;
        Ok(text)
    }

    fn symbol(&mut self, symbol: &'static str, expected: &'static str) -> Result<(), SelectorError> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn take_symbol(&mut self, symbol: &'static str) -> bool {
        self.take(&Token::Symbol(symbol))
    }

    fn take_keyword(&mut self, keyword: Keyword) -> bool {
        self.take(&Token::Keyword(keyword))
    }

    fn take(&mut self, wanted: &Token<'_>) -> bool {
        let taken = self.peek() == wanted;
        self.at += usize::from(taken);
        taken
    }

    fn peek(&self) -> &Token<'t> {
        &self.tokens[self.at].token
    }

    fn unexpected(&self, expected: &'static str) -> SelectorError {
        self.wrong_operand(self.at, expected)
    }

    fn wrong_operand(&self, token: usize, expected: &'static str) -> SelectorError {
        let found = token::found(self.text, &self.tokens[token]);
        self.error(token, Reason::Unexpected { found, expected })
    }

    fn error(&self, token: usize, reason: Reason) -> SelectorError {
        token::error_at(self.text, self.tokens[token].start, reason)
    }
}
