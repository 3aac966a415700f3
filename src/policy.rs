//! What may stay on the host under `--strict`: a policy file.
//!
//! ```toml
//! [policy]
//! max_host_nodes = 4                  # of one target
//! max_boundary_bytes = 1_000_000      # of one target
//! deny_host = ["Conv", "MatMul"]      # never on the host, unless an entry below names the node
//! allow = [
//!     { op = "NonZero", reason = "no kernel on RTX before 1.8" },
//!     { node = "/head/*", code = "E04*", reason = "post-processing" },
//! ]
//! ```
//!
//! Every key may be left out. Without `allow`, any host node is allowed within the other limits; with it (an empty list
//! too), only nodes for which all conditions of an entry hold. `*` stands for any text. Nodes that are on the host for
//! cost only (E0901) follow from the others and need no entry. Without a policy nothing may be on the host.

use crate::{Error, ErrorKind};
use serde::Deserialize;
use std::path::Path;
use trtc_partitioner::{NodeRow, PlacementName, Report, TargetReport};

/// A policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    max_host_nodes: Option<usize>,
    max_boundary_bytes: Option<u64>,
    #[serde(default)]
    deny_host: Vec<String>,
    allow: Option<Vec<Entry>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    op: Option<String>,
    node: Option<String>,
    code: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Policy,
}

/// Nodes that a message names; the report has all.
const NAMED: usize = 5;

impl Policy {
    /// Nothing may be on the host.
    pub fn nothing() -> Policy {
        Policy { allow: Some(Vec::new()), ..Policy::default() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Policy, Error> {
        let refuse = |why: String| {
            Error::input(format!("{}: {why}", path.display()))
                .help("docs/partitioning.md describes policy files")
        };
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        Policy::parse(&text).map_err(refuse)
    }

    fn parse(text: &str) -> Result<Policy, String> {
        let File { policy } = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].lines().count().max(1));
            let message = error.message().replace('\n', " ");
            line.map_or(message.clone(), |line| format!("line {line}: {message}"))
        })?;
        for entry in policy.allow.iter().flatten() {
            if entry.op.is_none() && entry.node.is_none() && entry.code.is_none() {
                return Err("an entry of `allow` needs `op`, `node` or `code`".to_owned());
            }
            if entry.reason.trim().is_empty() {
                return Err("an entry of `allow` needs a `reason`".to_owned());
            }
        }
        Ok(policy)
    }

    /// What breaks the policy, a line each; empty when nothing does.
    fn broken(&self, report: &TargetReport) -> Vec<String> {
        let host: Vec<&NodeRow> =
            report.nodes.iter().filter(|row| row.placement == PlacementName::Host).collect();
        let mut broken = Vec::new();
        let denied = |row: &&&NodeRow| {
            let by_name = self.allow.iter().flatten().any(|entry| entry.node.is_some() && entry.fits(row));
            self.deny_host.iter().any(|op| fits(op, &row.op)) && !by_name
        };
        broken.extend(named("the policy denies the host to", host.iter().filter(denied).copied()));
        if let Some(allow) = &self.allow {
            let unlisted = |row: &&&NodeRow| {
                row.code.as_deref() != Some("E0901")
                    && !denied(row)
                    && !allow.iter().any(|entry| entry.fits(row))
            };
            broken.extend(named("on the host:", host.iter().filter(unlisted).copied()));
        }
        if let Some(max) = self.max_host_nodes.filter(|&max| host.len() > max) {
            broken.push(format!("{} nodes are on the host; the policy allows {max}", host.len()));
        }
        let bytes = report.totals.boundary_bytes;
        if let Some(max) = self.max_boundary_bytes.filter(|&max| bytes > max) {
            broken.push(format!("{bytes} bytes cross between segments; the policy allows {max}"));
        }
        broken
    }

    /// Checks all targets of a report.
    ///
    /// # Errors
    /// [`ErrorKind::Check`] with everything that breaks the policy.
    pub fn check(&self, report: &[TargetReport]) -> Result<(), Error> {
        let of = |target: &TargetReport| {
            let name = target.target.to_string();
            self.broken(target).into_iter().map(move |line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        let lines: Vec<String> = report.iter().flat_map(of).collect();
        match lines.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Check, format!("strict: {}", lines.join("; ")))
                .help("--policy FILE says what may be on the host")),
        }
    }
}

impl Entry {
    fn fits(&self, row: &NodeRow) -> bool {
        let holds = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|p| fits(p, text));
        holds(&self.op, &row.op)
            && holds(&self.node, &row.name)
            && holds(&self.code, row.code.as_deref().unwrap_or_default())
    }
}

/// Checks a report against the policy file, or against none: nothing may be on the host then.
///
/// # Errors
/// [`ErrorKind::Input`] for a file that is no policy; [`ErrorKind::Check`] for a report that breaks it.
pub fn check_policy(report: &Report, policy: Option<&Path>) -> Result<(), Error> {
    policy.map_or_else(|| Ok(Policy::nothing()), Policy::read)?.check(&report.targets)
}

fn named<'a>(what: &str, rows: impl Iterator<Item = &'a NodeRow>) -> Option<String> {
    let rows: Vec<&NodeRow> = rows.collect();
    let first = rows.first()?;
    let names: Vec<String> =
        rows.iter().take(NAMED).map(|row| format!("`{}` ({})", row.name, row.op)).collect();
    let more = rows.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let why = match (&first.code, &first.reason) {
        (Some(code), Some(reason)) => format!(" [{code}: {reason}]"),
        _ => String::new(),
    };
    Some(format!("{what} {}{more}{why}", names.join(", ")))
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
    use serde_json::json;
    use trtc_partitioner::TargetReport;

    /// A report of host nodes `(name, operator, code)`, of which 1,000 bytes cross.
    fn report(rows: &[(&str, &str, &str)]) -> TargetReport {
        let nodes: Vec<_> = rows
            .iter()
            .map(|(name, op, code)| {
                json!({"name": name, "op": op, "placement": "host", "segment": "host_0", "code": code, "reason": "why"})
            })
            .collect();
        let totals = json!({"nodes": rows.len(), "folded": 0, "removed": 0, "engine_nodes": 0, "host_nodes": rows.len(),
            "schedule_nodes": 0, "engines": 0, "host_segments": 1, "boundary_bytes": 1000, "boundary_casts": 0});
        let report = json!({"target": "rtx-1.7:sm86", "totals": totals, "segments": [], "nodes": nodes});
        serde_json::from_value(report).unwrap()
    }

    fn check(policy: &str, rows: &[(&str, &str, &str)]) -> Result<(), String> {
        Policy::parse(policy).unwrap().check(&[report(rows)]).map_err(|error| error.to_string())
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
    fn without_a_policy_nothing_is_allowed() {
        assert!(Policy::nothing().check(&[report(&[])]).is_ok());
        let error = Policy::nothing().check(&[report(&[("a", "NonZero", "E0502")])]).unwrap_err().to_string();
        assert!(error.contains("`a` (NonZero) [E0502: why]") && error.contains("rtx-1.7:sm86"), "{error}");
    }

    #[test]
    fn an_entry_holds_when_all_its_conditions_do() {
        let policy = "[policy]\nallow = [{ op = \"NonZero\", reason = \"ours\" },\n\
                      { node = \"/head/*\", code = \"E04*\", reason = \"tail\" }]";
        assert!(check(policy, &[("a", "NonZero", "E0003"), ("/head/x", "Gather", "E0401")]).is_ok());
        assert!(check(policy, &[("/head/x", "Gather", "E0301")]).unwrap_err().contains("/head/x"));
        assert!(check(policy, &[("/body/x", "Gather", "E0401")]).is_err());
        // Placement by cost follows from the others.
        assert!(check(policy, &[("r", "Reshape", "E0901")]).is_ok());
    }

    #[test]
    fn limits_are_kept_without_a_list() {
        let rows = [("a", "NonZero", "E0502"), ("r", "Reshape", "E0901")];
        assert!(check("[policy]\nmax_host_nodes = 2\nmax_boundary_bytes = 1000", &rows).is_ok());
        assert!(check("[policy]\nmax_host_nodes = 1", &rows).unwrap_err().contains("2 nodes"));
        assert!(check("[policy]\nmax_boundary_bytes = 999", &rows).unwrap_err().contains("1000 bytes"));
    }

    #[test]
    fn denied_operators_need_an_entry_with_their_name() {
        let rows = [("/neck/Conv_3", "Conv", "E0201")];
        assert!(check("[policy]\ndeny_host = [\"Conv\"]", &rows).unwrap_err().contains("denies"));
        let by_op = "[policy]\ndeny_host = [\"Conv\"]\nallow = [{ op = \"Conv\", reason = \"r\" }]";
        assert!(check(by_op, &rows).is_err());
        let by_name =
            "[policy]\ndeny_host = [\"Conv\"]\nallow = [{ node = \"/neck/Conv_3\", reason = \"r\" }]";
        assert!(check(by_name, &rows).is_ok());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let error = |text: &str| Policy::parse(text).unwrap_err();
        assert!(error("[policy]\nmax_nodes = 1").contains("max_nodes"));
        assert!(error("[policy]\n\nmax_host_nodes = -1").starts_with("line 3"));
        assert!(error("max_host_nodes = 1").contains("max_host_nodes"));
        assert!(error("[policy]\nallow = [{ op = \"Conv\" }]").contains("reason"));
        assert!(error("[policy]\nallow = [{ reason = \"because\" }]").contains("`op`, `node` or `code`"));
        assert!(error("op Conv").starts_with("line 1"));
    }
}
