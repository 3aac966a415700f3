//! `trtc ops`: the operators that engines take.

use super::{
    args::{OpsArgs, OpsFormat},
    failure::Result,
    out::Out,
};
use serde_json::json;
use trtc_converters::table::{self, Row};

pub fn run(args: &OpsArgs) -> Result<()> {
    let rows = table::rows(args.target.as_ref());
    let mut out = Out::stdout();
    match args.format {
        OpsFormat::Md => out.text(&table::markdown(&rows))?,
        OpsFormat::Json => out.json(&rows.iter().map(as_json).collect::<Vec<_>>())?,
        OpsFormat::Text => text(&rows, &mut out)?,
    }
    out.finish()
}

fn as_json(row: &Row) -> serde_json::Value {
    json!({
        "domain": row.domain,
        "op": row.op,
        "since": row.since,
        "dtypes": row.dtypes,
        "layers": row.layers,
        "limits": row.limits,
        "conformance": row.conformance.map(|counts| json!({
            "cases": counts.cases,
            "in_engines": counts.in_engines,
            "right": counts.right,
        })),
        "refusals": row.refusals.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn text(rows: &[Row], out: &mut Out) -> Result<()> {
    let width = |cell: fn(&Row) -> String| rows.iter().map(|row| cell(row).len()).max().unwrap_or(0);
    let dtypes = |row: &Row| if row.dtypes.is_empty() { "host only".to_owned() } else { row.dtype_names() };
    let (names, kinds, counts) = (width(Row::name), width(dtypes), width(Row::conformance_text));
    for row in rows {
        let (name, dtypes, cases) = (row.name(), dtypes(row), row.conformance_text());
        let (since, limits) = (row.since, row.limits);
        out.line(format_args!("{name:<names$} {since:>3}  {dtypes:<kinds$}  {cases:>counts$}  {limits}"))?;
    }
    Ok(())
}
