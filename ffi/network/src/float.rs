//! f32 in JSON, which knows no infinity: those and NaN travel as text. A clip may well end at infinity.

use serde::{Deserialize, Deserializer, Serializer, de};

pub(crate) fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
    match *value {
        v if v.is_nan() => to.serialize_str("nan"),
        f32::INFINITY => to.serialize_str("inf"),
        f32::NEG_INFINITY => to.serialize_str("-inf"),
        v => to.serialize_f32(v),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f32),
        Text(String),
    }
    match Form::deserialize(from)? {
        Form::Number(value) => Ok(value),
        Form::Text(text) => match text.as_str() {
            "nan" => Ok(f32::NAN),
            "inf" => Ok(f32::INFINITY),
            "-inf" => Ok(f32::NEG_INFINITY),
            _ => Err(de::Error::custom(format!("`{text}` is not a number"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::layer::{ActivationKind, Layer};
    use crate::network::TensorId;

    #[test]
    fn every_float_survives_json() {
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 0.1, -0.0, 1e-45] {
            let layer =
                Layer::Activation { x: TensorId(0), kind: ActivationKind::Clip, alpha: value, beta: -value };
            let json = serde_json::to_string(&layer).unwrap();
            let back: Layer = serde_json::from_str(&json).unwrap();
            let Layer::Activation { alpha, beta, .. } = back else { panic!("another layer") };
            assert_eq!((alpha.to_bits(), beta.to_bits()), (value.to_bits(), (-value).to_bits()), "{json}");
        }
    }
}
