//! Runs bundles: session, schedule, host backend, devices, buffers.
//!
//! ```no_run
//! use trtc_bundle::Bundle;
//! use trtc_runtime::{Session, SessionOptions, Tensor};
//!
//! let bundle = Bundle::open("model.trtc")?;
//! let session = Session::new(&bundle, &SessionOptions::default())?;
//! let x = Tensor::from_slice(&[1, 3], &[1.0f32, 2.0, 3.0])?;
//! let outputs = session.run(&[("x", (&x).into())])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A session made from a bundle runs the whole model as one graph where there is no device for engines, or, in
//! [`Mode::Segments`], the partitioned schedule with the engines' host twins. ONNX Runtime is the host backend; it is
//! loaded when the first session is made.

pub mod device;
mod error;
pub mod host;
mod session;
mod tensor;
mod value;

pub use error::{ErrorKind, RunError};
pub use session::{Device, Mode, Outputs, SegmentTiming, Session, SessionOptions};
pub use tensor::{Element, Tensor, TensorError, TensorView};
pub use trtc_bundle as bundle;
pub use value::{Input, Opaque, OpaqueValue, StringTensor, Value};
