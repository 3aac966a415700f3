//! One step of a recurrence.

use super::{quantised::Quantised, rows};
use crate::Emit;
use trtc_ir::{Code, NodeView, Refusal};
use trtc_network::{
    TensorId,
    layer::{ActivationKind, ElementWiseOp, Extent, Layer, MatrixOp, SampleMode},
};

/// Which recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lstm,
    Gru,
    Rnn,
}

impl Kind {
    pub fn of(node: NodeView<'_>) -> Kind {
        match node.op() {
            "LSTM" | "DynamicQuantizeLSTM" => Kind::Lstm,
            "GRU" => Kind::Gru,
            _ => Kind::Rnn,
        }
    }

    /// Gates, in the order of the weights: i o f c, z r h, or one.
    pub fn gates(self) -> i64 {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Rnn => 1,
        }
    }

    fn defaults(self) -> &'static [&'static str] {
        match self {
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Rnn => &["Tanh"],
        }
    }
}

/// An activation with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    Layer(ActivationKind, f32, f32),
    /// α·x + β
    Affine(f32, f32),
}

impl Activation {
    /// Activations of each direction.
    pub fn read(node: NodeView<'_>, kind: Kind, directions: usize) -> Result<Vec<Vec<Activation>>, Refusal> {
        let defaults = kind.defaults();
        let refuse = |why: String| Refusal::new(Code::ATTRIBUTE, why).slot("activations");
        let names: Vec<String> = match node.attrs().get("activations") {
            Some(trtc_ir::Attr::Strs(list)) if !list.is_empty() => {
                list.iter().map(|bytes| String::from_utf8_lossy(bytes).to_ascii_lowercase()).collect()
            }
            _ => defaults
                .iter()
                .map(|name| name.to_ascii_lowercase())
                .cycle()
                .take(defaults.len() * directions)
                .collect(),
        };
        if names.len() != defaults.len() * directions {
            return Err(refuse(format!("{} activations for {directions} directions", names.len())));
        }
        // Constants are used up by those activations that have them, in order.
        let mut alphas = node.attrs().floats("activation_alpha").unwrap_or_default().iter().copied();
        let mut betas = node.attrs().floats("activation_beta").unwrap_or_default().iter().copied();
        let mut list = Vec::new();
        for name in &names {
            let mut alpha = |default: f32| alphas.next().unwrap_or(default);
            let mut beta = |default: f32| betas.next().unwrap_or(default);
            let layer = Activation::Layer;
            list.push(match name.as_str() {
                "relu" => layer(ActivationKind::Relu, 0.0, 0.0),
                "tanh" => layer(ActivationKind::Tanh, 0.0, 0.0),
                "sigmoid" => layer(ActivationKind::Sigmoid, 0.0, 0.0),
                "softsign" => layer(ActivationKind::Softsign, 0.0, 0.0),
                "softplus" => layer(ActivationKind::Softplus, 1.0, 1.0),
                "leakyrelu" => layer(ActivationKind::LeakyRelu, alpha(0.01), 0.0),
                "elu" => layer(ActivationKind::Elu, alpha(1.0), 0.0),
                // ONNX Runtime's default is not the schema's.
                "thresholdedrelu" => match alphas.next() {
                    Some(alpha) => layer(ActivationKind::ThresholdedRelu, alpha, 0.0),
                    None => return Err(refuse("`thresholdedrelu` without its alpha".into())),
                },
                "scaledtanh" | "affine" => match (alphas.next(), betas.next()) {
                    (Some(a), Some(b)) if name == "affine" => Activation::Affine(a, b),
                    (Some(a), Some(b)) => layer(ActivationKind::ScaledTanh, a, b),
                    _ => {
                        return Err(refuse(format!(
                            "`{name}` without its alpha and beta, which have no default"
                        )));
                    }
                },
                "hardsigmoid" => layer(ActivationKind::HardSigmoid, alpha(0.2), beta(0.5)),
                other => return Err(refuse(format!("`{other}` is no activation of a recurrence"))),
            });
        }
        Ok(list.chunks(defaults.len()).map(<[_]>::to_vec).collect())
    }

    fn emit(self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        match self {
            Activation::Layer(kind, alpha, beta) => cx.activation(x, kind, alpha, beta),
            Activation::Affine(alpha, beta) => {
                let (dtype, rank) = (cx.dtype(x), cx.rank(x));
                let (a, b) = (cx.scalar(dtype, rank, alpha.into()), cx.scalar(dtype, rank, beta.into()));
                let x = cx.elementwise(x, a, ElementWiseOp::Prod);
                cx.elementwise(x, b, ElementWiseOp::Sum)
            }
        }
    }
}

/// Attributes of one direction.
#[derive(Debug)]
pub struct Cell {
    activations: Vec<Activation>,
    clip: Option<f32>,
    /// LSTM: the forget gate is one minus the input gate.
    coupled: bool,
    /// GRU: the reset gate comes after the matrix product.
    reset_late: bool,
}

impl Cell {
    pub fn new(node: NodeView<'_>, kind: Kind, activations: Vec<Activation>) -> Cell {
        Cell {
            activations,
            clip: node.attrs().float("clip").filter(|&clip| clip > 0.0),
            coupled: kind == Kind::Lstm && node.int("input_forget", 0) != 0,
            reset_late: kind == Kind::Gru && node.int("linear_before_reset", 0) != 0,
        }
    }

    fn activate(&self, cx: &mut Emit<'_>, k: usize, x: TensorId) -> TensorId {
        let x = match self.clip {
            Some(clip) => cx.activation(x, ActivationKind::Clip, -clip, clip),
            None => x,
        };
        self.plain(cx, k, x)
    }

    fn plain(&self, cx: &mut Emit<'_>, k: usize, x: TensorId) -> TensorId {
        match self.activations.get(k) {
            Some(activation) => activation.emit(cx, x),
            None => x,
        }
    }
}

/// What a product is made with.
enum Factor {
    /// [n, k]
    Plain(TensorId),
    Quantised(Quantised),
}

impl Factor {
    /// x [.., k] · weightsᵀ [.., n].
    fn product(&self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        match self {
            Factor::Plain(weights) => {
                let rank = cx.rank(x);
                let weights = cx.with_rank(*weights, rank);
                product(cx, x, weights)
            }
            Factor::Quantised(weights) => weights.product(cx, x),
        }
    }
}

/// The weights of one direction as tensors.
pub struct Weights<'a> {
    kind: Kind,
    cell: &'a Cell,
    hidden: i64,
    /// [g·h, i]
    input: Factor,
    /// [g·h, h]; GRU with an early reset: without the last gate.
    recurrent: Factor,
    /// [h, h]: the last gate of a GRU with an early reset.
    candidate: Option<TensorId>,
    /// [g·h]: everything that is added before the gates.
    bias: Option<TensorId>,
    /// [1, h]: what a GRU with a late reset adds to the product before it.
    late_bias: Option<TensorId>,
    /// [1, h] each, for i o f c: of a quantised LSTM, which adds them last of all.
    last_bias: Option<[TensorId; 4]>,
    /// [1, h] each, for i o f.
    peepholes: Option<[TensorId; 3]>,
}

impl<'a> Weights<'a> {
    pub fn emit(cx: &mut Emit<'_>, kind: Kind, k: usize, h: i64, inputs: i64, cell: &'a Cell) -> Weights<'a> {
        let all = h * kind.gates();
        let input = rows(cx, 1, k, all, 0, all, Some(inputs));
        let early = kind == Kind::Gru && !cell.reset_late;
        let first = if early { all - h } else { all };
        let recurrent = rows(cx, 2, k, all, 0, first, Some(h));
        let candidate = early.then(|| rows(cx, 2, k, all, first, h, Some(h)));
        let (mut bias, mut late_bias) = (None, None);
        if cx.node().input(3).is_some() {
            let of_input = rows(cx, 3, k, 2 * all, 0, all, None);
            bias = Some(if cell.reset_late {
                let gates = rows(cx, 3, k, 2 * all, all, all - h, None);
                let dtype = cx.dtype(gates);
                let zero = crate::ctx::floats::constant(cx, dtype, vec![h], &vec![0.0; h as usize]);
                let late = rows(cx, 3, k, 2 * all, 2 * all - h, h, None);
                late_bias = Some(cx.with_rank(late, 2));
                let of_state = cx.one(Layer::Concatenation { xs: vec![gates, zero], axis: 0 });
                cx.elementwise(of_input, of_state, ElementWiseOp::Sum)
            } else {
                let of_state = rows(cx, 3, k, 2 * all, all, all, None);
                cx.elementwise(of_input, of_state, ElementWiseOp::Sum)
            });
        }
        let peepholes = peepholes(cx, kind, k, h);
        let [input, recurrent] = [input, recurrent].map(Factor::Plain);
        let last_bias = None;
        Weights { kind, cell, hidden: h, input, recurrent, candidate, bias, late_bias, last_bias, peepholes }
    }

    /// Of an LSTM with 8-bit weights.
    pub fn quantised(
        cx: &mut Emit<'_>,
        k: usize,
        h: i64,
        cell: &'a Cell,
        [input, recurrent]: [Quantised; 2],
    ) -> Weights<'a> {
        let last_bias = cx.node().input(3).is_some().then(|| {
            [0, 1, 2, 3].map(|gate| {
                let of_input = rows(cx, 3, k, 8 * h, gate * h, h, None);
                let of_state = rows(cx, 3, k, 8 * h, (4 + gate) * h, h, None);
                let bias = cx.elementwise(of_input, of_state, ElementWiseOp::Sum);
                cx.with_rank(bias, 2)
            })
        });
        let kind = Kind::Lstm;
        let [input, recurrent] = [input, recurrent].map(Factor::Quantised);
        let (candidate, bias, late_bias) = (None, None, None);
        let peepholes = peepholes(cx, kind, k, h);
        Weights { kind, cell, hidden: h, input, recurrent, candidate, bias, late_bias, last_bias, peepholes }
    }

    /// X · Wᵀ and every bias that may be added now: [s, b, g·h].
    pub fn project(&self, cx: &mut Emit<'_>, x: TensorId) -> TensorId {
        let y = self.input.product(cx, x);
        match self.bias {
            Some(bias) => {
                let bias = cx.with_rank(bias, 3);
                cx.elementwise(y, bias, ElementWiseOp::Sum)
            }
            None => y,
        }
    }

    /// One step: what it gives out, and the next states. `x` [b, g·h], states [b, h], `within` [b, 1] bool each: none where
    /// every row has every step, else whether this one is the row's, and of a quantised LSTM whether the one before it was.
    pub fn step(
        &self,
        cx: &mut Emit<'_>,
        gate: &Extent,
        x: TensorId,
        hidden: TensorId,
        state: Option<TensorId>,
        within: &[TensorId],
    ) -> (TensorId, TensorId, Option<TensorId>) {
        let (next, next_state) = match (self.kind, state) {
            (Kind::Lstm, Some(c)) => {
                // Where a row has ended, ONNX Runtime goes on with what it gave out: zeros have no share in the range.
                let seen = match within {
                    &[_, condition] => {
                        let dtype = cx.dtype(hidden);
                        let else_input = cx.scalar(dtype, 2, 0.0);
                        cx.one(Layer::Select { condition, then_input: hidden, else_input })
                    }
                    _ => hidden,
                };
                let (h, c) = self.lstm(cx, gate, x, seen, c);
                (h, Some(c))
            }
            (Kind::Gru, _) => (self.gru(cx, gate, x, hidden), None),
            _ => {
                let product = self.recurrent.product(cx, hidden);
                let sum = cx.elementwise(x, product, ElementWiseOp::Sum);
                (self.cell.activate(cx, 0, sum), None)
            }
        };
        let Some(&condition) = within.first() else { return (next, next, next_state) };
        // Past the end of a row its states stay, and zeros are given out.
        let mut keep = |then_input: TensorId, else_input: TensorId| {
            cx.one(Layer::Select { condition, then_input, else_input })
        };
        let kept = keep(next, hidden);
        let kept_state = next_state.zip(state).map(|(next, old)| keep(next, old));
        let dtype = cx.dtype(next);
        let zero = cx.scalar(dtype, 2, 0.0);
        let out = cx.one(Layer::Select { condition, then_input: next, else_input: zero });
        (out, kept, kept_state)
    }

    fn lstm(
        &self,
        cx: &mut Emit<'_>,
        gate: &Extent,
        x: TensorId,
        h: TensorId,
        c: TensorId,
    ) -> (TensorId, TensorId) {
        let product = self.recurrent.product(cx, h);
        let gates = cx.elementwise(x, product, ElementWiseOp::Sum);
        let [mut i, mut o, mut f, g] = [0, 1, 2, 3].map(|k| self.part(cx, gate, gates, k));
        if let Some([pi, _, pf]) = self.peepholes {
            i = peep(cx, i, pi, c);
            f = peep(cx, f, pf, c);
        }
        let i = self.biased(cx, 0, i);
        let i = self.cell.activate(cx, 0, i);
        let f = if self.cell.coupled {
            let dtype = cx.dtype(i);
            let one = cx.scalar(dtype, 2, 1.0);
            cx.elementwise(one, i, ElementWiseOp::Sub)
        } else {
            let f = self.biased(cx, 2, f);
            self.cell.activate(cx, 0, f)
        };
        let g = self.biased(cx, 3, g);
        let g = self.cell.activate(cx, 1, g);
        let kept = cx.elementwise(f, c, ElementWiseOp::Prod);
        let added = cx.elementwise(i, g, ElementWiseOp::Prod);
        let c = cx.elementwise(kept, added, ElementWiseOp::Sum);
        if let Some([_, po, _]) = self.peepholes {
            o = peep(cx, o, po, c);
        }
        let o = self.biased(cx, 1, o);
        let o = self.cell.activate(cx, 0, o);
        let shown = self.cell.plain(cx, 2, c);
        (cx.elementwise(o, shown, ElementWiseOp::Prod), c)
    }

    fn gru(&self, cx: &mut Emit<'_>, gate: &Extent, x: TensorId, h: TensorId) -> TensorId {
        let of_state = self.recurrent.product(cx, h);
        let [z, r] = [0, 1].map(|k| {
            let (a, b) = (self.part(cx, gate, x, k), self.part(cx, gate, of_state, k));
            let sum = cx.elementwise(a, b, ElementWiseOp::Sum);
            self.cell.activate(cx, 0, sum)
        });
        let of_input = self.part(cx, gate, x, 2);
        let reset = match self.candidate {
            Some(weights) => {
                let reset = cx.elementwise(r, h, ElementWiseOp::Prod);
                product(cx, reset, weights)
            }
            None => {
                let mut late = self.part(cx, gate, of_state, 2);
                if let Some(bias) = self.late_bias {
                    late = cx.elementwise(late, bias, ElementWiseOp::Sum);
                }
                cx.elementwise(r, late, ElementWiseOp::Prod)
            }
        };
        let sum = cx.elementwise(of_input, reset, ElementWiseOp::Sum);
        let candidate = self.cell.activate(cx, 1, sum);
        let dtype = cx.dtype(z);
        let one = cx.scalar(dtype, 2, 1.0);
        let rest = cx.elementwise(one, z, ElementWiseOp::Sub);
        let new = cx.elementwise(rest, candidate, ElementWiseOp::Prod);
        let old = cx.elementwise(z, h, ElementWiseOp::Prod);
        cx.elementwise(new, old, ElementWiseOp::Sum)
    }

    /// A gate with its bias, where that comes last.
    fn biased(&self, cx: &mut Emit<'_>, k: usize, gate: TensorId) -> TensorId {
        match self.last_bias {
            Some(bias) => cx.elementwise(gate, bias[k], ElementWiseOp::Sum),
            None => gate,
        }
    }

    /// Gate `k` of [b, g·h].
    fn part(&self, cx: &mut Emit<'_>, gate: &Extent, x: TensorId, k: i64) -> TensorId {
        let start = Extent::Static(vec![0, k * self.hidden]);
        let stride = Extent::Static(vec![1, 1]);
        cx.one(Layer::Slice { x, start, size: gate.clone(), stride, mode: SampleMode::Strict, fill: None })
    }
}

/// [1, h] each, for i o f.
fn peepholes(cx: &mut Emit<'_>, kind: Kind, k: usize, h: i64) -> Option<[TensorId; 3]> {
    (kind == Kind::Lstm && cx.node().input(7).is_some()).then(|| {
        [0, 1, 2].map(|gate| {
            let p = rows(cx, 7, k, 3 * h, gate * h, h, None);
            cx.with_rank(p, 2)
        })
    })
}

fn product(cx: &mut Emit<'_>, a: TensorId, b: TensorId) -> TensorId {
    cx.one(Layer::MatrixMultiply { a, op_a: MatrixOp::None, b, op_b: MatrixOp::Transpose })
}

/// A gate with what it sees of the cell's state.
fn peep(cx: &mut Emit<'_>, gate: TensorId, weights: TensorId, state: TensorId) -> TensorId {
    let seen = cx.elementwise(weights, state, ElementWiseOp::Prod);
    cx.elementwise(gate, seen, ElementWiseOp::Sum)
}
