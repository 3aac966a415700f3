//! RoiAlign: where pixels are.
//!
//! 10: as `output_half_pixel`.     16: attribute coordinate_transformation_mode, default half_pixel.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Attr, Diag, Graph};

pub(super) static FAMILY: Family = Family { ops: &["RoiAlign"], upgrade, downgrade };

const MODE: &str = "coordinate_transformation_mode";
const OLD: &str = "output_half_pixel";

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since < 16 {
        draft.attrs.set(MODE, Attr::Str(OLD.into()));
    }
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 16 {
        if draft.attrs.str(MODE) != Some(OLD) {
            return Err(Misfit);
        }
        draft.attrs.remove(MODE);
    }
    Ok(())
}
