//! `docs/cli.md` says what `--help` says.

use crate::support::trtc;
use std::path::Path;

const MARK: &str =
    "<!-- From here on generated from `--help`: TRTC_BLESS=1 cargo test -p trtc --test cli docs -->\n";
const COMMANDS: &[&str] =
    &["compile", "partition", "run", "verify", "bench", "diff", "inspect", "build", "ops", "doctor"];

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (prose, _) = page.split_once(MARK).expect("the mark");
    let mut now = format!("{prose}{MARK}");
    for command in COMMANDS {
        let help = trtc(&[command, "--help"]).code(0).stdout;
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        now.push_str(&format!("\n### {command}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    }
    if page != now && std::env::var_os("TRTC_BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    assert!(page == now, "docs/cli.md is stale: TRTC_BLESS=1 cargo test -p trtc --test cli docs");
}

#[test]
fn every_command_is_on_the_page() {
    let help = trtc(&["--help"]).code(0).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed: Vec<&str> = listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, COMMANDS);
}
