//! The parser: recursive descent over the tokens.

use super::{
    ParseError,
    lex::{Spot, Token, lex},
};
use crate::{
    attr::{Attr, Attrs},
    graph::{Graph, Module, Node, OpKey, ValueId},
    symbols::Symbols,
    types::Type,
};
use bytes::Bytes;
use std::collections::HashMap;

pub(super) type Out<T> = Result<T, ParseError>;

pub(super) fn parse(text: &str, bytes: &dyn Fn(&str) -> Option<Bytes>) -> Out<Module> {
    let mut parser = Parser { spots: lex(text)?, at: 0, symbols: Symbols::default(), bytes, depth: 0 };
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

pub(super) struct Parser<'a> {
    spots: Vec<Spot>,
    pub(super) at: usize,
    pub(super) symbols: Symbols,
    pub(super) bytes: &'a dyn Fn(&str) -> Option<Bytes>,
    /// Brackets and graphs around the place that is read.
    pub(super) depth: usize,
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
    pub(super) fn peek(&self) -> &Token {
        self.ahead(0)
    }

    pub(super) fn ahead(&self, n: usize) -> &Token {
        self.spots.get(self.at + n).map_or(&Token::End, |spot| &spot.token)
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.spots.len().saturating_sub(1));
        token
    }

    pub(super) fn fail<T>(&self, why: impl Into<String>) -> Out<T> {
        let spot = self.spots.get(self.at).or(self.spots.last());
        let (line, column) = spot.map_or((1, 1), |spot| (spot.line, spot.column));
        Err(ParseError { line, column, why: why.into() })
    }

    pub(super) fn is_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    pub(super) fn eat(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn want(&mut self, mark: char) -> Out<()> {
        if self.eat(mark) { Ok(()) } else { self.fail(format!("`{mark}` is wanted")) }
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(w) if w == word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn word(&mut self) -> Out<String> {
        match self.next() {
            Token::Word(word) => Ok(word),
            _ => self.back("a word is wanted"),
        }
    }

    /// Fails at the token just taken.
    pub(super) fn back<T>(&mut self, why: impl Into<String>) -> Out<T> {
        self.at = self.at.saturating_sub(1);
        self.fail(why)
    }

    pub(super) fn text(&mut self) -> Out<Vec<u8>> {
        match self.next() {
            Token::Text(bytes) => Ok(bytes),
            _ => self.back("a quoted string is wanted"),
        }
    }

    pub(super) fn string(&mut self) -> Out<String> {
        let bytes = self.text()?;
        String::from_utf8(bytes).or_else(|_| self.back("the string has to be UTF-8"))
    }

    pub(super) fn word_or_string(&mut self) -> Out<String> {
        if matches!(self.peek(), Token::Text(_)) { self.string() } else { self.word() }
    }

    pub(super) fn unsigned<T: TryFrom<u64>>(&mut self) -> Out<T> {
        if let Token::Int(value) = *self.peek()
            && let Ok(value) = T::try_from(value)
        {
            self.next();
            return Ok(value);
        }
        self.fail("a whole number is wanted, not too large")
    }

    pub(super) fn int(&mut self) -> Out<i64> {
        let negative = self.eat('-');
        let value: u64 = self.unsigned()?;
        let wide = if negative { -i128::from(value) } else { i128::from(value) };
        i64::try_from(wide).or_else(|_| self.back("the number is too large"))
    }

    /// A number of any kind, as text that the standard library reads.
    pub(super) fn number(&mut self) -> Out<(String, bool)> {
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
    pub(super) fn list<T>(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Out<T>) -> Out<Vec<T>> {
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

    fn graph(&mut self, outer: Option<&mut Scope>) -> Out<Graph> {
        self.nested(|parser| parser.graph_inside(outer))
    }

    fn graph_inside(&mut self, mut outer: Option<&mut Scope>) -> Out<Graph> {
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
