//! The operator table, for `trtc ops` and the documentation.

use crate::{Registry, ctx::check};
use std::{collections::BTreeMap, fmt::Write};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::Code;

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Domain; empty for ai.onnx.
    pub domain: &'static str,
    /// Operator type.
    pub op: &'static str,
    /// Canonical schema version.
    pub since: u32,
    /// Dtypes of the main input that engines take; empty for an operator that only the host runs.
    pub dtypes: Vec<DType>,
    /// TensorRT layers that are emitted.
    pub layers: &'static str,
    /// Limits in one sentence.
    pub limits: &'static str,
    /// Codes with which a node is refused.
    pub refusals: &'static [Code],
    /// What the onnx package's plain cases of the operator say; `None` where it has none.
    pub conformance: Option<Conformance>,
}

/// Counts of cases, for `rtx-1.7:sm89`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conformance {
    /// Cases that use the operator.
    pub cases: u32,
    /// Of these, wholly in engines: built, and the layers right.
    pub in_engines: u32,
    /// Of these, right at all.
    pub right: u32,
}

/// As the last blessed run of all cases has them, by operator.
const CONFORMANCE: &str = include_str!("conformance.tsv");

fn conformance() -> BTreeMap<&'static str, Conformance> {
    let line = |line: &'static str| {
        let mut fields = line.split('\t');
        let op = fields.next()?;
        let mut number = || fields.next()?.parse().ok();
        Some((op, Conformance { cases: number()?, in_engines: number()?, right: number()? }))
    };
    CONFORMANCE.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect()
}

impl Row {
    /// The operator with its domain: `Conv`, `com.microsoft.Gelu`.
    pub fn name(&self) -> String {
        if self.domain.is_empty() { self.op.to_owned() } else { format!("{}.{}", self.domain, self.op) }
    }

    /// The counts, short: `12 of 14`.
    pub fn conformance_text(&self) -> String {
        match self.conformance {
            Some(Conformance { cases, in_engines, .. }) => format!("{in_engines} of {cases}"),
            None => String::new(),
        }
    }

    /// The dtypes, short: `f32 f16`.
    pub fn dtype_names(&self) -> String {
        self.dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" ")
    }
}

/// Every operator by domain and name. With a target, only the dtypes that each of its compute capabilities has.
pub fn rows(target: Option<&Target>) -> Vec<Row> {
    let fits = |dtype: DType| match target {
        None => true,
        Some(target) if target.product() == Product::Host => false,
        Some(target) => check::dtype_gate(dtype, "", &[dtype], target).is_ok(),
    };
    let counts = conformance();
    let mut rows: Vec<Row> = Registry::get()
        .defs()
        .into_iter()
        .flat_map(|def| def.keys.iter().map(move |key| (def, key)))
        .map(|(def, key)| Row {
            domain: key.domain,
            op: key.op,
            since: key.since,
            dtypes: def.dtypes.iter().copied().filter(|&dtype| fits(dtype)).collect(),
            layers: def.layers,
            limits: def.limits,
            refusals: def.refusals,
            conformance: None,
        })
        .map(|row| Row { conformance: counts.get(&*row.name()).copied(), ..row })
        .collect();
    rows.sort_by_key(|row| (row.domain, row.op));
    rows
}

/// The table in Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| operator | since | dtypes in engines | layers | limits | cases in engines |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let dtypes = if row.dtypes.is_empty() { "host only".to_owned() } else { row.dtype_names() };
        let cell = |text: &str| text.replace('|', "\\|");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {dtypes} | {} | {} | {} |",
            row.name(),
            row.since,
            cell(row.layers),
            cell(row.limits),
            row.conformance_text()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{markdown, rows};
    use trtc_bundle::{DType, Target};

    #[test]
    fn a_target_narrows_the_dtypes() {
        let all = rows(None);
        assert!(all.windows(2).all(|pair| (pair[0].domain, pair[0].op) < (pair[1].domain, pair[1].op)));
        let with = |text: &str| rows(Some(&text.parse::<Target>().unwrap()));
        let bf16 = |rows: &[super::Row]| rows.iter().filter(|row| row.dtypes.contains(&DType::Bf16)).count();
        assert!(bf16(&all) > 0);
        assert_eq!(bf16(&with("rtx-1.7:sm75,sm89")), 0);
        assert_eq!(bf16(&with("rtx-1.7:sm89")), bf16(&all));
        assert!(with("host").iter().all(|row| row.dtypes.is_empty()));
        assert_eq!(markdown(&all).lines().count(), all.len() + 2);
    }
}
