//! What `--strict` lets stay on the host: a file of rules.
//!
//! A line is a rule; `#` begins a comment. A rule is one or several conditions, each a word and a pattern in which `*`
//! stands for any text: `op` (operator), `node` (name with its path), `code` (of the refusal). A node may stay on the host
//! when all conditions of some rule hold:
//!
//! ```text
//! op NonZero
//! node /head/*  code E04*     # post-processing
//! ```

use crate::Error;
use std::path::Path;
use trtc_partitioner::NodeRow;

/// The rules of a policy file.
#[derive(Debug, Default)]
pub(crate) struct Policy(Vec<Vec<(Field, String)>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Op,
    Node,
    Code,
}

impl Policy {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Policy, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
        Policy::parse(&text).map_err(|(line, why)| {
            Error::input(format!("{}:{line}: {why}", path.display()))
                .help("a rule is `op PATTERN`, `node PATTERN`, `code PATTERN`, or several of them in a line")
        })
    }

    fn parse(text: &str) -> Result<Policy, (usize, String)> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |why: String| (number + 1, why);
            // A name may hold `#`; a comment begins a line or follows a blank.
            let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
            let words: Vec<&str> = words.collect();
            let mut rule = Vec::new();
            for pair in words.chunks(2) {
                let field = match pair[0] {
                    "op" => Field::Op,
                    "node" => Field::Node,
                    "code" => Field::Code,
                    other => return Err(fail(format!("`{other}` is no condition"))),
                };
                let Some(pattern) = pair.get(1) else {
                    return Err(fail(format!("`{}` has no pattern", pair[0])));
                };
                rule.push((field, (*pattern).to_owned()));
            }
            if !rule.is_empty() {
                rules.push(rule);
            }
        }
        Ok(Policy(rules))
    }

    /// Whether a host node may stay there.
    pub fn allows(&self, row: &NodeRow) -> bool {
        let holds = |(field, pattern): &(Field, String)| match field {
            Field::Op => fits(pattern, &row.op),
            Field::Node => fits(pattern, &row.name),
            Field::Code => row.code.as_deref().is_some_and(|code| fits(pattern, code)),
        };
        self.0.iter().any(|rule| rule.iter().all(holds))
    }
}

/// Whether `text` is the pattern, `*` standing for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{Policy, fits};
    use trtc_partitioner::{NodeRow, PlacementName};

    fn row(name: &str, op: &str, code: &str) -> NodeRow {
        NodeRow {
            name: name.into(),
            op: op.into(),
            placement: PlacementName::Host,
            segment: None,
            code: Some(code.into()),
            reason: None,
            help: None,
            host_ns: None,
        }
    }

    #[test]
    fn patterns_fit_whole_texts() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("ab*ba", "aba", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_holds_when_all_its_conditions_do() {
        let policy =
            Policy::parse("# host operators\nop NonZero\n\nnode /head/* code E04*  # tail\n").unwrap();
        assert!(policy.allows(&row("a", "NonZero", "E0003")));
        assert!(policy.allows(&row("/head/x#1", "Gather", "E0401")));
        assert!(!policy.allows(&row("/head/x", "Gather", "E0301")));
        assert!(!policy.allows(&row("/body/x", "Gather", "E0401")));
        assert!(!Policy::default().allows(&row("a", "NonZero", "E0003")));
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(
            Policy::parse("op A\noperator B").unwrap_err(),
            (2, "`operator` is no condition".to_owned())
        );
        assert_eq!(Policy::parse("op").unwrap_err().1, "`op` has no pattern");
    }
}
