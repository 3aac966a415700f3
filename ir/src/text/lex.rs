//! Tokens.

use super::{ParseError, is_name_byte};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A word: keyword, operator, dtype, attribute name. Dots inside belong to it.
    Word(String),
    /// `%name` or `%"name"`.
    Value(String),
    /// `@name` or `@"name"`.
    Name(String),
    /// Bytes of a quoted string.
    Text(Vec<u8>),
    /// Digits without sign.
    Int(u64),
    /// A number with a point or an exponent, without sign.
    Float(String),
    /// `..`
    Dots,
    /// Anything else.
    Mark(char),
    /// The end of the text.
    End,
}

/// A token and where it starts.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub token: Token,
    pub line: usize,
    pub column: usize,
}

pub(super) fn lex(text: &str) -> Result<Vec<Spot>, ParseError> {
    let mut lexer = Lexer { bytes: text.as_bytes(), text, at: 0, line: 1, line_start: 0 };
    let mut spots = Vec::new();
    loop {
        lexer.skip();
        let (line, column) = lexer.place();
        let token = lexer.token()?;
        let is_end = token == Token::End;
        spots.push(Spot { token, line, column });
        if is_end {
            return Ok(spots);
        }
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn place(&self) -> (usize, usize) {
        let before = self.text.get(self.line_start..self.at).unwrap_or("");
        (self.line, before.chars().count() + 1)
    }

    fn fail<T>(&self, why: &str) -> Result<T, ParseError> {
        let (line, column) = self.place();
        Err(ParseError { line, column, why: why.to_owned() })
    }

    fn skip(&mut self) {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn run(&mut self, keep: impl Fn(u8) -> bool) -> String {
        let start = self.at;
        while self.at < self.bytes.len() && keep(self.peek(0)) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or("").to_owned()
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        match self.peek(0) {
            0 if self.at >= self.bytes.len() => Ok(Token::End),
            sigil @ (b'%' | b'@') => {
                self.at += 1;
                let name = if self.peek(0) == b'"' {
                    match String::from_utf8(self.quoted()?) {
                        Ok(name) => name,
                        Err(_) => return self.fail("a name has to be UTF-8"),
                    }
                } else {
                    self.run(is_name_byte)
                };
                Ok(if sigil == b'%' { Token::Value(name) } else { Token::Name(name) })
            }
            b'"' => self.quoted().map(Token::Text),
            b'.' if self.peek(1) == b'.' => {
                self.at += 2;
                Ok(Token::Dots)
            }
            b if b.is_ascii_digit() => self.number(),
            b if b.is_ascii_alphabetic() || b == b'_' => {
                let mut word = String::new();
                loop {
                    word += &self.run(|b| b.is_ascii_alphanumeric() || b == b'_');
                    // A single dot joins the parts of a domain; two are a range.
                    if self.peek(0) == b'.' && self.peek(1).is_ascii_alphanumeric() {
                        self.at += 1;
                        word.push('.');
                    } else {
                        return Ok(Token::Word(word));
                    }
                }
            }
            _ => match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
                Some(mark) => {
                    self.at += mark.len_utf8();
                    Ok(Token::Mark(mark))
                }
                None => self.fail("not UTF-8"),
            },
        }
    }

    fn number(&mut self) -> Result<Token, ParseError> {
        let mut digits = self.run(|b| b.is_ascii_digit());
        let mut is_float = false;
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            is_float = true;
            digits.push('.');
            digits += &self.run(|b| b.is_ascii_digit());
        }
        let sign = usize::from(matches!(self.peek(1), b'-' | b'+'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + sign).is_ascii_digit() {
            is_float = true;
            digits.push('e');
            self.at += 1;
            if sign == 1 {
                digits.push(char::from(self.peek(0)));
                self.at += 1;
            }
            digits += &self.run(|b| b.is_ascii_digit());
        }
        if is_float {
            return Ok(Token::Float(digits));
        }
        match digits.parse() {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) => self.fail("the number is too large"),
        }
    }

    fn quoted(&mut self) -> Result<Vec<u8>, ParseError> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.peek(0) {
                0 if self.at >= self.bytes.len() => return self.fail("the string does not end"),
                b'"' => {
                    self.at += 1;
                    return Ok(bytes);
                }
                b'\n' => return self.fail("the string does not end on its line"),
                b'\\' => {
                    let escape = self.peek(1);
                    self.at += 2;
                    match escape {
                        b'n' => bytes.push(b'\n'),
                        b'\\' | b'"' => bytes.push(escape),
                        b'x' => {
                            let digits = self.text.get(self.at..self.at + 2).unwrap_or("");
                            let Ok(byte) = u8::from_str_radix(digits, 16) else {
                                return self.fail("two hexadecimal digits are wanted after \\x");
                            };
                            bytes.push(byte);
                            self.at += 2;
                        }
                        _ => return self.fail("an unknown escape"),
                    }
                }
                byte => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}
