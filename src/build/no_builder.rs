//! Stands in for the builder, which this executable was compiled without.

use super::{backend::Failure, cache::Settings};
use crate::{Error, Options};
use bytes::Bytes;
use std::{marker::PhantomData, path::PathBuf, time::Duration};
use trtc_bundle::{MappedFile, Product, Target};
use trtc_network::Lowered;

/// Builds nothing.
pub(crate) struct Builder<'a>(PhantomData<&'a Options>);

/// What nobody makes here.
pub(crate) struct Built {
    pub bytes: Bytes,
    pub seconds: f64,
    pub peak_bytes: u64,
}

impl<'a> Builder<'a> {
    pub fn new(_: &'a Options, _: &'a [MappedFile]) -> Builder<'a> {
        Builder(PhantomData)
    }

    pub fn settings(&self) -> Settings {
        Settings::default()
    }

    pub fn library(&self, _: Product) -> Result<PathBuf, Error> {
        Err(Error::missing("this trtc was compiled without its builder")
            .help("compile it with the feature `tensorrt`, or the model with --target host"))
    }

    pub fn build(&self, _: &Lowered, target: &Target, _: Duration) -> Result<Result<Built, Failure>, Error> {
        self.library(target.product()).map(|_| Err(Failure::default()))
    }
}
