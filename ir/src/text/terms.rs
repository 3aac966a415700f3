//! Parsing of symbols, dims, types and constants.

use super::{
    lex::Token,
    literal::{from_hex, from_numbers, from_splat},
    parse::{Out, Parser},
};
use crate::{
    dim::{Dim, Interval, Symbol},
    tensor::{Tensor, element_count},
    types::{TensorType, Type},
};
use bytes::Bytes;
use trtc_bundle::DType;

/// Deepest nesting of dims, types and graphs that is read: each takes stack.
const MAX_DEPTH: usize = 96;

impl Parser<'_> {
    pub(super) fn declare_symbol(&mut self) -> Out<()> {
        self.next();
        let name = self.word_or_string()?;
        let symbol = self.symbols.named(&name);
        let is_int = |parser: &Self| matches!(parser.peek(), Token::Int(_)) || parser.is_mark('-');
        let min = if is_int(self) { Some(self.int()?) } else { None };
        if self.next() != Token::Dots {
            return self.back("`..` is wanted");
        }
        let max = if is_int(self) { Some(self.int()?) } else { None };
        self.symbols.set_range(symbol, Interval { min, max });
        if self.eat_word("opt") {
            let opt = self.int()?;
            self.symbols.set_opt(symbol, opt);
        }
        if self.eat_word("unbacked") {
            self.symbols.set_unbacked(symbol);
        }
        Ok(())
    }

    pub(super) fn dim(&mut self) -> Out<Dim> {
        if self.eat('?') {
            return Ok(Dim::Unknown);
        }
        let mut sum = if self.eat('-') { Dim::Known(0).sub(&self.product()?) } else { self.product()? };
        loop {
            if self.eat('+') {
                sum = sum.add(&self.product()?);
            } else if self.eat('-') {
                sum = sum.sub(&self.product()?);
            } else {
                return Ok(sum);
            }
        }
    }

    /// Reads something that may hold its like.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Out<T>) -> Out<T> {
        if self.depth == MAX_DEPTH {
            return self.fail(format!("nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn product(&mut self) -> Out<Dim> {
        let mut product = self.factor()?;
        while self.eat('*') {
            product = product.mul(&self.factor()?);
        }
        Ok(product)
    }

    fn factor(&mut self) -> Out<Dim> {
        match self.next() {
            Token::Int(value) => match i64::try_from(value) {
                Ok(value) => Ok(Dim::Known(value)),
                Err(_) => self.back("the number is too large"),
            },
            Token::Text(name) => match String::from_utf8(name) {
                Ok(name) => Ok(Dim::symbol(self.symbols.named(&name))),
                Err(_) => self.back("the string has to be UTF-8"),
            },
            Token::Word(word) if self.is_mark('(') => {
                self.next();
                let arguments = self.nested(|parser| parser.list(')', Parser::dim))?;
                match (word.as_str(), arguments.as_slice()) {
                    ("floordiv", [a, b]) => Ok(a.floor_div(b)),
                    ("mod", [a, b]) => Ok(a.modulo(b)),
                    ("max", [a, b]) => Ok(a.max(b)),
                    ("min", [a, b]) => Ok(a.min(b)),
                    _ => self.back("floordiv, mod, max or min of two dims is wanted"),
                }
            }
            Token::Word(word) => {
                let symbol: Symbol = self.symbols.named(&word);
                Ok(Dim::symbol(symbol))
            }
            _ => self.back("a dim is wanted"),
        }
    }

    pub(super) fn ty(&mut self) -> Out<Type> {
        self.nested(Parser::ty_inside)
    }

    fn ty_inside(&mut self) -> Out<Type> {
        if self.is_mark('?') && *self.ahead(1) != Token::Mark('[') {
            self.next();
            return Ok(Type::Unknown);
        }
        if let (Token::Word(word), Token::Mark('(')) = (self.peek().clone(), self.ahead(1)) {
            self.next();
            self.next();
            let ty = match word.as_str() {
                "seq" => Type::Sequence(Box::new(self.ty()?)),
                "opt" => Type::Optional(Box::new(self.ty()?)),
                "sparse" => Type::SparseTensor(self.tensor_type()?),
                "map" => {
                    let key = self.dtype()?;
                    self.want(',')?;
                    Type::Map(key, Box::new(self.ty()?))
                }
                _ => return self.back("seq, opt, sparse or map is wanted"),
            };
            self.want(')')?;
            return Ok(ty);
        }
        self.tensor_type().map(Type::Tensor)
    }

    fn dtype(&mut self) -> Out<DType> {
        let word = self.word()?;
        DType::from_name(&word).map_or_else(|| self.back(format!("`{word}` is no dtype")), Ok)
    }

    fn tensor_type(&mut self) -> Out<TensorType> {
        let dtype = if self.eat('?') { None } else { Some(self.dtype()?) };
        self.want('[')?;
        if *self.peek() == Token::Dots {
            self.next();
            self.want(']')?;
            return Ok(TensorType { dtype, shape: None });
        }
        let mut dims = Vec::new();
        if !self.eat(']') {
            loop {
                dims.push(self.dim()?);
                if self.eat(']') {
                    break;
                }
                if !self.eat_word("x") {
                    return self.fail("`x` or `]` is wanted");
                }
            }
        }
        Ok(TensorType { dtype, shape: Some(dims) })
    }

    /// `dtype[dims] = elements`.
    pub(super) fn tensor(&mut self) -> Out<Tensor> {
        let ty = self.tensor_type()?;
        let dims: Option<Vec<i64>> = ty.shape.iter().flatten().map(Dim::known).collect();
        let (Some(dtype), Some(dims), Some(_)) = (ty.dtype, dims, &ty.shape) else {
            return self.fail("a constant needs a dtype and dims that are numbers");
        };
        self.want('=')?;
        let start = self.at;
        let tensor = match self.next() {
            Token::Mark('[') if dtype == DType::Str => {
                let list = self.list(']', Parser::text)?;
                Tensor::strings(dims, list.into_iter().map(Bytes::from).collect())
            }
            Token::Mark('[') => {
                let parts = self.list(']', |parser| parser.number().map(|(text, _)| text))?;
                from_numbers(dtype, dims, &parts)
            }
            Token::Word(word) if word == "splat" => {
                self.want('(')?;
                let (one, _) = self.number()?;
                self.want(')')?;
                from_splat(dtype, dims, &one)
            }
            Token::Word(word) if word == "hex" => {
                let digits = self.text()?;
                from_hex(&digits).and_then(|bytes| Tensor::new(dtype, dims, bytes.into()))
            }
            Token::Word(word) if word == "hash" => {
                let hash = self.string()?;
                match (self.bytes)(&hash) {
                    Some(bytes) => Tensor::new(dtype, dims, bytes),
                    None => return self.back("the bytes of this constant are not in the text"),
                }
            }
            _ => return self.back("`[`, splat, hex or hash is wanted"),
        };
        match tensor {
            Some(tensor) => Ok(tensor),
            None => {
                self.at = start;
                let count =
                    element_count(&ty.shape.iter().flatten().filter_map(Dim::known).collect::<Vec<_>>());
                let wanted = count.map_or(String::new(), |count| format!(" {count}"));
                self.fail(format!("the elements do not fit the type: it has{wanted} of {dtype}"))
            }
        }
    }
}
