//! The text form of a module: printed, parsed, and the language of file tests.
//!
//! ```text
//! opset "" 21
//! symbol N 1..8 opt 4
//! graph main(%x: f32[N x 3 x 4]) {
//!   const %shape: i64[2] = [0, -1]
//!   %flat = Reshape-21(%x, %shape) : f32[N x 12]
//!   %y, _ = TopK-11(%flat, %k) @top {axis=1, largest=1} : f32[N x 5], ?
//!   %z = If-21(%go) {then_branch=graph yes() captures(%y: f32[N x 5] = %y) {
//!     return %y
//!   }, else_branch=graph no() {
//!     const %c: f32[1] = splat(0.5)
//!     return %c
//!   }} : f32[..]
//!   return %z
//! }
//! ```
//!
//! * `%name` is a value, `_` an absent input or output. A node is named after its first output, or by `@name`.
//! * `Op-13` is an operator and its since-version; other domains stand before it: `com.microsoft.Gelu-1`.
//! * Attributes: `3`, `0.5`, `"text"`, `[1, 2]`, `[0.5]`, `["a"]` (empty: `ints[]`, `floats[]`, `strs[]`),
//!   `tensor(i64[1] = [3])`, `tensors(…)`, `type(f32[N])`, `graph …`, `graphs(…)`, `opaque("…")`.
//! * Constants: `[1, 2]` in row-major order, `splat(0)`, `hex"00ff"` (packed bytes), or `hash"…"` for one too large to
//!   print: its bytes are not in the text, so such a text is read only with [`parse_with`].
//! * `elements(N, 3)` after a type are the known elements of a small integer value.
//! * Names that are not plain words are quoted: `%"a b"`. `//` starts a comment.

mod lex;
mod literal;
mod parse;
mod print;
mod terms;

use crate::{diag::Diag, graph::Module};
use bytes::Bytes;

pub use print::Style;

/// The module as text; constants of more than 16 elements as their hash, unless all elements are alike.
pub fn print(module: &Module) -> String {
    print::print(module, &Style::default())
}

/// The module as text in a style.
pub fn print_as(module: &Module, style: &Style) -> String {
    print::print(module, style)
}

/// Where and why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub why: String,
}

/// Reads a module. Values without a type have an unknown one; the verifier is not run.
///
/// # Errors
/// The first place that does not follow the grammar, or a constant that stands as its hash.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    parse_with(text, &|_| None)
}

/// Reads a module whose large constants stand as hashes; `bytes` finds their packed bytes by the hash.
///
/// # Errors
/// As [`parse`], and bytes of another size than the type needs.
pub fn parse_with(text: &str, bytes: &dyn Fn(&str) -> Option<Bytes>) -> Result<Module, ParseError> {
    parse::parse(text, bytes)
}

impl From<ParseError> for Diag {
    fn from(error: ParseError) -> Diag {
        Diag::invalid(error.to_string())
    }
}

/// Whether a name stands without quotes: letters, digits, `_`, `.`, `/`, `-`.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "_" && name.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-')
}

/// Whether a word stands without quotes where arithmetic and keywords do: a letter, then letters, digits, `_`.
fn is_word(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !matches!(name, "x" | "floordiv" | "mod" | "max" | "min")
}

#[cfg(test)]
mod tests;
