//! The parser: recursive descent over the tokens.

use super::{
    ParseError,
    lex::{Spot, Token, lex},
    literal::{from_hex, from_numbers, from_splat},
};
use crate::{
    attr::{Attr, Attrs},
    dim::{Dim, Interval, Symbol},
    graph::{Graph, Module, Node, OpKey, ValueId},
    symbols::Symbols,
    tensor::{Tensor, element_count},
    types::{TensorType, Type},
};
use bytes::Bytes;
use std::collections::HashMap;
use trtc_bundle::DType;

type Out<T> = Result<T, ParseError>;

pub(super) fn parse(text: &str, bytes: &dyn Fn(&str) -> Option<Bytes>) -> Out<Module> {
    let mut parser = Parser { spots: lex(text)?, at: 0, symbols: Symbols::default(), bytes };
    let mut module = Module::default();
    let mut has_graph = false;
    loop {
        match parser.peek().clone() {
            Token::End if has_graph => break,
            Token::End => return parser.fail("there is no graph"),
            Token::Word(word) => match word.as_str() {
                "opset" => {
                    parser.next();
                    let domain = parser.string()?;
                    let version = parser.unsigned()?;
                    module.opsets.push((domain, version));
                }
                "metadata" | "origin" => {
                    parser.next();
                    let pair = (parser.string()?, parser.string()?);
                    if word == "origin" { module.origin.push(pair) } else { module.metadata.push(pair) }
                }
                "symbol" => parser.declare_symbol()?,
                "graph" if !has_graph => {
                    module.graph = parser.graph(None)?;
                    has_graph = true;
                }
                _ => return parser.fail("`opset`, `metadata`, `origin`, `symbol` or one `graph` is wanted"),
            },
            _ => return parser.fail("`opset`, `metadata`, `origin`, `symbol` or `graph` is wanted"),
        }
    }
    module.symbols = parser.symbols;
    Ok(module)
}

struct Parser<'a> {
    spots: Vec<Spot>,
    at: usize,
    symbols: Symbols,
    bytes: &'a dyn Fn(&str) -> Option<Bytes>,
}

/// Values of a graph by name while it is read.
#[derive(Default)]
struct Scope {
    graph: Graph,
    names: HashMap<String, ValueId>,
}

impl Scope {
    /// The value of a name, made when it is new: uses may stand before what they use.
    fn value(&mut self, name: &str) -> ValueId {
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let id = self.graph.add_value(name, Type::Unknown);
        self.names.insert(name.to_owned(), id);
        id
    }
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.ahead(0)
    }

    fn ahead(&self, n: usize) -> &Token {
        self.spots.get(self.at + n).map_or(&Token::End, |spot| &spot.token)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.spots.len().saturating_sub(1));
        token
    }

    fn fail<T>(&self, why: impl Into<String>) -> Out<T> {
        let spot = self.spots.get(self.at).or(self.spots.last());
        let (line, column) = spot.map_or((1, 1), |spot| (spot.line, spot.column));
        Err(ParseError { line, column, why: why.into() })
    }

    fn is_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    fn eat(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.next();
        }
        found
    }

    fn want(&mut self, mark: char) -> Out<()> {
        if self.eat(mark) { Ok(()) } else { self.fail(format!("`{mark}` is wanted")) }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(w) if w == word);
        if found {
            self.next();
        }
        found
    }

    fn word(&mut self) -> Out<String> {
        match self.next() {
            Token::Word(word) => Ok(word),
            _ => self.back("a word is wanted"),
        }
    }

    /// Fails at the token just taken.
    fn back<T>(&mut self, why: impl Into<String>) -> Out<T> {
        self.at = self.at.saturating_sub(1);
        self.fail(why)
    }

    fn text(&mut self) -> Out<Vec<u8>> {
        match self.next() {
            Token::Text(bytes) => Ok(bytes),
            _ => self.back("a quoted string is wanted"),
        }
    }

    fn string(&mut self) -> Out<String> {
        let bytes = self.text()?;
        String::from_utf8(bytes).or_else(|_| self.back("the string has to be UTF-8"))
    }

    fn word_or_string(&mut self) -> Out<String> {
        if matches!(self.peek(), Token::Text(_)) { self.string() } else { self.word() }
    }

    fn unsigned<T: TryFrom<u64>>(&mut self) -> Out<T> {
        if let Token::Int(value) = *self.peek()
            && let Ok(value) = T::try_from(value)
        {
            self.next();
            return Ok(value);
        }
        self.fail("a whole number is wanted, not too large")
    }

    fn int(&mut self) -> Out<i64> {
        let negative = self.eat('-');
        let value: u64 = self.unsigned()?;
        let wide = if negative { -i128::from(value) } else { i128::from(value) };
        i64::try_from(wide).or_else(|_| self.back("the number is too large"))
    }

    /// A number of any kind, as text that the standard library reads.
    fn number(&mut self) -> Out<(String, bool)> {
        let sign = if self.eat('-') { "-" } else { "" };
        match self.next() {
            Token::Int(value) => Ok((format!("{sign}{value}"), false)),
            Token::Float(text) => Ok((format!("{sign}{text}"), true)),
            Token::Word(word) if matches!(word.as_str(), "inf" | "nan") => {
                Ok((format!("{sign}{word}"), true))
            }
            Token::Word(word) if matches!(word.as_str(), "true" | "false") && sign.is_empty() => {
                Ok((word, false))
            }
            _ => self.back("a number is wanted"),
        }
    }

    /// `item, item, …` up to `end`, which is taken.
    fn list<T>(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Out<T>) -> Out<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(end) {
                return Ok(items);
            }
            if !self.eat(',') {
                return self.fail(format!("`,` or `{end}` is wanted"));
            }
        }
    }

    fn declare_symbol(&mut self) -> Out<()> {
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

    fn dim(&mut self) -> Out<Dim> {
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
                let arguments = self.list(')', Parser::dim)?;
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

    fn ty(&mut self) -> Out<Type> {
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

    /// A type and perhaps known elements, put on a value.
    fn facts(&mut self, graph: &mut Graph, id: Option<ValueId>) -> Out<()> {
        let ty = self.ty()?;
        let mut elements = None;
        if self.eat_word("elements") {
            self.want('(')?;
            elements = Some(self.list(')', Parser::dim)?);
        }
        if let Some(id) = id {
            graph[id].ty = ty;
            graph[id].elements = elements;
        }
        Ok(())
    }

    /// `dtype[dims] = elements`.
    fn tensor(&mut self) -> Out<Tensor> {
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

    fn value_name(&mut self) -> Out<String> {
        match self.next() {
            Token::Value(name) => Ok(name),
            _ => self.back("a value (`%name`) is wanted"),
        }
    }

    /// `%name`, or `_` for an absent one.
    fn slot(&mut self) -> Out<Option<String>> {
        if self.eat_word("_") { Ok(None) } else { self.value_name().map(Some) }
    }

    fn graph(&mut self, mut outer: Option<&mut Scope>) -> Out<Graph> {
        self.next();
        let mut scope = Scope::default();
        if !self.is_mark('(') {
            scope.graph.name = self.word_or_string()?;
        }
        self.want('(')?;
        let inputs = self.list(')', |parser| {
            let id = parser.define(&mut scope)?;
            if parser.eat(':') {
                parser.facts(&mut scope.graph, Some(id))?;
            }
            Ok(id)
        })?;
        scope.graph.set_inputs(inputs);
        if self.eat_word("captures") {
            self.want('(')?;
            self.list(')', |parser| {
                let inner = parser.define(&mut scope)?;
                if parser.eat(':') {
                    parser.facts(&mut scope.graph, Some(inner))?;
                }
                parser.want('=')?;
                let name = parser.value_name()?;
                match &mut outer {
                    Some(outer) => {
                        let outer = outer.value(&name);
                        scope.graph.captures.push(crate::Capture { outer, inner });
                        Ok(())
                    }
                    None => parser.back("the model's own graph captures nothing"),
                }
            })?;
        }
        self.want('{')?;
        while !self.eat('}') {
            self.statement(&mut scope)?;
        }
        Ok(scope.graph)
    }

    /// A name that no value of the graph has been given yet.
    fn define(&mut self, scope: &mut Scope) -> Out<ValueId> {
        let name = self.value_name()?;
        let id = scope.value(&name);
        let value = &scope.graph[id];
        let is_made = value.producer().is_some()
            || value.constant.is_some()
            || scope.graph.inputs().contains(&id)
            || scope.graph.captures.iter().any(|capture| capture.inner == id);
        if is_made { self.back(format!("%{name} is made twice")) } else { Ok(id) }
    }

    fn statement(&mut self, scope: &mut Scope) -> Out<()> {
        if self.eat_word("const") {
            let id = self.define(scope)?;
            self.want(':')?;
            let tensor = self.tensor()?;
            scope.graph.set_constant(id, tensor);
            return Ok(());
        }
        if self.eat_word("return") {
            let mut outputs = Vec::new();
            loop {
                let name = self.value_name()?;
                outputs.push(scope.value(&name));
                if !self.eat(',') {
                    break;
                }
            }
            scope.graph.set_outputs(outputs);
            return Ok(());
        }
        self.node(scope)
    }

    fn node(&mut self, scope: &mut Scope) -> Out<()> {
        let mut outputs = Vec::new();
        loop {
            outputs.push(if self.eat_word("_") { None } else { Some(self.define(scope)?) });
            if !self.eat(',') {
                break;
            }
        }
        self.want('=')?;
        let operator = match self.next() {
            Token::Word(word) => word,
            Token::Text(bytes) => {
                String::from_utf8(bytes).or_else(|_| self.back("an operator has to be UTF-8"))?
            }
            _ => return self.back("`const`, `return`, `}` or an operator is wanted"),
        };
        let key = match operator.rsplit_once('.') {
            Some((domain, op_type)) => OpKey::new(domain, op_type),
            None => OpKey::new("", &operator),
        };
        let since: u32 = if self.eat('-') { self.unsigned()? } else { 0 };
        self.want('(')?;
        let inputs = self.list(')', |parser| Ok(parser.slot()?.map(|name| scope.value(&name))))?;
        let name = match self.peek().clone() {
            Token::Name(name) => {
                self.next();
                name
            }
            _ => match outputs.iter().flatten().next() {
                Some(&id) => scope.graph[id].name.to_string(),
                None => return self.fail("a node without outputs needs a name (`@name`)"),
            },
        };
        let mut attrs = Attrs::new();
        if self.eat('{') {
            self.list('}', |parser| {
                let key = parser.word_or_string()?;
                parser.want('=')?;
                let attr = parser.attr(scope)?;
                attrs.set(&key, attr);
                Ok(())
            })?;
        }
        if self.eat(':') {
            for (k, output) in outputs.clone().into_iter().enumerate() {
                if k > 0 && !self.eat(',') {
                    break;
                }
                self.facts(&mut scope.graph, output)?;
            }
        }
        scope.graph.add_node(Node::new(&name, key, since, attrs, inputs, outputs));
        Ok(())
    }

    fn attr(&mut self, scope: &mut Scope) -> Out<Attr> {
        match self.peek().clone() {
            Token::Text(_) => self.text().map(|bytes| Attr::Str(bytes.into())),
            Token::Mark('[') => {
                self.next();
                if matches!(self.peek(), Token::Text(_)) {
                    let list = self.list(']', Parser::text)?;
                    return Ok(Attr::Strs(list.into_iter().map(Bytes::from).collect()));
                }
                let list = self.list(']', Parser::number)?;
                if list.is_empty() {
                    return self.back("an empty list needs its kind: ints[], floats[] or strs[]");
                }
                if list.iter().all(|(_, is_float)| !is_float) {
                    let ints = list.iter().map(|(text, _)| text.parse().ok()).collect::<Option<_>>();
                    return ints.map(Attr::Ints).map_or_else(|| self.back("an integer is too large"), Ok);
                }
                let floats = list.iter().map(|(text, _)| text.parse().ok()).collect::<Option<_>>();
                floats.map(Attr::Floats).map_or_else(|| self.back("no list of floats"), Ok)
            }
            Token::Word(word) => match (word.as_str(), self.ahead(1).clone()) {
                ("ints" | "floats" | "strs", Token::Mark('[')) => {
                    self.next();
                    self.next();
                    self.want(']')?;
                    Ok(match word.as_str() {
                        "ints" => Attr::Ints(Vec::new()),
                        "floats" => Attr::Floats(Vec::new()),
                        _ => Attr::Strs(Vec::new()),
                    })
                }
                ("tensor" | "tensors" | "type" | "opaque" | "graphs", Token::Mark('(')) => {
                    self.next();
                    self.next();
                    let attr = match word.as_str() {
                        "tensors" => return self.list(')', Parser::tensor).map(Attr::Tensors),
                        "graphs" => {
                            return self.list(')', |parser| parser.graph(Some(scope))).map(Attr::Graphs);
                        }
                        "tensor" => Attr::Tensor(self.tensor()?),
                        "type" => Attr::Type(self.ty()?),
                        _ => Attr::Opaque(self.text()?.into()),
                    };
                    self.want(')')?;
                    Ok(attr)
                }
                ("graph", _) => Ok(Attr::Graph(Box::new(self.graph(Some(scope))?))),
                _ => self.scalar(),
            },
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Out<Attr> {
        let (text, is_float) = self.number()?;
        let attr =
            if is_float { text.parse().ok().map(Attr::Float) } else { text.parse().ok().map(Attr::Int) };
        attr.map_or_else(|| self.back("a number that fits is wanted"), Ok)
    }
}
